// Every interleaving of the residency protocol, with every kill; and the mistakes that it must not survive.
//
// What is shown: no thread ever uses bytes that are being overwritten or are another blob's; a successor finds whole what it takes for
// whole; and from every state, if nobody else is killed, all living threads can come to their end, with no pin left behind: nobody waits
// for a wake-up that was lost, for a fetch that died with its store, or for room that a dead worker's pin holds.

#include <gtest/gtest.h>

#include <unordered_map>
#include <vector>

#include "tests/store/protocol_model.h"

namespace moestro::store::model {
namespace {

struct Hash {
  size_t operator()(const World& w) const {
    size_t h = 14695981039346656037ULL;
    const auto mix = [&h](uint64_t v) { h = (h ^ v) * 1099511628211ULL; };
    for (size_t b = 0; b < kBlobs; ++b) mix(static_cast<uint64_t>(w.word[b]));
    uint64_t bits = 0;
    for (size_t m = 0; m < kWorkers; ++m) {
      for (size_t b = 0; b < kBlobs; ++b) bits = bits << 3 | uint64_t{w.pin[m][b]} << 2 | uint64_t{w.asked[m][b]} << 1 | w.wants[m][b];
      bits = bits << 4 | uint64_t{w.uses[m]} << 2 | uint64_t{w.dead[m]} << 1 | w.slot_cleared[m];
    }
    for (size_t t = 0; t < kThreads; ++t) bits = bits << 7 | uint64_t{w.at[t]} << 3 | uint64_t{w.uses_done[t]} << 1 | w.rung[t];
    mix(bits);
    mix(uint64_t{w.late} << 56 | static_cast<uint64_t>(w.late_writing + 1) << 50 | uint64_t{w.store} << 40 | uint64_t{w.drive} << 32 | static_cast<uint64_t>(w.before) << 24 | uint64_t{w.store_deaths} << 20 |
        static_cast<uint64_t>(w.content + 1) << 16 | static_cast<uint64_t>(w.holds + 1) << 12 | static_cast<uint64_t>(w.working + 1) << 8 |
        static_cast<uint64_t>(w.next + 1) << 4 | static_cast<uint64_t>(w.writing + 1));
    return h;
  }
};

struct Verdict {
  size_t states = 0, stuck = 0;
  bool leaked_pin = false;
  Findings findings;
  bool fine() const { return stuck == 0 && !leaked_pin && !findings.wrong_bytes && !findings.wrong_adopted; }
};

bool at_rest(const World& w) { return w.all_done() && w.store == kIdle && w.drive == kStill && w.late == kStill; }

Verdict search(Mutant mutant) {
  Verdict verdict;
  std::unordered_map<World, uint32_t, Hash> known;
  std::vector<const World*> worlds;
  std::vector<std::pair<uint32_t, uint32_t>> steps;  ///< from, to: without kills
  const auto number = [&](const World& w) {
    const auto [at, is_new] = known.try_emplace(w.normal(), static_cast<uint32_t>(worlds.size()));
    if (is_new) worlds.push_back(&at->first);
    return at->second;
  };
  number(World{});
  for (uint32_t from = 0; from < worlds.size(); ++from) {
    const World world = *worlds[from];
    for_each_step(world, mutant, verdict.findings, [&](const World& next, bool is_kill) {
      const uint32_t to = number(next);
      if (!is_kill && to != from) steps.emplace_back(from, to);
    });
    if (!verdict.fine()) return verdict;  // found
  }
  // Backwards from the ends: whatever is not met can never come to one.
  std::vector<uint32_t> first(worlds.size() + 1, 0), into(steps.size());
  for (const auto& [from, to] : steps) ++first[to + 1];
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<uint32_t> fill(first.begin(), first.end() - 1);
  for (const auto& [from, to] : steps) into[fill[to]++] = from;
  std::vector<bool> ends(worlds.size(), false);
  std::vector<uint32_t> todo;
  const auto no_pin = [](const World& w) { return w.pin == decltype(w.pin){}; };
  for (uint32_t i = 0; i < worlds.size(); ++i)
    if (at_rest(*worlds[i]) && no_pin(*worlds[i])) ends[i] = true, todo.push_back(i);
  while (!todo.empty()) {
    const uint32_t at = todo.back();
    todo.pop_back();
    for (uint32_t i = first[at]; i < first[at + 1]; ++i)
      if (!ends[into[i]]) ends[into[i]] = true, todo.push_back(into[i]);
  }
  for (uint32_t i = 0; i < worlds.size(); ++i) {
    verdict.stuck += !ends[i];
    const bool cleared = (!worlds[i]->dead[0] || worlds[i]->slot_cleared[0]) && (!worlds[i]->dead[1] || worlds[i]->slot_cleared[1]);
    verdict.leaked_pin |= at_rest(*worlds[i]) && cleared && !no_pin(*worlds[i]);
  }
  verdict.states = worlds.size();
  return verdict;
}

TEST(ProtocolModel, NoExecutionUsesWrongBytesLeaksAPinOrWaitsForEver) {
  const Verdict verdict = search(Mutant::kNone);
  EXPECT_FALSE(verdict.findings.wrong_bytes);
  EXPECT_FALSE(verdict.findings.wrong_adopted);
  EXPECT_FALSE(verdict.leaked_pin);
  EXPECT_EQ(verdict.stuck, 0u);
  EXPECT_GT(verdict.states, 100000u) << "the search must have gone somewhere";
  RecordProperty("states", static_cast<int>(verdict.states));
}

class ProtocolMutant : public ::testing::TestWithParam<Mutant> {};
TEST_P(ProtocolMutant, IsFound) { EXPECT_FALSE(search(GetParam()).fine()); }

INSTANTIATE_TEST_SUITE_P(Each, ProtocolMutant,
                         ::testing::Values(Mutant::kPinAfterCheck, Mutant::kNoLookAfterEvicting, Mutant::kCountOutsideSection, Mutant::kClearsLiveSlot,
                                           Mutant::kPinsOfDeadStay, Mutant::kAdoptsBeforeLastRead, Mutant::kAdoptsLoading,
                                           Mutant::kFreesEvictingUnseen, Mutant::kNoRingAndNoTimeout, Mutant::kNothingSentAgain,
                                           Mutant::kResidentBeforeRead, Mutant::kUnpinsBeforeLastUse));

}  // namespace
}  // namespace moestro::store::model

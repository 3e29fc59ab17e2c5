// Every interleaving of the residency protocol, with every kill; and the mistakes that it must not survive.
//
// What is shown: no thread ever uses bytes that are being overwritten or are another blob's; a successor finds whole
// what it takes for whole; and from every state, if nobody else is killed, all living threads can come to their end,
// with no pin left behind: nobody waits for a wake-up that was lost, for a fetch that died with its store, or for room
// that a dead worker's pin holds.

#include <gtest/gtest.h>

#include <vector>

#include "tests/store/protocol_model.h"

namespace moestro::store::model {
namespace {

uint64_t hash(const World& w) {
  std::array<uint64_t, (sizeof(World) + 7) / 8> words{};
  std::memcpy(words.data(), &w, sizeof w);
  uint64_t h = 0;
  for (const uint64_t word : words) h = (h ^ word) * 0x9e3779b97f4a7c15ULL, h ^= h >> 29;
  return h;
}

/// Worlds, numbered as they are met.
class Known {
 public:
  Known() : slots_(1 << 12, 0) {}
  uint32_t number(const World& w) {
    if (2 * worlds_.size() >= slots_.size()) grow();
    uint32_t& slot = find(w);
    if (slot == 0) worlds_.push_back(w), slot = static_cast<uint32_t>(worlds_.size());
    return slot - 1;
  }
  const World& operator[](size_t i) const { return worlds_[i]; }
  size_t size() const { return worlds_.size(); }

 private:
  uint32_t& find(const World& w) {
    const size_t mask = slots_.size() - 1;
    size_t at = hash(w) & mask;
    while (slots_[at] != 0 && !(worlds_[slots_[at] - 1] == w)) at = (at + 1) & mask;
    return slots_[at];
  }
  void grow() {
    slots_.assign(4 * slots_.size(), 0);
    for (uint32_t i = 0; i < worlds_.size(); ++i) find(worlds_[i]) = i + 1;
  }
  std::vector<World> worlds_;
  std::vector<uint32_t> slots_;  ///< 1 + number; 0: free
};

using Steps = std::vector<std::pair<uint32_t, uint32_t>>;  ///< from, to: without kills

struct Verdict {
  size_t states = 0, stuck = 0;
  bool leaked_pin = false;
  Findings findings;
  bool fine() const { return stuck == 0 && !leaked_pin && !findings.wrong_bytes && !findings.wrong_adopted; }
};

bool at_rest(const World& w) { return w.all_done() && w.store == kIdle && w.drive == kStill && w.late == kStill; }
bool no_pin(const World& w) { return w.pin == decltype(w.pin){}; }

/// The worlds from which an end can be reached: backwards from the ends.
std::vector<bool> can_end(const Known& known, const Steps& steps) {
  std::vector<uint32_t> first(known.size() + 1, 0), into(steps.size());
  for (const auto& [from, to] : steps) ++first[to + 1];
  for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
  std::vector<uint32_t> fill(first.begin(), first.end() - 1);
  for (const auto& [from, to] : steps) into[fill[to]++] = from;
  std::vector<bool> ends(known.size(), false);
  std::vector<uint32_t> todo;
  for (uint32_t i = 0; i < known.size(); ++i)
    if (at_rest(known[i]) && no_pin(known[i])) ends[i] = true, todo.push_back(i);
  while (!todo.empty()) {
    const uint32_t at = todo.back();
    todo.pop_back();
    for (uint32_t i = first[at]; i < first[at + 1]; ++i)
      if (!ends[into[i]]) ends[into[i]] = true, todo.push_back(into[i]);
  }
  return ends;
}

Verdict search(Scene scene, Mutant mutant) {
  Verdict verdict;
  Known known;
  Steps steps;
  known.number(World{}.normal(scene));
  for (uint32_t from = 0; from < known.size(); ++from) {
    const World world = known[from];
    for_each_step(world, scene, mutant, verdict.findings, [&](const World& next, bool is_kill) {
      const uint32_t to = known.number(next.normal(scene));
      if (!is_kill && to != from) steps.emplace_back(from, to);
    });
    if (!verdict.fine()) return verdict;  // found
  }
  const std::vector<bool> ends = can_end(known, steps);
  for (uint32_t i = 0; i < known.size(); ++i) {
    const World& w = known[i];
    verdict.stuck += !ends[i];
    const bool cleared = (!w.dead[0] || w.slot_cleared[0]) && (!w.dead[1] || w.slot_cleared[1]);
    verdict.leaked_pin |= at_rest(w) && cleared && !no_pin(w);
  }
  verdict.states = known.size();
  return verdict;
}

struct Case {
  Scene scene;
  const char* name;
};
class ProtocolModel : public ::testing::TestWithParam<Case> {};

TEST_P(ProtocolModel, NoExecutionUsesWrongBytesLeaksAPinOrWaitsForEver) {
  const Verdict verdict = search(GetParam().scene, Mutant::kNone);
  EXPECT_FALSE(verdict.findings.wrong_bytes);
  EXPECT_FALSE(verdict.findings.wrong_adopted);
  EXPECT_FALSE(verdict.leaked_pin);
  EXPECT_EQ(verdict.stuck, 0u);
  EXPECT_GT(verdict.states, 50000u) << "the search must have gone somewhere";
  std::printf("%s: %zu states\n", GetParam().name, verdict.states);
}
INSTANTIATE_TEST_SUITE_P(Scene, ProtocolModel,
                         ::testing::Values(Case{Scene::kPlain, "Plain"}, Case{Scene::kReadAhead, "ReadAhead"},
                                           Case{Scene::kScrub, "Scrub"}, Case{Scene::kDamaged, "Damaged"},
                                           Case{Scene::kAlias, "Alias"}, Case{Scene::kTwins, "Twins"},
                                           Case{Scene::kReplace, "Replace"}),
                         [](const auto& c) { return c.param.name; });

class ProtocolMutant : public ::testing::TestWithParam<std::pair<Scene, Mutant>> {};
TEST_P(ProtocolMutant, IsFound) { EXPECT_FALSE(search(GetParam().first, GetParam().second).fine()); }

constexpr auto plain = [](Mutant mutant) { return std::pair(Scene::kPlain, mutant); };
INSTANTIATE_TEST_SUITE_P(
    Each, ProtocolMutant,
    ::testing::Values(
        plain(Mutant::kPinAfterCheck), plain(Mutant::kNoLookAfterEvicting), plain(Mutant::kCountOutsideSection),
        plain(Mutant::kClearsLiveSlot), plain(Mutant::kAdoptsBeforeLastRead), plain(Mutant::kAdoptsLoading),
        plain(Mutant::kFreesEvictingUnseen), plain(Mutant::kNoRingAndNoTimeout), plain(Mutant::kNothingSentAgain),
        plain(Mutant::kResidentBeforeRead), plain(Mutant::kUnpinsBeforeLastUse),
        std::pair(Scene::kReadAhead, Mutant::kFreesBeforeReadEnds),
        std::pair(Scene::kReadAhead, Mutant::kLeftOffIsResident),
        std::pair(Scene::kScrub, Mutant::kNoLookAfterEvicting), std::pair(Scene::kScrub, Mutant::kWrongStaysResident),
        std::pair(Scene::kScrub, Mutant::kNotesWrongFirst), std::pair(Scene::kScrub, Mutant::kCountsAfterLook),
        std::pair(Scene::kScrub, Mutant::kNeverAsksTheCount), std::pair(Scene::kDamaged, Mutant::kFreesUnderLease),
        std::pair(Scene::kDamaged, Mutant::kForgetsKeptPlace), std::pair(Scene::kAlias, Mutant::kFollowsWithoutPin),
        std::pair(Scene::kAlias, Mutant::kAliasStaysPinned), std::pair(Scene::kTwins, Mutant::kAliasStaysPinned),
        std::pair(Scene::kAlias, Mutant::kHandsOverAndFrees), std::pair(Scene::kReplace, Mutant::kReplacesUnderWorkers),
        std::pair(Scene::kReplace, Mutant::kReplacesResident), std::pair(Scene::kReplace, Mutant::kPinsOfDeadStay)));

}  // namespace
}  // namespace moestro::store::model

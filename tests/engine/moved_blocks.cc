#include "tests/engine/moved_blocks.h"

#include <random>

#include "common/check.h"

namespace moestro::engine::testing {
namespace {

constexpr uint64_t kIds[] = {1, 2, 3};
constexpr size_t kPromptTokens[] = {34, 23, 39};
constexpr uint64_t kAway = 3;       ///< is moved out as a whole after kGoesAt steps, and comes back after kComesAt
constexpr int kGoesAt = 2, kComesAt = 5, kSteps = 8;
constexpr uint32_t kHopsBegin = 0, kAwayBegin = 3;  ///< which blocks in host memory are for what

std::vector<TokenId> prompt_of(const Fixture& fixture, size_t index) {
  const auto ids = fixture.prompts("f32").at(2).ids;
  std::vector<TokenId> prompt;
  for (size_t i = 0; i < kPromptTokens[index]; ++i) prompt.push_back(ids[(i * (index + 1) + index) % ids.size()]);
  return prompt;
}

/// Out to one of a few blocks, and back to any that is free: so these are written anew in one plan while they are still
/// to be read.
void hop(Bench& bench, std::mt19937_64& random, bool away) {
  const uint64_t id = kIds[random() % (away ? 2 : 3)];
  const size_t entry = random() % bench.table(id).size();
  const auto through = static_cast<uint32_t>(kHopsBegin + random() % (kAwayBegin - kHopsBegin));
  bench.move_out(id, entry, through);
  bench.bring_back(id, entry, through, random());
}

}  // namespace

std::vector<std::pair<TokenId, float>> decode_with_moves(Bench& bench, const Fixture& fixture, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::pair<TokenId, float>> said;
  std::map<uint64_t, std::vector<TokenId>> next;
  for (size_t i = 0; i < std::size(kIds); ++i) next[kIds[i]] = prompt_of(fixture, i);
  for (int step = 0; step < kSteps; ++step) {
    const bool away = step >= kGoesAt && step < kComesAt;
    const size_t entries = step > 0 ? bench.table(kAway).size() : 0;
    MOESTRO_CHECK(entries <= kHostBlocksOfMoves - kAwayBegin, "all of the sequence has room in host memory");
    for (uint32_t k = 0; k < entries && seed != 0 && step == kGoesAt; ++k) bench.move_out(kAway, k, kAwayBegin + k);
    for (uint64_t hops = seed != 0 && step > 0 ? random() % 6 : 0; hops > 0; --hops) hop(bench, random, away);
    for (uint32_t k = 0; k < entries && seed != 0 && step == kComesAt; ++k)
      bench.bring_back(kAway, k, kAwayBegin + k, random());
    std::vector<uint64_t> there;
    for (const uint64_t id : kIds) {
      if (away && id == kAway) continue;
      PlanSequence& s = bench.add(id, next[id]);
      s.sample = true;
      s.sampling.logprobs = 0;
      there.push_back(id);
    }
    const auto outcome = bench.run();
    MOESTRO_CHECK(outcome.is_ok(), outcome.status().message());
    for (size_t i = 0; i < there.size(); ++i) {
      const SequenceOutcome& s = outcome->sequences[i];
      MOESTRO_CHECK(s.status.is_ok(), s.status.message());
      said.emplace_back(s.sampled.at(0).id, s.sampled.at(0).score.logprob);
      next[there[i]] = {s.sampled.at(0).id};
    }
  }
  for (const uint64_t id : kIds) bench.release(id);
  return said;
}

}  // namespace moestro::engine::testing

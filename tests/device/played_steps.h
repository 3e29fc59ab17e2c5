#pragma once
// Steps of several sequences, and all that an engine says in them, to compare bit by bit.

#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>
#include <vector>

#include "tests/engine/engine_bench.h"

namespace moestro::device::testing {

constexpr int64_t kContext = 96;

/// A model of four layers, some of which have experts.
inline const engine::testing::Fixture& deep_fixture() {
  static const engine::testing::Fixture found = [] {
    for (const engine::testing::Fixture& fixture : engine::testing::fixtures())
      if (fixture.name == "ernie4_5_moe_interval") return fixture;
    return engine::testing::any_fixture();
  }();
  return found;
}

struct Said {
  std::vector<uint32_t> scores;
  std::vector<TokenId> sampled;
  friend bool operator==(const Said&, const Said&) = default;
};

/// Prompts in chunks and single tokens of some sequences, some of which end while others begin. Half of the steps only
/// decode.
inline Said play(engine::testing::Bench& bench, uint32_t seed, int steps = 14) {
  std::mt19937 random(seed);
  const auto vocab = static_cast<uint32_t>(bench.engine().spec().vocab);
  std::vector<uint64_t> ids{1, 2, 3, 4, 5, 6, 7};
  std::map<uint64_t, int64_t> lengths;
  uint64_t next = 8;
  Said said;
  for (int step = 0; step < steps; ++step) {
    for (uint64_t& id : ids) {
      if (random() % 4 == 0) continue;
      std::vector<TokenId> tokens(step % 2 == 0 && random() % 3 == 0 ? 1 + random() % 20 : 1);
      if (lengths[id] + std::ssize(tokens) > kContext || random() % 9 == 0) {
        if (lengths[id] > 0) bench.release(id);
        id = next++;
      }
      lengths[id] += std::ssize(tokens);
      for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
      engine::PlanSequence& s = bench.add(id, tokens);
      s.sample = true;
      for (size_t i = 0; i < tokens.size(); ++i) s.score_targets.push_back(static_cast<TokenId>(random() % vocab));
    }
    if (bench.plan().sequences.empty()) continue;
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    if (!outcome.is_ok()) return said;
    for (const engine::SequenceOutcome& s : outcome->sequences) {
      EXPECT_TRUE(s.status.is_ok()) << s.status.message();
      for (const TokenScore& score : s.scores) said.scores.push_back(std::bit_cast<uint32_t>(score.logprob));
      for (const engine::SampledToken& token : s.sampled) said.sampled.push_back(token.id);
    }
  }
  return said;
}
/// For tests that play once for each kind of layer or cache.
inline Said play_few(engine::testing::Bench& bench, uint32_t seed) { return play(bench, seed, 8); }

}  // namespace moestro::device::testing

#pragma once
// Large steps, and small ones that overtake them between their layers.

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing::overtaking {

inline constexpr uint64_t kFirstOvertaking = 500;

/// What a few steps say.
struct Said {
  std::vector<uint32_t> scores;  ///< bits of log-probabilities
  std::vector<TokenId> sampled;
  std::vector<std::string> errors;
  std::vector<uint64_t> counts;  ///< of activations
  uint64_t dropped = 0;
  friend bool operator==(const Said&, const Said&) = default;

  void note(const StepOutcome& outcome) {
    dropped += outcome.dropped_rows;
    for (const SequenceOutcome& s : outcome.sequences) {
      errors.push_back(s.status.message());
      for (const TokenScore& score : s.scores) scores.push_back(std::bit_cast<uint32_t>(score.logprob));
      for (const SampledToken& token : s.sampled) sampled.push_back(token.id);
      for (const auto& c : s.activations) counts.push_back((c.layer.value * 1000 + c.expert.value) * 1000 + c.tokens);
    }
  }
};

/// Adds prompts' chunks and single tokens of up to `sequences` sequences to a plan.
inline void add_some(Bench& bench, std::mt19937& random, uint64_t first, uint64_t sequences, size_t tokens_max) {
  const auto vocab = static_cast<uint32_t>(bench.engine().spec().vocab);
  for (uint64_t id = first; id < first + sequences; ++id) {
    if (id > first && random() % 4 == 0) continue;
    std::vector<TokenId> tokens(random() % 2 == 0 ? 1 : 1 + random() % tokens_max);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
    PlanSequence& s = bench.add(id, tokens);
    s.sample = true;
    for (size_t i = 0; i < tokens.size(); ++i) s.score_targets.push_back(static_cast<TokenId>(random() % vocab));
  }
}

inline void add_large(Bench& bench, std::mt19937& random) { add_some(bench, random, 1, 6, 12); }
inline void add_small(Bench& bench, std::mt19937& random) { add_some(bench, random, kFirstOvertaking, 2, 5); }

/// Runs a small step at every break.
class Overtaker final : public lanes::Breaks {
 public:
  Overtaker(Bench& bench, uint32_t seed) : bench_(bench), random_(seed) { bench.engine().set_breaks(this); }
  ~Overtaker() override { bench_.engine().set_breaks(nullptr); }
  bool wanted() override { return on; }
  void take() override {
    if (before) before();
    add_small(bench_, random_);
    StepOutcome outcome;
    ++taken;
    const Status ran = bench_.overtake(outcome);
    EXPECT_TRUE(ran.is_ok() || may_fail) << ran.message();
    if (ran.is_ok()) said.note(outcome);
    else ++failed;
    if (after) after();
  }
  bool on = true, may_fail = false;
  int taken = 0, failed = 0;
  std::function<void()> before, after;
  Said said;

 private:
  Bench& bench_;
  std::mt19937 random_;
};

inline Said play(Bench& bench, uint32_t seed, bool small, int steps) {
  std::mt19937 random(seed);
  Said said;
  for (int step = 0; step < steps; ++step) {
    small ? add_small(bench, random) : add_large(bench, random);
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok()) << outcome.status().message();
    if (outcome.is_ok()) said.note(*outcome);
  }
  return said;
}

}  // namespace moestro::engine::testing::overtaking

#include "services/worker/engine/logit_adjustment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "services/worker/engine/sampler.h"

namespace moestro::engine {
namespace {

constexpr int64_t kVocab = 70;  // its mask ends inside a word

/// The slow reference: looks through all tokens for every logit.
std::vector<float> adjusted_slowly(const std::vector<float>& logits, const PlanSequence& s,
                                   const std::vector<TokenId>& tokens, size_t prompt) {
  std::vector<float> out = logits;
  for (TokenId id = 0; id < kVocab; ++id) {
    const auto times = [&](size_t from) {
      return std::count(tokens.begin() + static_cast<std::ptrdiff_t>(from), tokens.end(), id);
    };
    float& x = out[static_cast<size_t>(id)];
    if (times(0) > 0) x = x > 0 ? x / s.sampling.repetition_penalty : x * s.sampling.repetition_penalty;
    if (times(prompt) > 0)
      x -= s.sampling.presence_penalty + s.sampling.frequency_penalty * static_cast<float>(times(prompt));
    for (const LogitBias& b : s.bias)
      if (b.id == id) x += b.bias;
    if (!s.allowed.empty() && (s.allowed[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) x = -INFINITY;
  }
  return out;
}

PlanSequence random_sequence(std::mt19937& random) {
  const auto in = [&](float a, float b) { return std::uniform_real_distribution<float>(a, b)(random); };
  PlanSequence s;
  Sampling& p = s.sampling;
  p = {.temperature = in(0, 1) < 0.3f ? 0.0f : in(0.2f, 2), .top_p = in(0.5f, 1), .seed = random()};
  if (in(0, 1) < 0.7f) p.repetition_penalty = in(0.5f, 2);
  if (in(0, 1) < 0.7f) p.presence_penalty = in(-2, 2);
  if (in(0, 1) < 0.7f) p.frequency_penalty = in(-2, 2);
  for (int i = 0; i < 3; ++i) s.bias.push_back({static_cast<TokenId>(random() % kVocab), in(-100, 100)});
  if (in(0, 1) < 0.5f) {
    s.allowed.assign(3, 0);
    for (int i = 0; i < 9; ++i) {
      const auto id = random() % kVocab;
      s.allowed[id / 32] |= 1u << (id % 32);
    }
  }
  return s;
}

TEST(LogitAdjustment, EqualsTheSlowReferenceStepByStep) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    const PlanSequence s = random_sequence(random);
    ASSERT_TRUE(check_adjustment("s", s, kVocab).is_ok());
    std::vector<TokenId> tokens(1 + random() % 20);
    for (TokenId& t : tokens) t = static_cast<TokenId>(random() % kVocab);
    const size_t prompt = tokens.size();
    TokenHistory history;
    history.update(0, tokens, static_cast<int64_t>(prompt));
    const auto ops = kernels::make_reference_ops();
    Sampler sampler(*ops);
    for (int step = 0; step < 30; ++step) {
      std::vector<float> logits(kVocab);
      for (float& x : logits) x = std::normal_distribution<float>(0, 3)(random);
      const std::vector<float> expected = adjusted_slowly(logits, s, tokens, prompt);
      std::vector<float> got = logits;
      adjust_logits(got, s, history);
      ASSERT_EQ(got, expected) << "round " << round << ", step " << step;
      const TokenId token = sampler.sample(got, s.sampling, step);
      ASSERT_EQ(token, sampler.sample(expected, s.sampling, step));
      if (!s.allowed.empty()) {
        ASSERT_TRUE(s.allowed[static_cast<size_t>(token) / 32] >> (token % 32) & 1) << "a token that is not allowed";
      }
      if (random() % 5 == 0) {  // another worker: all of it at once
        tokens.push_back(token);
        history.update(0, tokens, static_cast<int64_t>(prompt));
      } else {
        history.update(static_cast<int64_t>(tokens.size()), std::vector<TokenId>{token}, static_cast<int64_t>(prompt));
        tokens.push_back(token);
      }
      ASSERT_EQ(history.length(), static_cast<int64_t>(tokens.size()));
    }
  }
}

TEST(LogitAdjustment, OneAllowedTokenIsDrawnWhateverItsLogit) {
  PlanSequence s;
  s.sampling = {.temperature = 1, .top_k = 5, .seed = 1};
  s.allowed = {0, 1u << 3, 0};
  std::vector<float> logits(kVocab, 50.0f);
  logits[35] = -1000;
  adjust_logits(logits, s, {});
  const auto ops = kernels::make_reference_ops();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Sampler(*ops).sample(logits, s.sampling, i), 35);
}

TEST(LogitAdjustment, RefusesWhatMakesNoSense) {
  const auto refused = [](const Sampling& sampling, const char* word, std::vector<LogitBias> bias = {},
                          TokenMask allowed = {}) {
    PlanSequence s;
    s.sampling = sampling;
    s.bias = std::move(bias);
    s.allowed = std::move(allowed);
    const Status status = check_adjustment("s", s, kVocab);
    return !status.is_ok() && status.message().find(word) != std::string::npos;
  };
  EXPECT_TRUE(refused({.repetition_penalty = 0}, "repetition_penalty"));
  EXPECT_TRUE(refused({.repetition_penalty = NAN}, "repetition_penalty"));
  EXPECT_TRUE(refused({.presence_penalty = INFINITY}, "presence_penalty"));
  EXPECT_TRUE(refused({.frequency_penalty = NAN}, "frequency_penalty"));
  EXPECT_TRUE(refused({}, "logit_bias", {{kVocab, 1}}));
  EXPECT_TRUE(refused({}, "logit_bias", {{-1, 1}}));
  EXPECT_TRUE(refused({}, "logit_bias", {{1, NAN}}));
  EXPECT_TRUE(refused({}, "mask", {}, {1, 1}));
  EXPECT_TRUE(refused({}, "no token", {}, {0, 0, 0}));
  EXPECT_TRUE(refused({}, "beyond", {}, {1, 0, 1u << 6}));
}

}  // namespace
}  // namespace moestro::engine

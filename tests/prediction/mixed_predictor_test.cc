#include "common/prediction/mixed_predictor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "common/prediction/make_predictor.h"
#include "tests/prediction/observed_predictor.h"
#include "tests/prediction/walk.h"

namespace moestro::prediction {
namespace {

constexpr PredictorShape kMixedShape{6, 8, 2};

/// Tokens that half repeat what the token before chose, half draw from the request's domain.
class Source {
 public:
  explicit Source(uint64_t seed) : random_(seed) {}
  Token next(uint32_t domain) {
    Token token(static_cast<size_t>(kMixedShape.layers));
    for (size_t layer = 0; layer < token.size(); ++layer) {
      if (!last_.empty() && random_() % 2 == 0) {
        token[layer] = last_[layer];
        continue;
      }
      const auto first = static_cast<uint32_t>((domain * 2 + layer) % 8);
      const uint32_t other = static_cast<uint32_t>((first + 1 + random_() % 3) % 8);
      token[layer] = {std::min(first, other), std::max(first, other)};
    }
    last_ = token;
    return token;
  }
  void forget() { last_.clear(); }

 private:
  std::mt19937_64 random_;
  Token last_;
};

PredictionScore judge(const std::string& name, uint64_t sequences_at_once = 1) {
  auto made = make_predictor(name, {.shape = kMixedShape});
  EXPECT_TRUE(made.is_ok());
  ObservedPredictor observed(kMixedShape, std::move(*made));
  std::vector<Source> sources;
  for (uint64_t i = 0; i < sequences_at_once; ++i) sources.emplace_back(5 + i);
  for (uint64_t request = 0; request < 40; ++request) {
    if (request == 20) {
      observed.reset_scores();
      observed.set_learning(false);
    }
    for (int token = 0; token < 25; ++token) {
      std::vector<std::pair<uint64_t, Token>> tokens;
      for (uint64_t i = 0; i < sequences_at_once; ++i)
        tokens.emplace_back(request * 100 + i, sources[i].next(static_cast<uint32_t>(request * 3 + i)));
      decode(observed, kMixedShape, tokens);
    }
    for (uint64_t i = 0; i < sequences_at_once; ++i) observed.end_sequence(request * 100 + i), sources[i].forget();
  }
  return observed.total();
}

TEST(MixedPredictor, IsCalibratedAndBetterThanItsParts) {
  const PredictionScore mixed = judge("auto"), request = judge("request"), popularity = judge("popularity");
  EXPECT_LT(mixed.calibration_error(), 0.03);
  EXPECT_GT(mixed.precision(), 0.6);
  EXPECT_GT(mixed.recall(), request.recall());
  EXPECT_GT(mixed.recall(), popularity.recall() + 0.2);
}

TEST(MixedPredictor, IsCalibratedForBatchesToo) {
  EXPECT_LT(judge("auto", 3).calibration_error(), 0.04);
  EXPECT_LT(judge("request+recent", 6).calibration_error(), 0.04);
}

TEST(MixedPredictor, ForecastsAreProbabilitiesFromTheFirstTokenOn) {
  auto made = make_predictor("auto", {.shape = kMixedShape});
  ASSERT_TRUE(made.is_ok());
  Source source(3);
  for (uint64_t request = 0; request < 5; ++request)
    for (int token = 0; token < 5; ++token)
      decode(**made, kMixedShape, {{request, source.next(1)}, {100 + request, source.next(4)}},
             [](int32_t, const Forecast& f) {
               for (int32_t layer = 0; layer < kMixedShape.layers; ++layer)
                 for (const float p : f.row(layer)) EXPECT_TRUE(p >= 0 && p <= 1);
             });
}

TEST(MixedPredictor, AChangeOfDomainIsLearnedWithinFifteenRequests) {
  auto made = make_predictor("auto", {.shape = kMixedShape});
  ASSERT_TRUE(made.is_ok());
  ObservedPredictor observed(kMixedShape, std::move(*made));
  Source source(11);
  std::vector<double> recall;
  for (uint64_t request = 0; request < 80; ++request) {
    observed.reset_scores();
    for (int token = 0; token < 20; ++token)
      decode(observed, kMixedShape, {{request, source.next(request < 40 ? 0 : 2)}});
    observed.end_sequence(request);
    source.forget();
    recall.push_back(observed.total().recall());
  }
  const auto mean = [&](size_t first, size_t last) {
    double sum = 0;
    for (size_t i = first; i < last; ++i) sum += recall[i];
    return sum / static_cast<double>(last - first);
  };
  size_t needed = 0;  // until the mean of ten is back
  while (needed < 30 && mean(40 + needed, 50 + needed) < 0.95 * mean(60, 80)) ++needed;
  EXPECT_LE(needed, 15U);
  EXPECT_GT(mean(60, 80), 0.5);
}

TEST(MixedPredictor, AGateThatIsRightIsBelieved) {
  auto made = make_predictor("request+gate", {.shape = kMixedShape});
  ASSERT_TRUE(made.is_ok());
  EXPECT_EQ((*made)->gate_lookahead(), 2);
  ObservedPredictor observed(kMixedShape, std::move(*made));
  Source source(7);
  Forecast forecast(kMixedShape.layers, kMixedShape.experts);
  for (int i = 0; i < 300; ++i) {
    if (i == 200) observed.reset_scores();
    const Token token = source.next(2);
    observed.begin_iteration(std::vector<IterationSequence>{{1, true, 1}});
    for (int32_t layer = 0; layer < kMixedShape.layers; ++layer) {
      const auto counts = counts_of(layer, token[static_cast<size_t>(layer)]);
      observed.routed(layer, std::vector<SequenceRoutes>{{1, counts}});
      if (layer + 1 < kMixedShape.layers) {
        std::vector<float> guess(8, 0.15F);
        for (const uint32_t e : token[static_cast<size_t>(layer) + 1]) guess[e] = 0.85F;
        observed.guessed(layer, std::vector<GateGuess>{{layer + 1, guess}});
      }
      observed.forecast(layer, forecast);
    }
    observed.end_iteration();
  }
  // What comes after the last layer is the next token's: no router can be asked for it.
  for (int32_t layer = 1; layer < kMixedShape.layers; ++layer) {
    EXPECT_GT(observed.score(layer).precision(), 0.98) << layer;
    EXPECT_GT(observed.score(layer).recall(), 0.98) << layer;
  }
}

TEST(Logistic, FindsTheWeightsThatMadeTheExamples) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> draw;
  std::uniform_real_distribution<double> coin;
  Logistic logistic(3, {}, 1);
  const double truth[] = {1.5, -0.7, 0.3};
  for (int step = 0; step < 4000; ++step) {
    for (int i = 0; i < 5; ++i) {
      const float x[] = {draw(random), draw(random), 1};
      double z = 0, true_z = 0;
      for (size_t f = 0; f < 3; ++f)
        z += logistic.weights()[f] * static_cast<double>(x[f]), true_z += truth[f] * static_cast<double>(x[f]);
      logistic.note(x, 1 / (1 + std::exp(-z)), coin(random) < 1 / (1 + std::exp(-true_z)));
    }
    logistic.step(0.9999);
  }
  for (size_t f = 0; f < 3; ++f) EXPECT_NEAR(logistic.weights()[f], truth[f], 0.15);
  EXPECT_EQ(logistic.examples(), 20000U);
}

TEST(ObservedPredictor, PrecisionRecallAndLeadOfARuleThatIsKnown) {
  ObservedPredictor observed({2, 4, 2}, [] {
    auto made = make_predictor("next-layer-all", {.shape = {2, 4, 2}});
    return std::move(*made);
  }());
  for (int i = 0; i < 10; ++i) decode(observed, {2, 4, 2}, {{1, {{0, 1}, {0, 1}}}});
  const PredictionScore score = observed.total();
  EXPECT_EQ(score.used, 40U);
  EXPECT_EQ(score.predicted, 80U);  // all four of either layer
  EXPECT_DOUBLE_EQ(score.precision(), 0.5);
  EXPECT_DOUBLE_EQ(score.recall(), 1);
  EXPECT_DOUBLE_EQ(score.mean_lead_layers(), 1);
  EXPECT_NEAR(score.calibration_error(), 0.5, 1e-9);
  EXPECT_EQ(observed.score(0).used, 20U);
}

}  // namespace
}  // namespace moestro::prediction

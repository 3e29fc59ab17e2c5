#pragma once
// How often the tokens of all requests use each expert: model-level tracing.

#include "common/activation/activation_matrix.h"
#include "common/activation/eamc_view.h"
#include "common/prediction/row_predictor.h"

namespace moestro::prediction {

/// Counts of (token, expert) pairs, and from them the probability that one token uses an expert.
class UsageTable {
 public:
  UsageTable(const PredictorShape& shape, float prior_tokens)
      : shape_(shape),
        prior_tokens_(prior_tokens),
        used_(static_cast<size_t>(shape.layers) * static_cast<size_t>(shape.experts)),
        tokens_(static_cast<size_t>(shape.layers)) {}

  /// Adds what `tokens` tokens have chosen at `layer`.
  void add(int32_t layer, std::span<const activation::ActivationCount> counts, int32_t tokens);
  float tokens(int32_t layer) const { return tokens_[static_cast<size_t>(layer)]; }
  /// If nothing has been counted: what past requests used, if lean_on() was called, otherwise top_k of all experts,
  /// evenly.
  float probability(int32_t layer, int32_t expert) const {
    const size_t at = static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts) + static_cast<size_t>(expert);
    const float expected =
        expected_.empty() ? static_cast<float>(shape_.top_k) / static_cast<float>(shape_.experts) : expected_[at];
    return std::min(1.0F,
                    (used_[at] + prior_tokens_ * expected) / (tokens_[static_cast<size_t>(layer)] + prior_tokens_));
  }
  /// Uses the mean of a collection as the expectation before anything is counted. It is computed again each time the
  /// collection has doubled.
  void lean_on(const activation::EamcView& past);

 private:
  PredictorShape shape_;
  float prior_tokens_;  ///< the expectation counts as this many tokens
  int32_t leant_on_ = 0;
  std::vector<float> used_, tokens_, expected_;  ///< expected_: empty: the even share
};

class PopularityPredictor final : public RowPredictor {
 public:
  explicit PopularityPredictor(const PredictorShape& shape) : RowPredictor(shape), usage_(shape, 4) {}
  std::string_view name() const override { return "popularity"; }
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  bool row(int32_t layer, int32_t target, std::span<float> out) override;

 private:
  UsageTable usage_;
};

}  // namespace moestro::prediction

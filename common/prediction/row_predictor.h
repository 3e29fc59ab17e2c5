#pragma once
// A predictor that predicts each layer's next pass separately. Most predictors are of this kind, and mixtures consist
// of them.

#include <cmath>
#include <vector>

#include "common/prediction/predictor.h"

namespace moestro::prediction {

class RowPredictor : public Predictor {
 public:
  explicit RowPredictor(const PredictorShape& shape) : shape_(shape) {}

  /// Overwrites `out` ([experts]) with the probabilities that the next pass of `target` uses each expert, seen from
  /// `layer` (-1: before the first). False if nothing is known; `out` is then unchanged.
  virtual bool row(int32_t layer, int32_t target, std::span<float> out) = 0;

  void begin_iteration(std::span<const IterationSequence> sequences) override {
    active_.assign(sequences.begin(), sequences.end());
  }
  void routed(int32_t, std::span<const SequenceRoutes>) override {}
  void forecast(int32_t layer, Forecast& out) override;
  void end_iteration() override {}
  void end_sequence(uint64_t) override {}
  void set_learning(bool on) override { learning_ = on; }

 protected:
  const PredictorShape shape_;
  bool learning_ = true;
  std::vector<IterationSequence> active_;  ///< of the current iteration

  size_t cell(int32_t layer, int32_t expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(shape_.experts) + static_cast<size_t>(expert);
  }
  size_t cells() const { return static_cast<size_t>(shape_.layers) * static_cast<size_t>(shape_.experts); }
  /// Tokens of `sequence` in the next pass of `target`: in the iteration after this one every sequence has one.
  static int32_t tokens_at(const IterationSequence& sequence, int32_t layer, int32_t target) {
    return target > layer ? std::max(sequence.tokens, 1) : 1;
  }
};

/// P(at least one of many tokens uses an expert) = 1 - prod(1 - p), token after token.
class AnyToken {
 public:
  explicit AnyToken(std::span<float> out) : out_(out) { std::fill(out_.begin(), out_.end(), 1.0F); }
  /// `tokens` tokens that each use the expert with probability `p`.
  void add(size_t expert, float p, int32_t tokens) {
    const float unused = 1 - std::min(std::max(p, 0.0F), 1.0F);
    out_[expert] *= tokens == 1 ? unused : std::pow(unused, static_cast<float>(tokens));
  }
  void finish() {
    for (float& unused : out_) unused = 1 - unused;
  }

 private:
  std::span<float> out_;  ///< probability that no token uses the expert
};

}  // namespace moestro::prediction

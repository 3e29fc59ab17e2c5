#pragma once
// The baselines that learn nothing.

#include "common/prediction/row_predictor.h"

namespace moestro::prediction {

/// Predicts nothing, so experts are fetched on demand.
class NoPredictor final : public RowPredictor {
 public:
  using RowPredictor::RowPredictor;
  std::string_view name() const override { return "none"; }
  bool row(int32_t, int32_t, std::span<float>) override { return false; }
};

/// Predicts every expert of the next layer, as a prefetcher that only follows the model's dependencies.
class NextLayerPredictor final : public RowPredictor {
 public:
  using RowPredictor::RowPredictor;
  std::string_view name() const override { return "next-layer-all"; }
  bool row(int32_t layer, int32_t target, std::span<float> out) override {
    if (target != (layer + 1) % shape_.layers) return false;
    std::fill(out.begin(), out.end(), 1.0F);
    return true;
  }
};

/// Uses the engine's look-ahead: the next routers' choices for this layer's input (HOBBIT). The newest answer counts.
class GatePredictor final : public RowPredictor {
 public:
  GatePredictor(const PredictorShape& shape, int32_t lookahead)
      : RowPredictor(shape), lookahead_(lookahead), guesses_(cells()), known_(static_cast<size_t>(shape.layers)) {}
  std::string_view name() const override { return "gate"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  int32_t gate_lookahead() const override { return lookahead_; }
  void guessed(int32_t layer, std::span<const GateGuess> guesses) override;
  bool row(int32_t layer, int32_t target, std::span<float> out) override;

 private:
  const int32_t lookahead_;
  std::vector<float> guesses_;
  std::vector<uint8_t> known_;  ///< by layer: asked for in this iteration
};

}  // namespace moestro::prediction

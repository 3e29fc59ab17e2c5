#pragma once
// What a sequence itself has used: over its whole life, and recently.

#include "common/activation/eamc_view.h"
#include "common/prediction/popularity.h"
#include "common/prediction/row_predictor.h"
#include "common/prediction/sequence_states.h"

namespace moestro::prediction {

/// The sequence's own counts, of its prompt and of its answer, with what all sequences use as a prior.
class RequestPredictor final : public RowPredictor {
 public:
  /// `history` may be null; see PredictorOptions.
  RequestPredictor(const PredictorShape& shape, const activation::HistoryView* history)
      : RowPredictor(shape), history_(history), everyone_(shape, 16) {}
  std::string_view name() const override { return "request"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  struct State {
    UsageTable prompt, answer;
  };
  float probability(const State& state, int32_t target, int32_t expert, float everyone) const;

  const activation::HistoryView* const history_;
  UsageTable everyone_;
  SequenceStates<State> states_;
};

/// Looks at which of a sequence's last tokens used the expert, and counts how often that pattern was followed by a use.
/// So it is calibrated.
class RecentPredictor final : public RowPredictor {
 public:
  explicit RecentPredictor(const PredictorShape& shape);
  std::string_view name() const override { return "recent"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  static constexpr uint32_t kTokens = 4, kPatterns = 1U << kTokens;
  struct State {
    std::vector<uint8_t> used;  ///< by cell: one bit a token, the last one lowest
    std::vector<uint8_t> seen;  ///< by layer: tokens of the answer so far, at most kTokens
  };
  struct Count {
    float used = 0, seen = 0;
  };
  /// The counts of all layers are the prior for a pattern's count at one layer.
  float probability(int32_t layer, uint32_t pattern) const;
  void learn(int32_t layer, const State& state, std::span<const activation::ActivationCount> counts);

  std::vector<Count> by_layer_;  ///< [layer][pattern]
  std::vector<Count> overall_;   ///< [pattern]
  std::vector<uint8_t> chosen_;  ///< scratch: [experts]
  SequenceStates<State> states_;
};

}  // namespace moestro::prediction

#pragma once
// Predicts what the sequence itself did when it last made exactly the same choices at the last layers. Text repeats
// words and phrases, and their tokens use the same experts again. Only the sequence's own past counts: nothing is
// learned across requests.

#include "common/prediction/row_predictor.h"
#include "common/prediction/sequence_states.h"

namespace moestro::prediction {

class EchoPredictor final : public RowPredictor {
 public:
  static constexpr int32_t kExpertsMax = 32;  ///< with more, the same choices hardly ever repeat

  explicit EchoPredictor(const PredictorShape& shape) : RowPredictor(shape) {}
  std::string_view name() const override { return "echo"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  /// Only for the current iteration, and if all sequences have such a token.
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_iteration() override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  static constexpr size_t kTokens = 256;  ///< of a sequence that are remembered
  struct State {
    std::vector<uint32_t> sets;  ///< [token][layer]: its experts, one bit each; 0: not known
    size_t tokens = 0;           ///< complete tokens so far; the current one follows them
    size_t looked_up = SIZE_MAX; ///< token and layer that `found` belongs to; it is looked up once for each layer ahead
    const uint32_t* found = nullptr;
  };
  uint32_t* token(State& state, size_t number) const {
    return state.sets.data() + number % kTokens * static_cast<size_t>(shape_.layers);
  }
  /// The sets of the last token that made the same choices up to `layer`; null: there is none.
  const uint32_t* find(State& state, int32_t layer) const;
  const uint32_t* search(State& state, int32_t layer) const;

  SequenceStates<State> states_;
};

}  // namespace moestro::prediction

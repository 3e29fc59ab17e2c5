#pragma once
// Predicts what earlier tokens chose next if they had exactly the same choices at the last layers. With few experts per
// layer, the choices of two layers nearly identify the token. So this predictor remembers single words, where
// correlation only adds up what experts have in common.

#include "common/prediction/popularity.h"
#include "common/prediction/row_predictor.h"
#include "common/prediction/sequence_states.h"

namespace moestro::prediction {

class SignaturePredictor final : public RowPredictor {
 public:
  static constexpr int32_t kExpertsMax = 32;  ///< with more, the same choices hardly ever repeat

  /// `depth`: layers whose choices are looked up together.
  explicit SignaturePredictor(const PredictorShape& shape, int32_t depth = 2);
  std::string_view name() const override { return name_; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  static constexpr int32_t kReach = 4;  ///< layers ahead
  struct State {
    std::vector<uint64_t> chosen;  ///< by layer: a hash of the experts of its newest pass; 0: not known
  };
  /// The place of the signature at `layer` for `target`, `distance` layers later. nullopt: there is none, or another
  /// signature is stored there.
  struct Place {
    uint32_t tag = 0;
    size_t row = 0;
  };
  int32_t before(int32_t layer, int32_t by) const {
    return ((layer - by) % shape_.layers + shape_.layers) % shape_.layers;
  }
  bool place(const State& state, int32_t target, int32_t distance, Place& place) const;
  void learn(const State& state, int32_t target, std::span<const activation::ActivationCount> counts);

  const std::string_view name_;
  const int32_t depth_;  ///< at most the number of layers other than the target
  size_t rows_ = 0;               ///< for each target and distance, a power of 2; 0: too many experts
  std::vector<uint32_t> tags_;    ///< [distance][target][row]
  std::vector<float> seen_;       ///< likewise: tokens
  std::vector<float> followed_;   ///< [distance][target][row][expert]
  UsageTable usage_;
  SequenceStates<State> states_;
};

}  // namespace moestro::prediction

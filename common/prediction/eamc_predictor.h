#pragma once
// Activation-matrix match (MoE-Infinity, section 5): the past requests that a sequence is most like say what comes.

#include "common/activation/eamc_matcher.h"
#include "common/activation/history.h"
#include "common/prediction/popularity.h"
#include "common/prediction/row_predictor.h"
#include "common/prediction/sequence_states.h"

namespace moestro::prediction {

struct EamcOptions {
  int32_t matches = 16;        ///< entries that are summed, the more alike the heavier
  float sharpness = 24;        ///< the power of an entry's similarity, relative to the best one's, that it is weighed by
  float request_tokens = 1;    ///< what a sequence's earlier tokens weigh at most in a match, in tokens of the iteration under way
};

class EamcPredictor final : public RowPredictor {
 public:
  /// `history` outlives this, and changes between iterations only, on this thread.
  EamcPredictor(const PredictorShape& shape, const activation::ActivationHistory& history, const EamcOptions& options);
  std::string_view name() const override { return "eamc"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  /// Nothing is known without entries, or before a sequence has routed anything.
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_iteration() override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  /// A prompt is matched with prompts for its own next layers, and with answers for the answer that it leads to.
  struct State {
    activation::EamcMatcher prompt, answer;
  };
  bool add_matches(activation::EamcMatcher& matcher, const activation::Eamc& eamc, int32_t target);

  const activation::ActivationHistory& history_;
  const EamcOptions options_;
  std::vector<float> per_token_;  ///< scratch: [experts]
  SequenceStates<State> states_;
};

}  // namespace moestro::prediction

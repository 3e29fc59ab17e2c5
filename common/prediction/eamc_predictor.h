#pragma once
// Activation-matrix match (MoE-Infinity, section 5): the past requests that a sequence resembles most predict what it
// will use.

#include <array>

#include "common/activation/eamc_matcher.h"
#include "common/activation/eamc_view.h"
#include "common/prediction/popularity.h"
#include "common/prediction/row_predictor.h"
#include "common/prediction/sequence_states.h"

namespace moestro::prediction {

struct EamcOptions {
  int32_t matches = 16;        ///< entries that are summed, weighed by similarity
  float sharpness = 24;  ///< an entry's weight is its similarity, relative to the best one's, to this power
  float request_tokens =
      1;  ///< the most that a sequence's earlier tokens weigh in a match, in tokens of the current iteration
};

class EamcPredictor final : public RowPredictor {
 public:
  /// `history` outlives this; see PredictorOptions.
  EamcPredictor(const PredictorShape& shape, const activation::HistoryView& history, const EamcOptions& options);
  std::string_view name() const override { return "eamc"; }
  void begin_iteration(std::span<const IterationSequence> sequences) override;
  void routed(int32_t layer, std::span<const SequenceRoutes> routes) override;
  /// Nothing is known without entries, or before a sequence has routed anything.
  bool row(int32_t layer, int32_t target, std::span<float> out) override;
  void end_iteration() override;
  void end_sequence(uint64_t sequence) override { states_.end(sequence); }

 private:
  /// A prompt is matched with prompts for its own next layers, and with answers for the answer that it leads to.
  struct Matches {
    activation::EamcMatcher matcher;
    bool weighed = false;
    std::array<float, activation::EamcMatcher::kMatchesMax>
        weights{};  ///< of the best entries, until the query changes
  };
  struct State {
    Matches prompt, answer;
  };
  /// Calls `act` for the matches of each sequence in this iteration: with answers always, with prompts only while the
  /// prompt lasts. The weights are computed again after it.
  template <typename Do>
  void of_each(const Do& act) {
    for (size_t i = 0; i < states_.size(); ++i) {
      states_[i].answer.weighed = states_[i].prompt.weighed = false;
      act(states_[i].answer, i);
      if (!active_[i].decode) act(states_[i].prompt, i);
    }
  }
  std::span<const activation::EamcMatch> weighed(Matches& matches);
  bool add_matches(Matches& matches, int32_t target);

  const activation::HistoryView& history_;
  const EamcOptions options_;
  std::vector<float> per_token_;  ///< scratch: [experts]
  std::vector<uint8_t> row_;      ///< scratch: likewise
  SequenceStates<State> states_;
};

}  // namespace moestro::prediction

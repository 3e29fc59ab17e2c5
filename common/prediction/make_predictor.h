#pragma once
// Predictors by name.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/activation/eamc_view.h"
#include "common/prediction/predictor.h"

namespace moestro::prediction {

struct PredictorOptions {
  PredictorShape shape;
  /// What past requests have used; null: nothing is known of any. It outlives the predictor. What lies behind it may
  /// change at any moment; another view is put in its place between iterations only, on the predictor's thread.
  const activation::HistoryView* history = nullptr;
  int32_t gate_lookahead = 2;     ///< routers that gate asks, as far as there are layers
  int32_t correlation_path = 1;   ///< layers whose choices correlation looks up together
};

/// The single ones; "+" between them makes one of several, as in eamc+gate; auto is a mixture of all that look at the
/// past and the gate.
const std::vector<std::string>& predictor_names();

/// kInvalidArgument: no such name, or an option out of range.
Result<std::unique_ptr<Predictor>> make_predictor(std::string_view name, const PredictorOptions& options);

}  // namespace moestro::prediction

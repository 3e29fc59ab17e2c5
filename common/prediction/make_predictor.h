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
  /// What past requests have used; null: unknown. It outlives the predictor. Its contents may change at any moment. The
  /// view itself is replaced only between iterations, on the predictor's thread.
  const activation::HistoryView* history = nullptr;
  int32_t gate_lookahead = 2;     ///< routers that gate asks, if there are that many layers
  int32_t correlation_path = 1;   ///< layers whose choices correlation looks up together
};

/// The single predictors. "+" joins several into one, as in eamc+gate. auto is a mixture of all that use the past, and
/// the gate.
const std::vector<std::string>& predictor_names();

/// kInvalidArgument: unknown name, or an option out of range.
Result<std::unique_ptr<Predictor>> make_predictor(std::string_view name, const PredictorOptions& options);

}  // namespace moestro::prediction

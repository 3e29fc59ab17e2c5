#pragma once
// Drives a predictor through iterations as an engine does.

#include <functional>
#include <vector>

#include "common/prediction/predictor.h"

namespace moestro::prediction {

/// Experts that a token chooses at each layer.
using Token = std::vector<std::vector<uint32_t>>;

inline std::vector<activation::ActivationCount> counts_of(int32_t layer, const std::vector<uint32_t>& experts) {
  std::vector<activation::ActivationCount> counts;
  for (const uint32_t e : experts) counts.push_back({MoeLayerId(static_cast<uint32_t>(layer)), ExpertId(e), 1});
  return counts;
}

/// One token of each sequence. `seen`: called with the layer (-1: before the first) and the forecast made there.
inline void decode(Predictor& predictor, const PredictorShape& shape,
                   const std::vector<std::pair<uint64_t, Token>>& tokens,
                   const std::function<void(int32_t, const Forecast&)>& seen = {}) {
  std::vector<IterationSequence> sequences;
  for (const auto& [id, token] : tokens) sequences.push_back({id, true, 1});
  Forecast forecast(shape.layers, shape.experts);
  predictor.begin_iteration(sequences);
  for (int32_t layer = -1; layer < shape.layers; ++layer) {
    if (layer >= 0) {
      std::vector<std::vector<activation::ActivationCount>> counts;
      std::vector<SequenceRoutes> routes;
      for (const auto& [id, token] : tokens) counts.push_back(counts_of(layer, token[static_cast<size_t>(layer)]));
      for (size_t i = 0; i < tokens.size(); ++i) routes.push_back({tokens[i].first, counts[i]});
      predictor.routed(layer, routes);
    }
    predictor.forecast(layer, forecast);
    if (seen) seen(layer, forecast);
  }
  predictor.end_iteration();
}

}  // namespace moestro::prediction

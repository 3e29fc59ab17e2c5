#pragma once
// An engine's routes as a trace in memory.

#include <algorithm>

#include "common/tier/routes.h"
#include "services/worker/engine/engine.h"

namespace moestro::device::testing {

/// Takes down what the engine's route observer was told.
inline void record(const engine::RoutedTokens& tokens, tier::Routes& routes) {
  auto request = std::find_if(routes.requests.begin(), routes.requests.end(),
                              [&](const auto& r) { return r.id == tokens.sequence.value; });
  if (request == routes.requests.end())
    request = routes.requests.insert(routes.requests.end(), {tokens.sequence.value, {}});
  for (int64_t t = 0; t < tokens.tokens; ++t) {
    request->tokens.push_back(
        {tokens.decode, static_cast<int32_t>(tokens.first_position + t), static_cast<uint32_t>(routes.choices.size())});
    for (int64_t l = 0; l < tokens.moe_layers; ++l)
      for (int64_t k = 0; k < tokens.top_k; ++k)
        routes.choices.push_back(static_cast<uint16_t>(
            tokens.ids[static_cast<size_t>(((l * tokens.step_tokens) + tokens.first_row + t) * tokens.top_k + k)]));
  }
}

}  // namespace moestro::device::testing

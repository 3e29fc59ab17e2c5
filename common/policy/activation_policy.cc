#include "common/policy/activation_policy.h"

#include <algorithm>
#include <cmath>

namespace moestro::policy {

double ActivationPolicy::layer_weight(uint32_t key) const {
  const double layer = static_cast<double>(key) / std::max(1, options_.experts);
  return std::max(1.0 - std::min(std::floor(layer), options_.layers - 1.0) / options_.layers, 1.0 / options_.layers);
}

void ActivationPolicy::apply(State& state, const Use& use, bool) const {
  const double weight = layer_weight(state.key);
  state.rank = (state.known ? state.rank : options_.beginning * weight) + use.weight * weight;
  state.tie = std::max(state.tie, use.time);
}

void ActivationPolicy::sequence_began(int32_t sequences) {
  const double kept = sequences > 1 ? (sequences - 1.0) / sequences : 0.0;
  rerank([&](const State& state) {
    const double floor = options_.beginning * layer_weight(state.key);
    return floor + (state.rank - floor) * kept;
  });
}

double ActivationPolicy::heat(uint32_t key, double) const { return has(key) ? state(key).shown : 0; }

}  // namespace moestro::policy

#include "services/cli/bench/step_cost.h"

#include <algorithm>

#include "common/model/mixer.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::cli {
namespace {

/// Weights that one token is multiplied with in a layer, whichever experts it is routed to.
double parameters_per_token(const model::ModelSpec& spec, const model::LayerSpec& layer) {
  int64_t n = model::mixer_size(spec, layer).parameters;
  if (!layer.moe_index) return static_cast<double>(n + (spec.mlp_gated ? 3 : 2) * spec.hidden * layer.dense_ffn);
  const model::MoeSpec& moe = layer.moe;
  n += moe.experts * spec.hidden;
  n += moe.top_k * moe.expert.matrices * moe.expert.hidden * moe.expert.ffn;
  n += 3 * spec.hidden * moe.shared_ffn + (moe.shared_gate ? spec.hidden : 0);
  return static_cast<double>(n);
}

/// Positions that a token at `position` attends to.
int64_t attended(const model::AttentionSpec& a, const engine::VisiblePositions& visible, int64_t position) {
  const kernels::AttentionShape shape = engine::attention_shape(a, visible);
  return shape.has_gap(position) ? shape.sinks + shape.window : position + 1;
}

}  // namespace

StepCost step_cost(const model::ModelSpec& spec, const engine::Engine::WeightTraffic& traffic,
                   std::span<const int64_t> positions, int64_t logit_rows, int64_t experts_used,
                   const engine::VisiblePositions& visible, StackStep stack) {
  const auto tokens = static_cast<double>(positions.size());
  StepCost cost;
  cost.tokens = tokens;
  cost.weight_bytes = (stack.sources ? traffic.source_bytes : traffic.layer_bytes) +
                      (logit_rows > 0 ? traffic.head_bytes : 0) + traffic.token_bytes * tokens +
                      traffic.expert_bytes * static_cast<double>(experts_used);
  cost.operations = 2.0 * static_cast<double>(logit_rows * spec.vocab * spec.hidden);
  for (const model::LayerSpec& layer : spec.layers) {
    const model::MixerSize mixer = model::mixer_size(spec, layer);
    if (stack.sources) cost.operations += 2.0 * tokens * static_cast<double>(mixer.memory_parameters);
    if (spec.is_encoder_decoder() && stack.sources != (layer.stack == model::LayerSpec::Stack::kEncoder)) continue;
    cost.operations += 2.0 * tokens * parameters_per_token(spec, layer);
    int64_t pairs = 0;
    for (const int64_t p : positions) pairs += attended(layer.attention, visible, p);
    cost.operations += static_cast<double>(pairs * mixer.pair_operations);
    cost.operations += tokens * static_cast<double>(stack.memory * mixer.memory_pair_operations);
  }
  return cost;
}

int64_t tokens_per_expert(const model::ModelSpec& spec, int64_t tokens) {
  const model::MoeSpec& moe = spec.moe();
  return std::max<int64_t>(1, (tokens * moe.top_k + moe.experts / 2) / moe.experts);
}

}  // namespace moestro::cli

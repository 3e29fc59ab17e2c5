#include "common/model/mixer.h"

#include <algorithm>

#include "common/expert_layout.h"

namespace moestro::model {
namespace {

MixerSize grouped(const AttentionSpec& a, int64_t hidden) {
  const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim, gate = a.output_gate ? q : 0;
  return {.parameters = hidden * (2 * q + 2 * kv + gate),  // q and o, k and v
          .output_width = q,
          .pair_operations = 4 * q,  // q k, and weights v
          .moved_floats = q + 3 * kv,
          .step_floats = 2 * (q + kv) + gate,
          .window = a.chunk > 0 ? a.chunk : a.sliding_window};  // of a chunk, what its last query sees
}

MixerSize latent(const LatentSpec& a, int64_t hidden) {
  const int64_t q = a.heads * (a.nope_dim + a.rope_dim), kv = a.kv_rank + a.rope_dim, out = a.heads * a.value_dim;
  const int64_t to_q = a.q_rank > 0 ? a.q_rank * (hidden + q) : hidden * q;
  return {.parameters = to_q + hidden * (kv + out) + a.heads * (a.nope_dim + a.value_dim) * a.kv_rank,
          .output_width = out,
          .pair_operations = 2 * (q + out),  // of expanded keys and values, as long prompts have them
          .moved_floats = q + 3 * kv,
          .step_floats = a.q_rank + q + kv + out};
}

MixerSize delta(const DeltaSpec& a, int64_t hidden) {
  const int64_t in = 2 * a.keys() + a.values(), state = a.values() * a.key_dim;
  return {.parameters = hidden * (in + 2 * a.values() + 2 * a.value_heads),
          .output_width = a.values(),
          .pair_operations = 0,  // a step costs the same at every position
          .moved_floats = 4 * in + 4 * a.values() + 4 * state,
          .step_floats = in + 2 * a.values() + 2 * a.value_heads};
}

constexpr int64_t kSlotsMin = 16, kSlotsMax = 1024;
constexpr int64_t kIntervalMax = 4096;

}  // namespace

MixerSize mixer_size(const ModelSpec& spec, const LayerSpec& layer) {
  if (layer.delta) return delta(*layer.delta, spec.hidden);
  if (layer.latent) return latent(*layer.latent, spec.hidden);
  MixerSize size = grouped(layer.attention, spec.hidden);
  if (!layer.cross) return size;
  const MixerSize cross = grouped(*layer.cross, spec.hidden);
  size.memory_parameters = 2 * spec.hidden * layer.cross->kv_heads * layer.cross->head_dim;
  size.parameters += cross.parameters - size.memory_parameters;
  size.memory_pair_operations = cross.pair_operations;
  size.moved_floats += spec.hidden + cross.output_width;  // a norm, and a query
  size.step_floats += cross.step_floats;
  return size;
}

int64_t state_bytes(const LayerSpec& layer) {
  if (!layer.delta) return 0;
  const DeltaSpec& a = *layer.delta;
  return (a.values() * a.key_dim + (a.conv - 1) * (2 * a.keys() + a.values())) * dtype_bytes(DType::kF32);
}

StateBudget state_budget(const ModelSpec& spec, int64_t kv_tokens, DType kv_dtype, int64_t slots) {
  int64_t state = 0, block = 0;
  for (const LayerSpec& layer : spec.layers) state += state_bytes(layer), block += kv_block_bytes(layer.kv, kv_dtype);
  if (state == 0) return {};
  StateBudget budget;
  const int64_t blocks = ceil_div(kv_tokens, kKvBlockTokens);
  budget.slots = slots > 0 ? slots : std::clamp(blocks * block / state, kSlotsMin, kSlotsMax);
  budget.interval = std::min(kIntervalMax, kKvBlockTokens * ceil_div(state, std::max<int64_t>(1, block)));
  budget.bytes = budget.slots * state;
  return budget;
}

int64_t kv_block_bytes(const KvSpec& kv, DType dtype) {
  constexpr int64_t kLine = 64;  // a block ends at a multiple of it
  if (kv.kind == KvSpec::Kind::kNone) return 0;
  const int64_t scales = dtype == DType::kInt8 ? kv.vectors() * static_cast<int64_t>(sizeof(float)) : 0;
  return round_up(kKvBlockTokens * (kv.numbers() * dtype_bytes(dtype) + scales), kLine);
}

}  // namespace moestro::model

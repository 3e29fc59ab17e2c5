#include "common/model/mixer.h"

#include "common/expert_layout.h"

namespace moestro::model {
namespace {

MixerSize grouped(const AttentionSpec& a, int64_t hidden) {
  const int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
  return {.parameters = hidden * (2 * q + 2 * kv),  // q and o, k and v
          .output_width = q,
          .pair_operations = 4 * q,  // q k, and weights v
          .moved_floats = q + 3 * kv,
          .step_floats = 2 * (q + kv),
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

}  // namespace

MixerSize mixer_size(const ModelSpec& spec, const LayerSpec& layer) {
  return layer.latent ? latent(*layer.latent, spec.hidden) : grouped(layer.attention, spec.hidden);
}

int64_t kv_block_bytes(const KvSpec& kv, DType dtype) {
  constexpr int64_t kLine = 64;  // a block ends at a multiple of it
  const int64_t scales = dtype == DType::kInt8 ? kv.vectors() * static_cast<int64_t>(sizeof(float)) : 0;
  return round_up(kKvBlockTokens * (kv.numbers() * dtype_bytes(dtype) + scales), kLine);
}

}  // namespace moestro::model

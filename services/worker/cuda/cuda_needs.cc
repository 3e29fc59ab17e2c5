#include "services/worker/cuda/cuda_needs.h"

#include <algorithm>

#include "common/model/mixer.h"
#include "services/worker/cuda/cuda_head.h"
#include "services/worker/cuda/float_bytes.h"
#include "services/worker/cuda/model_on_gpu.h"
#include "services/worker/device/cuda_slots.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::cuda {
namespace {

using kernels::cuda::CudaOps;

/// Of a step's small arrays, each in a few copies, and of what rounding up takes.
constexpr int64_t kSmallBytes = int64_t{8} << 20;

int64_t elements(const store::PackedTensor& t) {
  int64_t n = 1;
  for (const int64_t d : t.shape) n *= d;
  return n;
}

/// DenseWeights: the blobs, and vectors and routers once more as f32.
int64_t dense_bytes(const store::Manifest& manifest) {
  int64_t bytes = 0;
  for (const store::Blob& b : manifest.blobs)
    if (b.kind == store::BlobKind::kDense) bytes += static_cast<int64_t>(b.length);
  for (const store::PackedTensor& t : manifest.tensors)
    if (t.shape.size() == 1 || t.name.ends_with("router.weight")) bytes += elements(t) * kFloatBytes;
  return bytes;
}

/// KvCache.
int64_t kv_bytes(const model::ModelSpec& spec, const engine::EngineOptions& options) {
  int64_t bytes = 0;
  for (const model::LayerSpec& layer : spec.layers) bytes += model::kv_block_bytes(layer.kv, options.kv_dtype);
  return bytes * ceil_div(options.kv_tokens, kernels::kKvBlockTokens);
}

/// The widest rows that dense products read or write.
struct Widths {
  int64_t q = 0, kv = 0, ffn = 0;
};
Widths widths(const model::ModelSpec& spec) {
  Widths w;
  for (const model::LayerSpec& l : spec.layers) {
    w.q = std::max(w.q, l.attention.heads * l.attention.head_dim);
    w.kv = std::max(w.kv, l.attention.kv_heads * l.attention.head_dim);
    w.ffn = std::max({w.ffn, l.dense_ffn, l.moe_index ? l.moe.shared_ffn : 0});
  }
  return w;
}

/// Those of latent attention.
struct LatentWidths {
  int64_t q_a = 0, q = 0, kv = 0, attended = 0;
  int64_t widest() const { return std::max({q_a, q, kv, attended}); }
};
LatentWidths latent_widths(const model::ModelSpec& spec) {
  LatentWidths w;
  for (const model::LayerSpec& l : spec.layers) {
    if (!l.latent) continue;
    w.q_a = std::max(w.q_a, l.latent->q_rank);
    w.q = std::max(w.q, l.latent->heads * (l.latent->nope_dim + l.latent->rope_dim));
    w.kv = std::max(w.kv, l.latent->kv_rank + l.latent->rope_dim);
    w.attended = std::max(w.attended, l.latent->heads * l.latent->value_dim);
  }
  return w;
}

/// LayerMath, for each token of a step.
int64_t layer_floats(const model::ModelSpec& spec, const engine::EngineOptions& options) {
  const auto [q, kv, ffn] = widths(spec);
  const auto [latent_q_a, latent_q, latent_kv, latent_attended] = latent_widths(spec);
  const int64_t angles = spec.rope.rotary_dim / 2, sinks = options.visible.sinks > 0 ? q + 2 * angles : 0,
                kinds = (q > 0 ? 1 : 0) + (latent_q > 0 ? 1 : 0);  // that have rotations of their own
  return 3 * spec.hidden + 1 + 2 * q + 2 * kv + 2 * ffn + spec.moe().experts + kinds * 2 * angles + sinks +
         latent_q_a + latent_q + latent_kv + latent_attended;
}

}  // namespace

CudaOps::Room ops_workspace(const model::ModelSpec& spec, const engine::EngineOptions& options) {
  const model::MoeSpec& moe = spec.moe();
  const int64_t n = options.step_tokens_max,
                positions = engine::positions_max(options, spec, ceil_div(options.kv_tokens, kernels::kKvBlockTokens));
  const auto [q, kv, ffn] = widths(spec);
  const int64_t latent = latent_widths(spec).widest();
  CudaOps::Room room{.activated = CudaOps::activated_bytes(n * moe.top_k, moe.expert.ffn),
                     .routes = CudaOps::routes_bytes(n, moe.top_k, moe.experts),
                     .rounded = std::max(CudaOps::rounded_bytes(n, std::max({spec.hidden, q, ffn, latent})),
                                         CudaOps::rounded_bytes(n * moe.top_k, spec.hidden)),
                     .sums = CudaOps::sums_bytes(n, std::max({spec.hidden, q, kv, ffn, spec.vocab, latent})),
                     .positions = positions};
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.latent) {
      const kernels::LatentShape shape = engine::latent_shape(*layer.latent);
      room.partial = std::max(room.partial, CudaOps::latent_partial_bytes_max(shape, n, positions));
      room.latents = std::max(room.latents, CudaOps::latent_bytes_max(shape, n));
      continue;
    }
    room.partial = std::max(
        room.partial, CudaOps::partial_bytes_max(engine::attention_shape(layer.attention, options.visible), n,
                                                 positions));
  }
  return room;
}

Status check_format(const char* what, DType format) {
  if (CudaOps::computes_with(format)) return Status::ok();
  return unsupported(std::string(what) + " as " + std::string(dtype_name(format)) +
                     " on this device; choose another with --precision, or pack one (moestro pack --experts, "
                     "--dense)");
}

Result<DeviceNeeds> device_needs(const store::Manifest& manifest, const engine::EngineOptions& options,
                                 DType precision) {
  MOESTRO_ASSIGN_OR_RETURN(const model::ModelDescription description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  const model::ModelSpec& spec = description.spec;
  if (spec.moe_layers() == 0) return unsupported("a model without a single MoE layer");
  MOESTRO_RETURN_IF_ERROR(check_on_gpu(spec));
  MOESTRO_RETURN_IF_ERROR(check_format("experts", precision));
  const model::MoeSpec& moe = spec.moe();
  const int64_t n = options.step_tokens_max, layers = static_cast<int64_t>(spec.layers.size()),
                moe_layers = spec.moe_layers();
  const CudaOps::Room ops = ops_workspace(spec, options);
  const int64_t pass =
      n * ((2 + moe.top_k) * spec.hidden * kFloatBytes + (2 * moe_layers * moe.top_k + layers) * kFloatBytes) +
      moe_layers * moe.experts * 8;
  const int64_t head = CudaHead::tile_rows(n) * (spec.hidden + spec.vocab) * kFloatBytes +
                       kernels::cuda::CudaOps::sample_bytes(CudaHead::tile_rows(n));
  const int64_t lookahead =
      (moe_layers * moe.experts * spec.hidden + n * (spec.hidden + moe_layers * moe.experts)) * kFloatBytes;
  MOESTRO_ASSIGN_OR_RETURN(const auto layouts, manifest.expert_layouts(moe.expert, precision));
  int64_t longest = 0;
  for (const ExpertLayout& layout : layouts) longest = std::max(longest, layout.bytes());
  DeviceNeeds needs;
  needs.dense_bytes = static_cast<uint64_t>(dense_bytes(manifest));
  needs.kv_bytes = static_cast<uint64_t>(kv_bytes(spec, options));
  needs.workspace_bytes = static_cast<uint64_t>(n * layer_floats(spec, options) * kFloatBytes + pass + head +
                                                lookahead + ops.activated + ops.routes + ops.partial + ops.rounded +
                                                ops.sums + ops.latents + kSmallBytes);
  needs.expert_bytes = device::CudaSlots::slot_bytes(static_cast<uint64_t>(longest));
  needs.experts = static_cast<uint64_t>(moe_layers * moe.experts);
  return needs;
}

}  // namespace moestro::cuda

#include "services/worker/cuda/cuda_needs.h"

#include <algorithm>

#include "common/model/mixer.h"
#include "services/worker/cuda/cuda_head.h"
#include "services/worker/cuda/float_bytes.h"
#include "services/worker/cuda/model_on_gpu.h"
#include "services/worker/device/cuda_slots.h"
#include "services/worker/engine/kv_shares.h"
#include "services/worker/engine/sequence_states.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::cuda {
namespace {

using kernels::cuda::CudaOps;

/// Of a step's small arrays, and of what rounding up takes.
constexpr int64_t kSmallBytes = int64_t{8} << 20;

int64_t elements(const store::PackedTensor& t) {
  int64_t n = 1;
  for (const int64_t d : t.shape) n *= d;
  return n;
}

bool is_read_as_floats(const store::PackedTensor& t) {
  return t.shape.size() == 1 || t.name.ends_with("router.weight") || t.name.ends_with("delta.conv.weight");
}

/// DenseWeights: the blobs, and vectors, routers and convolutions once more as f32.
int64_t dense_bytes(const store::Manifest& manifest) {
  int64_t bytes = 0;
  for (const store::Blob& b : manifest.blobs)
    if (b.kind == store::BlobKind::kDense) bytes += static_cast<int64_t>(b.length);
  for (const store::PackedTensor& t : manifest.tensors)
    if (is_read_as_floats(t)) bytes += elements(t) * kFloatBytes;
  return bytes;
}

/// SequenceStates.
model::StateBudget state_budget_of(const model::ModelSpec& spec, const engine::EngineOptions& options) {
  return model::state_budget(spec, options.kv_tokens, options.kv_dtype, options.state_slots);
}
/// The widest rows that dense products read or write.
struct Widths {
  int64_t q = 0, kv = 0, ffn = 0, gate = 0;      ///< gate: of attention, 0 if there is none
  int64_t keys = 0, values = 0, state_heads = 0;  ///< of the gated delta rule
  int64_t widest() const { return std::max({q, kv, ffn, keys, values}); }
};
Widths widths(const model::ModelSpec& spec) {
  Widths w;
  for (const model::LayerSpec& l : spec.layers) {
    w.q = std::max(w.q, l.attention.heads * l.attention.head_dim);
    w.kv = std::max(w.kv, l.attention.kv_heads * l.attention.head_dim);
    w.ffn = std::max({w.ffn, l.dense_ffn, l.moe_index ? l.moe.shared_ffn : 0});
    if (l.attention.output_gate) w.gate = std::max(w.gate, l.attention.heads * l.attention.head_dim);
    if (!l.delta) continue;
    w.keys = std::max(w.keys, l.delta->keys());
    w.values = std::max(w.values, l.delta->values());
    w.state_heads = std::max(w.state_heads, l.delta->value_heads);
  }
  if (w.gate > 0) w.gate = w.q;
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
  const Widths w = widths(spec);
  const auto [latent_q_a, latent_q, latent_kv, latent_attended] = latent_widths(spec);
  const int64_t angles = spec.rope.rotary_dim / 2, sinks = options.visible.sinks > 0 ? w.q + 2 * angles : 0,
                kinds = (w.q > 0 ? 1 : 0) + (latent_q > 0 ? 1 : 0);  // that have rotations of their own
  const int64_t shared_norm = spec.moe().before_attention ? spec.hidden : 0;
  return 3 * spec.hidden + 1 + 2 * w.q + 2 * w.kv + 2 * w.ffn + spec.moe().experts + kinds * 2 * angles + sinks +
         shared_norm + w.gate + 2 * w.keys + 3 * w.values + 2 * w.state_heads + latent_q_a + latent_q + latent_kv +
         latent_attended;
}

Status not_computed(const std::string& what) {
  return unsupported(what + " on this device; choose another with --precision, or pack one (moestro pack --experts, "
                     "--dense)");
}

/// Whether the rows of a matrix that is not of blocks are as long as kernels for blocks read them.
bool is_whole_rows(DType d, int64_t columns) {
  constexpr int64_t kHalvesAtOnce = 32;  // HalvesBlock of kernels/cuda/block_formats.h
  return is_blocks(d) || columns % kHalvesAtOnce == 0;
}

/// Every format of a layer's experts, which may differ from layer to layer.
Status check_experts(const std::vector<ExpertLayout>& layouts) {
  for (size_t layer = 0; layer < layouts.size(); ++layer) {
    const ExpertFormats& f = layouts[layer].formats();
    const int64_t hidden = layouts[layer].hidden(), ffn = layouts[layer].ffn();
    const bool fits = f.dtype() != DType::kMixed || (is_whole_rows(f.gate, hidden) && is_whole_rows(f.up, hidden) &&
                                                     is_whole_rows(f.down, ffn));
    if (CudaOps::computes_with(f) && fits) continue;
    if (f.dtype() != DType::kMixed) return check_format("experts", f.dtype());
    return not_computed("experts with gate as " + std::string(dtype_name(f.gate)) + ", up as " +
                        std::string(dtype_name(f.up)) + " and down as " + std::string(dtype_name(f.down)) +
                        " (MoE layer " + std::to_string(layer) + ")");
  }
  return Status::ok();
}

/// Every dense matrix that is multiplied as it is packed: routers become f32.
Status check_dense(const store::Manifest& manifest) {
  for (const store::PackedTensor& t : manifest.tensors)
    if (t.shape.size() == 2 && !t.name.ends_with("router.weight"))
      MOESTRO_RETURN_IF_ERROR(check_format("tensor '" + t.name + "'", t.dtype));
  return Status::ok();
}

}  // namespace

CudaOps::Room ops_workspace(const model::ModelSpec& spec, const engine::EngineOptions& options) {
  const model::MoeSpec& moe = spec.moe();
  const int64_t n = options.step_tokens_max,
                positions = engine::positions_max(options, spec, ceil_div(options.kv_tokens, kernels::kKvBlockTokens));
  const int64_t widest = std::max(widths(spec).widest(), latent_widths(spec).widest());
  CudaOps::Room room{.activated = CudaOps::activated_bytes(n * moe.top_k, moe.expert.ffn),
                     .routes = CudaOps::routes_bytes(n, moe.top_k, moe.experts),
                     .rounded = std::max(CudaOps::rounded_bytes(n, std::max(spec.hidden, widest)),
                                         CudaOps::rounded_bytes(n * moe.top_k, spec.hidden)),
                     .sums = CudaOps::sums_bytes(n, std::max({spec.hidden, widest, spec.vocab})),
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
    if (layer.delta)
      room.delta = std::max(room.delta, CudaOps::delta_bytes(engine::delta_shape(*layer.delta), n,
                                                             kernels::cuda::asks_for_delta_chunks()));
  }
  return room;
}

KeptStatesRoom kept_states_room(const model::ModelSpec& spec, int64_t step_tokens_max, int64_t state_slots) {
  KeptStatesRoom room{.sequences = std::min(step_tokens_max, state_slots)};
  int64_t layers = 0;
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.delta) {
      room.layers = std::max(room.layers, ++layers);
      room.floats = std::max(room.floats, kernels::delta_state_floats(engine::delta_shape(*layer.delta)));
    }
    if (layer.moe_index) layers = 0;
  }
  return room;
}

Status check_format(std::string_view what, DType format) {
  if (CudaOps::computes_with(format)) return Status::ok();
  return not_computed(std::string(what) + " as " + std::string(dtype_name(format)));
}

Result<DeviceNeeds> device_needs(const store::Manifest& manifest, const engine::EngineOptions& options,
                                 DType precision) {
  MOESTRO_ASSIGN_OR_RETURN(const model::ModelDescription description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  const model::ModelSpec& spec = description.spec;
  if (spec.moe_layers() == 0) return unsupported("a model without a single MoE layer");
  MOESTRO_RETURN_IF_ERROR(check_on_gpu(spec));
  const model::MoeSpec& moe = spec.moe();
  MOESTRO_ASSIGN_OR_RETURN(const auto layouts, manifest.expert_layouts(moe.expert, precision));
  MOESTRO_RETURN_IF_ERROR(check_experts(layouts));
  MOESTRO_RETURN_IF_ERROR(check_dense(manifest));
  const int64_t n = options.step_tokens_max, layers = static_cast<int64_t>(spec.layers.size()),
                moe_layers = spec.moe_layers();
  const CudaOps::Room ops = ops_workspace(spec, options);
  const int64_t pass =
      n * ((2 + moe.top_k) * spec.hidden * kFloatBytes + (2 * moe_layers * moe.top_k + layers) * kFloatBytes) +
      moe_layers * moe.experts * 8;
  const int64_t inputs = n * kFloatBytes * ((moe.router.on_input ? moe.top_k * (spec.hidden + 1) : 0) +
                                            (moe.before_attention ? 2 * spec.hidden : 0));
  const int64_t head = CudaHead::tile_rows(n) * (spec.hidden + spec.vocab) * kFloatBytes +
                       kernels::cuda::CudaOps::sample_bytes(CudaHead::tile_rows(n));
  const int64_t lookahead =
      (moe_layers * moe.experts * spec.hidden + n * (spec.hidden + moe_layers * moe.experts)) * kFloatBytes;
  const KeptStatesRoom kept = kept_states_room(spec, n, state_budget_of(spec, options).slots);
  int64_t longest = 0;
  for (const ExpertLayout& layout : layouts) longest = std::max(longest, layout.bytes());
  DeviceNeeds needs;
  needs.dense_bytes = static_cast<uint64_t>(dense_bytes(manifest));
  for (const uint32_t blob : store::dense_layers(manifest))
    needs.dense_layers.push_back(manifest.blobs[blob].length);
  needs.experts_at_once = tier::experts_of_two_layers(moe.top_k);
  MOESTRO_ASSIGN_OR_RETURN(const int64_t cache, engine::kv_device_bytes(options, spec));  // KvCache
  needs.kv_bytes = static_cast<uint64_t>(cache + state_budget_of(spec, options).bytes);
  needs.workspace_bytes = static_cast<uint64_t>(n * layer_floats(spec, options) * kFloatBytes + pass + inputs + head +
                                                lookahead + ops.activated + ops.routes + ops.partial + ops.rounded +
                                                ops.sums + ops.delta + ops.latents +
                                                kept.layers * kept.of_layer() * kFloatBytes + kSmallBytes);
  needs.expert_bytes = device::CudaSlots::slot_bytes(static_cast<uint64_t>(longest));
  needs.experts = static_cast<uint64_t>(moe_layers * moe.experts);
  return needs;
}

}  // namespace moestro::cuda

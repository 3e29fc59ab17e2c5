#include "services/worker/engine/sequence_mixer.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::engine {

AttentionWidths widths_of(const model::AttentionSpec& a) { return {a.heads * a.head_dim, a.kv_heads * a.head_dim}; }

AttentionWidths widest_heads(const model::ModelSpec& spec) {
  AttentionWidths most;
  for (const model::LayerSpec& l : spec.layers) {
    const AttentionWidths w = widths_of(l.attention);
    most = {std::max(most.q, w.q), std::max(most.kv, w.kv)};
  }
  return most;
}

AttentionRows SequenceMixer::rows_of(size_t) {
  MOESTRO_CHECK(false, "the host attends for layers of grouped-query attention");
  return {};
}
void SequenceMixer::project(size_t, const MicroBatch&, const float*) {
  MOESTRO_CHECK(false, "the host attends for layers of grouped-query attention");
}
void SequenceMixer::finish(size_t, const MicroBatch&, const MixerOutput&) {
  MOESTRO_CHECK(false, "the host attends for layers of grouped-query attention");
}

Mixers::Mixers(const MathParts& parts, int64_t step_tokens_max) {
  SequenceMixer *grouped = nullptr, *latent = nullptr, *delta = nullptr;
  const auto the = [&](SequenceMixer*& mixer, auto make) {
    if (mixer == nullptr) mixer = all_.emplace_back(make(parts, step_tokens_max)).get();
    of_layer_.push_back(mixer);
  };
  for (const model::LayerSpec& layer : parts.spec.layers) {
    if (layer.latent)
      the(latent, make_latent_attention);
    else if (layer.delta)
      the(delta, make_gated_delta);
    else
      the(grouped, make_grouped_attention);
  }
}

Status Mixers::status() const {
  for (const auto& mixer : all_) MOESTRO_RETURN_IF_ERROR(mixer->status());
  return Status::ok();
}

void Mixers::begin(const StepBatch& batch) {
  for (const auto& mixer : all_) mixer->begin(batch);
}

Status check_mixers(const model::ModelSpec& spec, const VisiblePositions& visible, const kernels::Ops& ops) {
  if (spec.is_encoder_decoder() && visible.window > 0) return unsupported("--kv-window with an encoder-decoder model");
  if (spec.is_encoder_decoder() && !ops.supports_encoders())
    return unsupported("encoder-decoder models on this device; run the model with --device cpu");
  for (const model::LayerSpec& layer : spec.layers) {
    const model::AttentionSpec& a = layer.attention;
    const bool depends_on_position = a.chunk > 0 || !a.rope || a.qk_norm == model::AttentionSpec::QkNorm::kRotatedHeads;
    if (!layer.latent && depends_on_position && visible.window > 0)
      return unsupported("--kv-window with Llama-4's attention (chunks, and layers without RoPE)");
    const bool linear = layer.delta.has_value();
    if ((linear || layer.attention.output_gate) && !ops.supports_delta())
      return unsupported("the gated delta rule and gated attention on this device; run the model with --device cpu");
    if (linear && visible.window > 0) return unsupported("--kv-window with layers of the gated delta rule");
    if (!layer.latent) continue;
    if (!ops.supports_latent())
      return unsupported("latent attention (MLA) on this device; run the model with --device cpu");
    if (visible.window > 0) return unsupported("--kv-window with latent attention (MLA)");
  }
  return Status::ok();
}

void send(kernels::Memory& memory, float* to, const std::vector<float>& values) {
  if (!values.empty()) memory.copy_in(to, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
}

}  // namespace moestro::engine

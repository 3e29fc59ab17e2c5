// Grouped-query attention: q, k and v for every head, rotated, over keys and values in the cache.

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/check.h"
#include "services/worker/engine/attention_chunks.h"
#include "services/worker/engine/encoder_keys.h"
#include "services/worker/engine/sequence_mixer.h"
#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {
namespace {

using model::AttentionSpec;

/// The head that is normed after its rotation; 0: none is.
int64_t widest_rotated_norm(const model::ModelSpec& spec) {
  int64_t widest = 0;
  for (const model::LayerSpec& l : spec.layers)
    if (l.attention.qk_norm == AttentionSpec::QkNorm::kRotatedHeads) widest = std::max(widest, l.attention.head_dim);
  return widest;
}

float tuning_at(const AttentionSpec::Temperature& t, int32_t position) {
  const float steps = std::floor((static_cast<float>(position) + 1.0F) / static_cast<float>(t.floor));
  return std::log1p(steps) * static_cast<float>(t.scale) + 1.0F;
}

class GroupedAttention final : public SequenceMixer {
 public:
  GroupedAttention(const MathParts& parts, int64_t step_tokens_max);
  Status status() const override { return buffers_.status(); }
  void begin(const StepBatch& batch) override;
  void compute(size_t layer, const MicroBatch& of, std::span<const kernels::AttentionSequence> sequences,
               const float* h, const MixerOutput& out) override;
  AttentionRows rows_of(size_t layer) override {
    return {q_, k_, v_, attended_, widths_of(p_.spec.layers[layer].attention)};
  }
  void project(size_t layer, const MicroBatch& of, const float* h) override;
  void finish(size_t layer, const MicroBatch& of, const MixerOutput& out) override;

 private:
  /// Sends the rotation of queries for the sinks' keys in layers with this window, once for all layers with the same
  /// window.
  void send_sink_rotation(const kernels::AttentionShape& shape);
  /// `placed_together`: place_together() follows.
  void project_qkv(const AttentionSpec& spec, const LayerWeights& w, TokenRange rows, const float* h,
                   bool placed_together);
  /// Whether heads are normed, if they are, rotated and cached by one operation.
  bool places_heads(const AttentionSpec& spec, const LayerWeights& w) const;
  void place_together(size_t layer, std::span<const kernels::AttentionSequence> sequences);
  /// The queries rotated for the sinks' keys, from q_ before it is rotated; null if no row of the step has a gap.
  const float* rotate_for_sinks(size_t layer, TokenRange rows);
  /// Of q_ and k_: rotation, and what follows it.
  void place(const AttentionSpec& spec, TokenRange rows);

  MathParts p_;
  const StepBatch* batch_ = nullptr;
  kernels::Buffers buffers_;
  float *q_, *k_, *v_, *attended_, *cos_, *sin_;
  float* ones_ = nullptr;  ///< weights of a norm without weights
  std::vector<kernels::AttentionSequence> chunks_;  ///< scratch
  const AttentionSpec::Temperature* temperature_ = nullptr;  ///< of all layers that have one
  float* tuning_ = nullptr;           ///< [rows]: what it multiplies their queries by
  std::vector<float> tuning_list_;
  float* gate_ = nullptr;
  std::optional<EncoderKeys> encoder_;  ///< of the layers of an encoder, which are alike
  int64_t sink_window_ = 0;  ///< window of sink_cos_ and sink_sin_; 0: none
  float *sink_q_ = nullptr, *sink_cos_ = nullptr, *sink_sin_ = nullptr;
  std::vector<float> sink_cos_list_, sink_sin_list_;
};

GroupedAttention::GroupedAttention(const MathParts& parts, int64_t n) : p_(parts), buffers_(parts.memory) {
  for (const model::LayerSpec& l : p_.spec.layers)
    MOESTRO_CHECK(l.attention.chunk % kernels::kKvBlockTokens == 0, "a chunk begins within a block of the KV cache");
  const AttentionWidths w = widest_heads(p_.spec);
  const int64_t angles = p_.spec.rope.rotary_dim / 2;
  const auto make = [&](int64_t width) { return buffers_.make<float>(n * width); };
  q_ = make(w.q), attended_ = make(w.q), k_ = make(w.kv), v_ = make(w.kv);
  cos_ = make(angles), sin_ = make(angles);
  if (const int64_t width = widest_rotated_norm(p_.spec); width > 0) {
    ones_ = buffers_.make<float>(width);
    if (ones_ != nullptr) send(p_.memory, ones_, std::vector<float>(static_cast<size_t>(width), 1.0F));
  }
  chunks_.reserve(static_cast<size_t>(n));
  for (const model::LayerSpec& l : p_.spec.layers)
    if (l.attention.temperature) temperature_ = &*l.attention.temperature;
  if (temperature_ != nullptr) tuning_ = make(1);
  if (std::ranges::any_of(p_.spec.layers, [](const auto& layer) { return layer.attention.output_gate; }))
    gate_ = make(w.q);
  if (p_.spec.is_encoder_decoder()) encoder_.emplace(buffers_, p_.cache.shape(0), n);
  if (p_.cache.shape(0).sinks == 0) return;  // of all layers alike
  sink_q_ = make(w.q), sink_cos_ = make(angles), sink_sin_ = make(angles);
  for (auto* rotation : {&sink_cos_list_, &sink_sin_list_}) rotation->reserve(static_cast<size_t>(n * angles));
}

void GroupedAttention::begin(const StepBatch& batch) {
  batch_ = &batch;
  if (batch.encodes) encoder_->begin(batch);
  send(p_.memory, cos_, batch.cos);
  send(p_.memory, sin_, batch.sin);
  sink_window_ = 0;
  send_sink_rotation(p_.cache.shape(0));
  tuning_list_.clear();
  if (temperature_ == nullptr) return;
  for (const int32_t position : batch.positions) tuning_list_.push_back(tuning_at(*temperature_, position));
  send(p_.memory, tuning_, tuning_list_);
}

void GroupedAttention::send_sink_rotation(const kernels::AttentionShape& shape) {
  if (shape.sinks == 0 || !shape.has_gap(batch_->furthest) || shape.window == sink_window_) return;
  sink_window_ = shape.window;
  sink_cos_list_.clear();
  sink_sin_list_.clear();
  for (const int32_t position : batch_->positions)
    p_.rope.append(sink_position(shape, position), sink_cos_list_, sink_sin_list_);
  send(p_.memory, sink_cos_, sink_cos_list_);
  send(p_.memory, sink_sin_, sink_sin_list_);
}

void GroupedAttention::project_qkv(const AttentionSpec& a, const LayerWeights& w, TokenRange rows, const float* of,
                                   bool placed_together) {
  const auto eps = static_cast<float>(p_.spec.norm_eps);
  const int64_t n = rows.count, q_width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
  const float* const h = of + rows.first * p_.spec.hidden;
  float *const q = q_ + rows.first * q_width, *const k = k_ + rows.first * kv_width,
               *const v = v_ + rows.first * kv_width;
  float* const gate = a.output_gate ? gate_ + rows.first * q_width : nullptr;
  const kernels::GroupProduct products[] = {
      {&w.q, w.q_bias, q}, {&w.k, w.k_bias, k}, {&w.v, w.v_bias, v}, {&w.gate, w.gate_bias, gate}};
  p_.ops.matmul_group(h, n, std::span(products).first(a.output_gate ? 4 : 3));
  if (a.qk_norm == AttentionSpec::QkNorm::kPerHead) {
    if (placed_together) return;  // which norms them too
    p_.ops.rms_norm(q, n * a.heads, a.head_dim, w.q_norm, eps, q);
    p_.ops.rms_norm(k, n * a.kv_heads, a.head_dim, w.k_norm, eps, k);
  } else if (a.qk_norm == AttentionSpec::QkNorm::kFullWidth) {
    p_.ops.rms_norm(q, n, q_width, w.q_norm, eps, q);
    p_.ops.rms_norm(k, n, kv_width, w.k_norm, eps, k);
  }
  if (a.clip_qkv) {
    const auto limit = static_cast<float>(*a.clip_qkv);
    p_.ops.clamp(q, n * q_width, limit);
    p_.ops.clamp(k, n * kv_width, limit);
    p_.ops.clamp(v, n * kv_width, limit);
  }
}

const float* GroupedAttention::rotate_for_sinks(size_t layer, TokenRange rows) {
  const kernels::AttentionShape& shape = p_.cache.shape(layer);
  if (shape.sinks == 0 || !shape.has_gap(batch_->furthest)) return nullptr;
  send_sink_rotation(shape);
  const int64_t rotary = p_.spec.rope.rotary_dim, angles = rows.first * rotary / 2;
  const int64_t width = shape.heads * shape.head_dim, at = rows.first * width;
  p_.memory.copy(sink_q_ + at, q_ + at, rows.count * width * static_cast<int64_t>(sizeof(float)));
  p_.ops.rope(sink_q_ + at, rows.count, shape.heads, shape.head_dim, rotary, sink_cos_ + angles, sink_sin_ + angles);
  return sink_q_;
}

/// Not what comes between these steps, or behind them, in some models.
bool GroupedAttention::places_heads(const AttentionSpec& a, const LayerWeights& w) const {
  using QkNorm = AttentionSpec::QkNorm;
  return p_.ops.fuses(w.router) && a.rope && a.qk_norm != QkNorm::kRotatedHeads && !a.temperature &&
         !(a.qk_norm == QkNorm::kPerHead && a.clip_qkv);
}

void GroupedAttention::place_together(size_t layer, std::span<const kernels::AttentionSequence> sequences) {
  const LayerWeights& w = p_.weights.layer(layer);
  const kernels::AttentionShape& shape = p_.cache.shape(layer);
  kernels::HeadsToPlace heads{
      .q = q_, .k = k_, .v = v_, .rotary_dim = p_.spec.rope.rotary_dim, .cos = cos_, .sin = sin_};
  if (p_.spec.layers[layer].attention.qk_norm == AttentionSpec::QkNorm::kPerHead) {
    heads.q_norm = w.q_norm, heads.k_norm = w.k_norm;
    heads.eps = static_cast<float>(p_.spec.norm_eps);
  }
  if (shape.sinks > 0 && shape.has_gap(batch_->furthest)) {
    send_sink_rotation(shape);
    heads.sink_q = sink_q_, heads.sink_cos = sink_cos_, heads.sink_sin = sink_sin_;
  }
  p_.ops.place_heads(shape, sequences, heads, p_.cache.layer(layer));
}

void GroupedAttention::place(const AttentionSpec& a, TokenRange rows) {
  const auto [first, n] = rows;
  float *const q = q_ + first * a.heads * a.head_dim, *const k = k_ + first * a.kv_heads * a.head_dim;
  if (a.rope) {
    const int64_t rotary = p_.spec.rope.rotary_dim, angles = first * rotary / 2;
    p_.ops.rope(q, n, a.heads, a.head_dim, rotary, cos_ + angles, sin_ + angles);
    p_.ops.rope(k, n, a.kv_heads, a.head_dim, rotary, cos_ + angles, sin_ + angles);
  }
  if (a.qk_norm == AttentionSpec::QkNorm::kRotatedHeads) {
    const auto eps = static_cast<float>(p_.spec.norm_eps);
    p_.ops.rms_norm(q, n * a.heads, a.head_dim, ones_, eps, q);
    p_.ops.rms_norm(k, n * a.kv_heads, a.head_dim, ones_, eps, k);
  }
  if (a.temperature) p_.ops.scale_rows(q, tuning_ + first, n, 1, a.heads * a.head_dim, q);
}

void GroupedAttention::compute(size_t layer, const MicroBatch& of,
                               std::span<const kernels::AttentionSequence> sequences, const float* h,
                               const MixerOutput& out) {
  const AttentionSpec& a = p_.spec.layers[layer].attention;
  const LayerWeights& w = p_.weights.layer(layer);
  kernels::AttentionShape shape = p_.cache.shape(layer);
  shape.sink_logits = w.sink_logits;
  if (a.position_bias) {
    shape.position_bias = p_.weights.position_bias(p_.spec.layers[layer].stack);
    shape.bias_reach = p_.spec.relative_bias->reach;
  }
  if (batch_->encodes) sequences = encoder_->sequences(of);
  const kernels::KvView& cache = batch_->encodes ? encoder_->view() : p_.cache.layer(layer);
  const bool together = places_heads(a, w);
  project_qkv(a, w, of.rows, h, together);
  const float* sink_q = nullptr;
  if (together) {
    place_together(layer, sequences);
    sink_q = shape.sinks > 0 && shape.has_gap(batch_->furthest) ? sink_q_ : nullptr;
  } else {
    sink_q = rotate_for_sinks(layer, of.rows);
    place(a, of.rows);
    p_.ops.kv_write(shape, sequences, k_, v_, cache);
  }
  attend_within_chunks(p_.ops, a.chunk, shape, sequences, q_, sink_q, cache, attended_, chunks_);
  finish(layer, of, out);
}

void GroupedAttention::project(size_t layer, const MicroBatch& of, const float* h) {
  const AttentionSpec& a = p_.spec.layers[layer].attention;
  project_qkv(a, p_.weights.layer(layer), of.rows, h, false);  // the device has no cache to place them in
  place(a, of.rows);
}

void GroupedAttention::finish(size_t layer, const MicroBatch& of, const MixerOutput& out) {
  const AttentionSpec& a = p_.spec.layers[layer].attention;
  const LayerWeights& w = p_.weights.layer(layer);
  const auto [first, n] = of.rows;
  const int64_t q_width = a.heads * a.head_dim;
  if (a.output_gate) p_.ops.sigmoid_mul(attended_ + first * q_width, gate_ + first * q_width, n * q_width);
  out.project(p_.ops, attended_ + first * q_width, first, n, w.o, w.o_bias);
}

}  // namespace

std::unique_ptr<SequenceMixer> make_grouped_attention(const MathParts& parts, int64_t step_tokens_max) {
  return std::make_unique<GroupedAttention>(parts, step_tokens_max);
}

}  // namespace moestro::engine

#include "services/worker/engine/layer_math.h"

#include <algorithm>

#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {
namespace {

using model::AttentionSpec;

struct Widths {
  int64_t q = 0, kv = 0, ffn = 0, experts = 0;
};

Widths widest(const model::ModelSpec& spec) {
  Widths w;
  for (const model::LayerSpec& l : spec.layers) {
    w.q = std::max(w.q, l.attention.heads * l.attention.head_dim);
    w.kv = std::max(w.kv, l.attention.kv_heads * l.attention.head_dim);
    w.ffn = std::max({w.ffn, l.dense_ffn, l.moe_index ? l.moe.shared_ffn : 0});
    if (l.moe_index) w.experts = std::max(w.experts, l.moe.experts);
  }
  return w;
}

kernels::RouterSpec router_spec(const model::MoeSpec& moe, const float* bias) {
  const model::RouterSpec& r = moe.router;
  const bool sigmoid = r.scores == model::RouterSpec::Scores::kSigmoid;
  return {.experts = moe.experts,
          .top_k = moe.top_k,
          .scores = sigmoid ? kernels::RouterSpec::Scores::kSigmoid : kernels::RouterSpec::Scores::kSoftmax,
          .normalise = r.normalise,
          .scale = static_cast<float>(r.scale),
          .bias = bias,
          .groups = r.groups,
          .groups_kept = r.groups_kept};
}

void send(kernels::Memory& memory, float* to, const std::vector<float>& values) {
  if (!values.empty()) memory.copy_in(to, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
}

}  // namespace

LayerMath::LayerMath(const Parts& parts, int64_t n) : p_(parts), hidden_(parts.spec.hidden), buffers_(parts.memory) {
  const Widths w = widest(p_.spec);
  const int64_t angles = p_.spec.rope.rotary_dim / 2;
  const auto make = [&](int64_t width) { return buffers_.make<float>(n * width); };
  h_ = make(hidden_), out_ = make(hidden_), shared_out_ = make(hidden_), shared_logit_ = make(1);
  q_ = make(w.q), attended_ = make(w.q), k_ = make(w.kv), v_ = make(w.kv);
  gate_ = make(w.ffn), up_ = make(w.ffn), router_logits_ = make(w.experts);
  cos_ = make(angles), sin_ = make(angles);
  if (p_.cache.shape(0).sinks == 0) return;  // of all layers alike
  sink_q_ = make(w.q), sink_cos_ = make(angles), sink_sin_ = make(angles);
  for (auto* rotation : {&sink_cos_list_, &sink_sin_list_}) rotation->reserve(static_cast<size_t>(n * angles));
}

void LayerMath::begin(const StepBatch& batch) {
  batch_ = &batch;
  rows_ = batch.rows();
  send(p_.memory, cos_, batch.cos);
  send(p_.memory, sin_, batch.sin);
  sink_window_ = 0;
  send_sink_rotation(p_.cache.shape(0));
}

void LayerMath::send_sink_rotation(const kernels::AttentionShape& shape) {
  if (shape.sinks == 0 || !shape.has_gap(batch_->furthest) || shape.window == sink_window_) return;
  sink_window_ = shape.window;
  sink_cos_list_.clear();
  sink_sin_list_.clear();
  for (const int32_t position : batch_->positions)
    p_.rope.append(sink_position(shape, position), sink_cos_list_, sink_sin_list_);
  send(p_.memory, sink_cos_, sink_cos_list_);
  send(p_.memory, sink_sin_, sink_sin_list_);
}

void LayerMath::embed(float* x) { p_.ops.gather_rows(p_.weights.embed(), batch_->ids, x); }

void LayerMath::norm(const float* x, const float* weight, TokenRange rows) {
  const int64_t at = rows.first * hidden_;
  p_.ops.rms_norm(x + at, rows.count, hidden_, weight, static_cast<float>(p_.spec.norm_eps), h_ + at);
}

void LayerMath::norm_after_attention(size_t layer, const float* x) {
  norm(x, p_.weights.layer(layer).post_norm, all_rows());
}

void LayerMath::project_qkv(const AttentionSpec& a, const LayerWeights& w, TokenRange rows) {
  const auto eps = static_cast<float>(p_.spec.norm_eps);
  const int64_t n = rows.count, q_width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim;
  const float* const h = h_ + rows.first * hidden_;
  float *const q = q_ + rows.first * q_width, *const k = k_ + rows.first * kv_width,
               *const v = v_ + rows.first * kv_width;
  p_.ops.matmul(h, n, w.q, w.q_bias, q);
  p_.ops.matmul(h, n, w.k, w.k_bias, k);
  p_.ops.matmul(h, n, w.v, w.v_bias, v);
  if (a.qk_norm == AttentionSpec::QkNorm::kPerHead) {
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

const float* LayerMath::rotate_for_sinks(size_t layer, TokenRange rows) {
  const kernels::AttentionShape& shape = p_.cache.shape(layer);
  if (shape.sinks == 0 || !shape.has_gap(batch_->furthest)) return nullptr;
  send_sink_rotation(shape);
  const int64_t rotary = p_.spec.rope.rotary_dim, angles = rows.first * rotary / 2;
  const int64_t width = shape.heads * shape.head_dim, at = rows.first * width;
  p_.memory.copy(sink_q_ + at, q_ + at, rows.count * width * static_cast<int64_t>(sizeof(float)));
  p_.ops.rope(sink_q_ + at, rows.count, shape.heads, shape.head_dim, rotary, sink_cos_ + angles, sink_sin_ + angles);
  return sink_q_;
}

void LayerMath::attention(size_t layer, const MicroBatch& of, float* x) {
  const AttentionSpec& a = p_.spec.layers[layer].attention;
  const LayerWeights& w = p_.weights.layer(layer);
  const kernels::AttentionShape& shape = p_.cache.shape(layer);
  const auto [first, n] = of.rows;
  const int64_t rotary = p_.spec.rope.rotary_dim, angles = first * rotary / 2;
  const int64_t q_width = a.heads * a.head_dim, kv_width = a.kv_heads * a.head_dim, at = first * hidden_;
  const auto sequences = std::span(batch_->attention).subspan(of.sequences.first, of.sequences.count);
  norm(x, w.input_norm, of.rows);
  project_qkv(a, w, of.rows);
  const float* sink_q = rotate_for_sinks(layer, of.rows);
  p_.ops.rope(q_ + first * q_width, n, a.heads, a.head_dim, rotary, cos_ + angles, sin_ + angles);
  p_.ops.rope(k_ + first * kv_width, n, a.kv_heads, a.head_dim, rotary, cos_ + angles, sin_ + angles);
  p_.ops.kv_write(shape, sequences, k_, v_, p_.cache.layer(layer));
  p_.ops.attention(shape, sequences, q_, sink_q, p_.cache.layer(layer), attended_);
  p_.ops.matmul(attended_ + first * q_width, n, w.o, w.o_bias, out_ + at);
  p_.ops.add_scaled(out_ + at, nullptr, n, hidden_, x + at);
  norm(x, w.post_norm, of.rows);
}

void LayerMath::router(size_t layer, TokenRange rows, int32_t* ids, float* weights) {
  const model::MoeSpec& moe = p_.spec.layers[layer].moe;
  const LayerWeights& w = p_.weights.layer(layer);
  p_.ops.matmul(h_ + rows.first * hidden_, rows.count, w.router, nullptr, router_logits_, kernels::Activations::kExact);
  p_.ops.router_top_k(router_logits_, rows.count, router_spec(moe, w.router_bias), ids, weights);
}

void LayerMath::run_mlp(const MlpWeights& w, float* out) {
  p_.ops.matmul(h_, rows_, w.gate, nullptr, gate_);
  p_.ops.matmul(h_, rows_, w.up, nullptr, up_);
  p_.ops.silu_mul(gate_, up_, rows_ * w.gate.rows);
  p_.ops.matmul(gate_, rows_, w.down, nullptr, out);
}

void LayerMath::dense_mlp(size_t layer, float* x) {
  run_mlp(p_.weights.layer(layer).mlp, out_);
  p_.ops.add_scaled(out_, nullptr, rows_, hidden_, x);
}

void LayerMath::shared_expert(size_t layer) {
  const LayerWeights& w = p_.weights.layer(layer);
  run_mlp(w.shared, shared_out_);
  if (p_.spec.layers[layer].moe.shared_gate) p_.ops.matmul(h_, rows_, w.shared_gate, nullptr, shared_logit_);
}

void LayerMath::add_shared_expert(size_t layer, float* x) {
  const bool gated = p_.spec.layers[layer].moe.shared_gate;
  p_.ops.add_scaled(shared_out_, gated ? shared_logit_ : nullptr, rows_, hidden_, x);
}

}  // namespace moestro::engine

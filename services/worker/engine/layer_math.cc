#include "services/worker/engine/layer_math.h"

#include <algorithm>

namespace moestro::engine {
namespace {

struct Widths {
  int64_t ffn = 0, experts = 0;
  bool shared_norm = false;  ///< of any layer
};

Widths widest(const model::ModelSpec& spec) {
  Widths w;
  for (const model::LayerSpec& l : spec.layers) {
    w.ffn = std::max({w.ffn, l.dense_ffn, l.moe_index ? l.moe.shared_ffn : 0});
    if (l.moe_index) w.experts = std::max(w.experts, l.moe.experts);
    w.shared_norm = w.shared_norm || (l.moe_index && l.moe.before_attention);
  }
  return w;
}

kernels::RouterSpec router_spec(const model::MoeSpec& moe, const float* bias) {
  const model::RouterSpec& r = moe.router;
  static_assert(static_cast<int>(model::RouterSpec::Scores::kSparseMixer) ==
                static_cast<int>(kernels::RouterSpec::Scores::kSparseMixer));
  return {.experts = moe.experts,
          .top_k = moe.top_k,
          .scores = static_cast<kernels::RouterSpec::Scores>(r.scores),
          .normalise = r.normalise,
          .scale = static_cast<float>(r.scale),
          .bias = bias,
          .groups = r.groups,
          .groups_kept = r.groups_kept,
          .group_best = r.group_best,
          .jitter = static_cast<float>(r.jitter)};
}

}  // namespace

void norm_rows(kernels::Ops& ops, const model::ModelSpec& spec, const float* x, int64_t n, const float* weight,
               const float* bias, float* y) {
  const auto eps = static_cast<float>(spec.norm_eps);
  if (spec.norm == model::ModelSpec::Norm::kLayer) return ops.layer_norm(x, n, spec.hidden, weight, bias, eps, y);
  ops.rms_norm(x, n, spec.hidden, weight, eps, y);
}

kernels::GatedUnit gated_unit(const model::ExpertSpec& expert) {
  using Kind = kernels::GatedUnit::Kind;
  return {.kind = expert.activation == model::Activation::kClampedSwiglu ? Kind::kClampedSwiglu
                  : expert.activation == model::Activation::kRelu        ? Kind::kRelu
                                                                          : Kind::kSilu,
          .alpha = static_cast<float>(expert.swiglu_alpha),
          .limit = static_cast<float>(expert.swiglu_limit)};
}

LayerMath::LayerMath(const Parts& parts, int64_t n)
    : p_(parts), hidden_(parts.spec.hidden), buffers_(parts.memory), mixers_(parts, n),
      sinusoids_(parts.spec) {
  const Widths w = widest(p_.spec);
  const auto make = [&](int64_t width) { return buffers_.make<float>(n * width); };
  h_ = make(hidden_), out_ = make(hidden_), shared_out_ = make(hidden_), shared_logit_ = make(1);
  if (w.shared_norm) shared_h_ = make(hidden_);
  gate_ = make(w.ffn), up_ = make(w.ffn), router_logits_ = make(w.experts);
  if (p_.spec.is_encoder_decoder()) cross_.emplace(parts, n);
  if (!sinusoids_.empty()) position_list_.reserve(static_cast<size_t>(n * hidden_));
}

Status LayerMath::status() const {
  MOESTRO_RETURN_IF_ERROR(mixers_.status());
  if (cross_) MOESTRO_RETURN_IF_ERROR(cross_->status());
  return buffers_.status();
}

void LayerMath::begin(const StepBatch& batch) {
  batch_ = &batch;
  rows_ = batch.rows();
  mixers_.begin(batch);
  if (cross_) cross_->begin(batch);
}

void LayerMath::scale(float* x, int64_t count, double factor) {
  if (factor != 1.0) p_.ops.scale(x, count, static_cast<float>(factor));
}

void LayerMath::embed(float* x) {
  p_.ops.gather_rows(p_.weights.embed(), batch_->ids, x);
  scale(x, rows_ * hidden_, p_.spec.embedding_scale);
  if (!sinusoids_.empty()) add_positions(x);
}

void LayerMath::add_positions(float* x) {
  position_list_.clear();
  sinusoids_.append(batch_->ids, batch_->positions, batch_->encodes, position_list_);
  send(p_.memory, out_, position_list_);
  p_.ops.add_scaled(out_, nullptr, rows_, hidden_, x);
}

void LayerMath::cross(size_t layer, const MicroBatch& of, float* x) {
  const CrossWeights& w = p_.weights.layer(layer).cross;
  norm(x, w.norm, w.norm_bias, of.rows);
  cross_->compute(layer, of, h_, {out_, x});
}

void LayerMath::norm(const float* x, const float* weight, const float* bias, TokenRange rows) {
  const int64_t at = rows.first * hidden_;
  norm_rows(p_.ops, p_.spec, x + at, rows.count, weight, bias, h_ + at);
}

void LayerMath::norm_after_attention(size_t layer, const float* x) {
  const LayerWeights& w = p_.weights.layer(layer);
  if (experts_first(layer)) return norm_for_shared(layer, x, all_rows());
  norm(x, w.post_norm, w.post_norm_bias, all_rows());
}

bool LayerMath::experts_first(size_t layer) const {
  const model::LayerSpec& spec = p_.spec.layers[layer];
  return spec.moe_index && spec.moe.before_attention;
}

void LayerMath::norm_for_shared(size_t layer, const float* x, TokenRange rows) {
  const int64_t at = rows.first * hidden_;
  norm_rows(p_.ops, p_.spec, x + at, rows.count, p_.weights.layer(layer).shared_norm, nullptr, shared_h_ + at);
}

void LayerMath::attention(size_t layer, const MicroBatch& of, std::span<const kernels::AttentionSequence> sequences,
                          float* x, bool is_normed) {
  const LayerWeights& w = p_.weights.layer(layer);
  if (!is_normed) norm(x, w.input_norm, w.input_norm_bias, of.rows);
  attention_around(layer, of, x, [&](const MixerOutput& out) {
    mixers_.of_layer(layer).compute(layer, of, sequences, h_, out);
  });
}

void LayerMath::begin_attention(size_t layer, const MicroBatch& of, const float* x) {
  const LayerWeights& w = p_.weights.layer(layer);
  norm(x, w.input_norm, w.input_norm_bias, of.rows);
  mixers_.of_layer(layer).project(layer, of, h_);
}

void LayerMath::finish_attention(size_t layer, const MicroBatch& of, float* x) {
  attention_around(layer, of, x,
                   [&](const MixerOutput& out) { mixers_.of_layer(layer).finish(layer, of, out); });
}

template <class Mix>
void LayerMath::attention_around(size_t layer, const MicroBatch& of, float* x, const Mix& mix) {
  const LayerWeights& w = p_.weights.layer(layer);
  const int64_t at = of.rows.first * hidden_;
  if (!experts_first(layer) && p_.spec.residual_scale == 1.0) {
    mix({out_, x});
    if (p_.spec.layers[layer].cross) cross(layer, of, x);
    if (!router_norms(layer)) norm(x, w.post_norm, w.post_norm_bias, of.rows);
    return;
  }
  mix({out_});
  if (experts_first(layer)) norm(x, w.post_norm, w.post_norm_bias, of.rows);
  scale(out_ + at, of.rows.count * hidden_, p_.spec.residual_scale);
  p_.ops.add_scaled(out_ + at, nullptr, of.rows.count, hidden_, x + at);
  if (!experts_first(layer)) return norm(x, w.post_norm, w.post_norm_bias, of.rows);
  norm_for_shared(layer, x, of.rows);
}

bool LayerMath::router_norms(size_t layer) const {
  const model::LayerSpec& spec = p_.spec.layers[layer];
  return spec.moe_index && !spec.moe.before_attention && p_.spec.norm == model::ModelSpec::Norm::kRms &&
         p_.spec.residual_scale == 1.0 && p_.ops.fuses(p_.weights.layer(layer).router);
}

void LayerMath::router(size_t layer, TokenRange rows, const float* x, int32_t* ids, float* weights) {
  const model::MoeSpec& moe = p_.spec.layers[layer].moe;
  const LayerWeights& w = p_.weights.layer(layer);
  if (router_norms(layer)) {
    const int64_t at = rows.first * hidden_;
    return p_.ops.norm_route({.x = x + at,
                         .n = rows.count,
                         .hidden = hidden_,
                         .norm = w.post_norm,
                         .eps = static_cast<float>(p_.spec.norm_eps),
                         .normed = h_ + at,
                         .router = w.router,
                         .bias = w.router_logit_bias,
                         .logits = router_logits_},
                        router_spec(moe, w.router_bias), ids, weights);
  }
  p_.ops.matmul(h_ + rows.first * hidden_, rows.count, w.router, w.router_logit_bias, router_logits_,
                kernels::Activations::kExact);
  p_.ops.router_top_k(router_logits_, rows.count, router_spec(moe, w.router_bias), ids, weights);
}

const float* LayerMath::activate(const MlpWeights& w, const float* h, int64_t n) {
  if (w.gate.data == nullptr) {
    p_.ops.matmul(h, n, w.up, w.up_bias, up_);
    p_.ops.relu(up_, n * w.up.rows);
    return up_;
  }
  const kernels::GroupProduct products[] = {{&w.gate, nullptr, gate_}, {&w.up, nullptr, up_}};
  p_.ops.matmul_group(h, n, products);
  p_.ops.silu_mul(gate_, up_, n * w.gate.rows);
  return gate_;
}

void LayerMath::run_mlp(const MlpWeights& w, const float* h, int64_t n, float* out) {
  const float* const activated = activate(w, h, n);
  p_.ops.matmul(activated, n, w.down, w.down_bias, out);
}

void LayerMath::dense_mlp(size_t layer, TokenRange rows, float* x) {
  const MlpWeights& w = p_.weights.layer(layer).mlp;
  const int64_t at = rows.first * hidden_, n = rows.count;
  if (p_.spec.residual_scale == 1.0) {
    const float* const activated = activate(w, h_ + at, n);
    return p_.ops.matmul_onto(activated, n, w.down, w.down_bias, out_ + at, x + at);
  }
  run_mlp(w, h_ + at, n, out_ + at);
  scale(out_ + at, n * hidden_, p_.spec.residual_scale);
  p_.ops.add_scaled(out_ + at, nullptr, n, hidden_, x + at);
}

void LayerMath::shared_expert(size_t layer, TokenRange rows) {
  const LayerWeights& w = p_.weights.layer(layer);
  const int64_t at = rows.first * hidden_, n = rows.count;
  run_mlp(w.shared, (experts_first(layer) ? shared_h_ : h_) + at, n, shared_out_ + at);
  scale(shared_out_ + at, n * hidden_, p_.spec.residual_scale);
  if (p_.spec.layers[layer].moe.shared_gate)
    p_.ops.matmul(h_ + at, n, w.shared_gate, nullptr, shared_logit_ + rows.first);
}

void LayerMath::add_shared_expert(size_t layer, TokenRange rows, float* x) {
  const bool gated = p_.spec.layers[layer].moe.shared_gate;
  const int64_t at = rows.first * hidden_;
  p_.ops.add_scaled(shared_out_ + at, gated ? shared_logit_ + rows.first : nullptr, rows.count, hidden_, x + at);
}

}  // namespace moestro::engine

#include "services/worker/engine/forward.h"

#include <algorithm>
#include <limits>

#include "services/worker/engine/visible_positions.h"

namespace moestro::engine {
namespace {

using lanes::TaskKind;
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

}  // namespace

Forward::Forward(const Parts& parts, int64_t n, bool poison) : p_(parts), poison_(poison), step_tokens_max_(n), hidden_(parts.spec.hidden), guard_(parts.ops, hidden_, n) {
  const Widths w = widest(p_.spec);
  moe_layers_ = p_.spec.moe_layers();
  top_k_ = moe_layers_ > 0 ? p_.spec.moe().top_k : 0;
  const auto make = [n](std::vector<float>& buffer, int64_t width) { buffer.resize(static_cast<size_t>(n * width)); };
  for (auto* buffer : {&x_, &h_, &out_, &shared_out_}) make(*buffer, hidden_);
  make(q_, w.q), make(attended_, w.q), make(k_, w.kv), make(v_, w.kv);
  make(gate_, w.ffn), make(up_, w.ffn), make(router_logits_, w.experts), make(shared_logit_, 1);
  make(expert_rows_, top_k_ * hidden_);
  make(route_weights_, moe_layers_ * top_k_);
  route_ids_.resize(route_weights_.size());
  if (p_.cache.shape(0).sinks == 0) return;  // of all layers alike
  make(sink_q_, w.q);
  for (auto* rotation : {&sink_cos_, &sink_sin_}) rotation->reserve(static_cast<size_t>(n * p_.spec.rope.rotary_dim / 2));
}

void Forward::begin(PlanId plan, const StepBatch& batch, lanes::TaskGraph& graph, std::vector<Status>& failed) {
  batch_ = &batch;
  graph_ = &graph;
  guard_.begin(batch, failed);
  rows_ = batch.rows();
  p_.experts.begin_step(plan, batch.row_share);
}

void Forward::set_watch(ExpertWatch* watch) {
  watch_ = watch;
  lookahead_.reset();
  if (watch != nullptr && watch->gate_lookahead() > 0)
    lookahead_.emplace(p_.spec, p_.weights, p_.ops, step_tokens_max_, watch->gate_lookahead());
}

void Forward::abandon() {
  p_.experts.abandon();
  if (watch_ != nullptr) watch_->abandon();
}

int32_t* Forward::layer_routes(size_t layer) {
  return route_ids_.data() + static_cast<int64_t>(p_.spec.layers[layer].moe_index->value) * rows_ * top_k_;
}

float* Forward::layer_weights(size_t layer) {
  return route_weights_.data() + static_cast<int64_t>(p_.spec.layers[layer].moe_index->value) * rows_ * top_k_;
}

Status Forward::run(lanes::TaskId, const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  switch (task.kind) {
    case TaskKind::kEmbed: embed(); break;
    case TaskKind::kAttention: attention(layer); break;
    case TaskKind::kRouter: route(layer); break;
    case TaskKind::kDenseMlp: dense_mlp(layer); break;
    case TaskKind::kSharedExpert: shared_expert(layer); break;
    case TaskKind::kExpert: expert(layer, task.expert); break;
    case TaskKind::kCombine: combine(layer); break;
    case TaskKind::kExpertRead:
    case TaskKind::kHead: return internal_error("a task of kind '" + std::string(task_name(task.kind)) + "' is not the forward pass's");
  }
  return Status::ok();
}

void Forward::embed() { p_.ops.gather_rows(p_.weights.embed(), batch_->ids, x_.data()); }

void Forward::project_qkv(const AttentionSpec& a, const LayerWeights& w) {
  const auto eps = static_cast<float>(p_.spec.norm_eps);
  p_.ops.matmul(h_.data(), rows_, w.q, w.q_bias, q_.data());
  p_.ops.matmul(h_.data(), rows_, w.k, w.k_bias, k_.data());
  p_.ops.matmul(h_.data(), rows_, w.v, w.v_bias, v_.data());
  if (a.qk_norm == AttentionSpec::QkNorm::kPerHead) {
    p_.ops.rms_norm(q_.data(), rows_ * a.heads, a.head_dim, w.q_norm, eps, q_.data());
    p_.ops.rms_norm(k_.data(), rows_ * a.kv_heads, a.head_dim, w.k_norm, eps, k_.data());
  } else if (a.qk_norm == AttentionSpec::QkNorm::kFullWidth) {
    p_.ops.rms_norm(q_.data(), rows_, a.heads * a.head_dim, w.q_norm, eps, q_.data());
    p_.ops.rms_norm(k_.data(), rows_, a.kv_heads * a.head_dim, w.k_norm, eps, k_.data());
  }
  if (a.clip_qkv) {
    const auto limit = static_cast<float>(*a.clip_qkv);
    p_.ops.clamp(q_.data(), rows_ * a.heads * a.head_dim, limit);
    p_.ops.clamp(k_.data(), rows_ * a.kv_heads * a.head_dim, limit);
    p_.ops.clamp(v_.data(), rows_ * a.kv_heads * a.head_dim, limit);
  }
}

const float* Forward::rotate_for_sinks(size_t layer) {
  const kernels::AttentionShape& shape = p_.cache.shape(layer);
  if (shape.sinks == 0 || !shape.has_gap(batch_->furthest)) return nullptr;
  sink_cos_.clear();
  sink_sin_.clear();
  for (const int32_t position : batch_->positions) p_.rope.append(sink_position(shape, position), sink_cos_, sink_sin_);
  std::copy_n(q_.data(), rows_ * shape.heads * shape.head_dim, sink_q_.data());
  p_.ops.rope(sink_q_.data(), rows_, shape.heads, shape.head_dim, p_.spec.rope.rotary_dim, sink_cos_.data(), sink_sin_.data());
  return sink_q_.data();
}

void Forward::attention(size_t layer) {
  const AttentionSpec& a = p_.spec.layers[layer].attention;
  const LayerWeights& w = p_.weights.layer(layer);
  const int64_t rotary = p_.spec.rope.rotary_dim;
  p_.ops.rms_norm(x_.data(), rows_, hidden_, w.input_norm, static_cast<float>(p_.spec.norm_eps), h_.data());
  project_qkv(a, w);
  const float* sink_q = rotate_for_sinks(layer);
  p_.ops.rope(q_.data(), rows_, a.heads, a.head_dim, rotary, batch_->cos.data(), batch_->sin.data());
  p_.ops.rope(k_.data(), rows_, a.kv_heads, a.head_dim, rotary, batch_->cos.data(), batch_->sin.data());
  p_.ops.kv_write(p_.cache.shape(layer), batch_->attention, k_.data(), v_.data(), p_.cache.layer(layer));
  p_.ops.attention(p_.cache.shape(layer), batch_->attention, q_.data(), sink_q, p_.cache.layer(layer), attended_.data());
  p_.ops.matmul(attended_.data(), rows_, w.o, w.o_bias, out_.data());
  p_.ops.add_scaled(out_.data(), nullptr, rows_, hidden_, x_.data());
  p_.ops.rms_norm(x_.data(), rows_, hidden_, w.post_norm, static_cast<float>(p_.spec.norm_eps), h_.data());
}

void Forward::route(size_t layer) {
  const model::MoeSpec& moe = p_.spec.layers[layer].moe;
  p_.ops.matmul(h_.data(), rows_, p_.weights.layer(layer).router, nullptr, router_logits_.data(), kernels::Activations::kExact);
  int32_t* ids = layer_routes(layer);
  p_.ops.router_top_k(router_logits_.data(), rows_, {.experts = moe.experts, .top_k = top_k_, .normalise = moe.normalise_top_k}, ids, layer_weights(layer));
  const std::span<const int32_t> chosen(ids, static_cast<size_t>(rows_ * top_k_));
  if (poison_) std::fill(expert_rows_.begin(), expert_rows_.end(), std::numeric_limits<float>::quiet_NaN());
  const auto routed = p_.experts.route(*p_.spec.layers[layer].moe_index, chosen, top_k_, guard_.left_out());
  clear_rows(p_.experts.dropped());
  if (watch_ != nullptr) tell_watch(*p_.spec.layers[layer].moe_index, chosen, routed);
  p_.schedule.expand(static_cast<int32_t>(layer), routed, *graph_);
}

void Forward::tell_watch(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> routed) {
  // First what is wanted now, so that its copies run while the next routers are asked.
  watch_->routed(layer, ids, routed, p_.experts.uses());
  if (lookahead_) {
    const GateLookahead::Answer answer = lookahead_->ask(layer, watch_->gate_lookahead(), x_.data(), rows_);
    if (answer.layers > 0) watch_->guessed(layer, answer.layers, answer.logits);
  }
  watch_->foresee(layer);
}

Result<bool> Forward::start(lanes::TaskId id, const lanes::Task& task) { return p_.experts.acquire(id, task.expert); }

Result<lanes::TaskId> Forward::wait_any() {
  MOESTRO_ASSIGN_OR_RETURN(const ExpertDispatch::Arrival arrival, p_.experts.wait());
  if (!arrival.status.is_ok()) fail_users((*graph_)[arrival.read].expert, arrival.status);
  return arrival.read;
}

void Forward::fail_users(int32_t expert, const Status& why) {
  for (const kernels::RoutedRow& r : p_.experts.rows(expert)) guard_.fail(batch_->sequence_of[static_cast<size_t>(r.token)], why);
}

void Forward::clear_rows(std::span<const kernels::RoutedRow> rows) {
  for (const kernels::RoutedRow& r : rows) std::fill_n(expert_rows_.data() + (r.token * top_k_ + r.rank) * hidden_, hidden_, 0.0f);
}

void Forward::expert(size_t layer, int32_t expert) {
  (void)layer;
  const auto rows = p_.experts.rows(expert);
  if (const std::byte* blob = p_.experts.data(expert)) {
    p_.ops.expert_ffn(p_.layout, blob, h_.data(), rows, top_k_, expert_rows_.data());
    p_.experts.release(expert);
    return;
  }
  // It could not be read: its sequences have failed, and their rows must not carry what an earlier layer left here.
  clear_rows(rows);
}

void Forward::combine(size_t layer) {
  p_.ops.combine(expert_rows_.data(), layer_weights(layer), rows_, top_k_, hidden_, x_.data());
  if (p_.spec.layers[layer].moe.shared_ffn > 0) {
    const bool gated = p_.spec.layers[layer].moe.shared_gate;
    p_.ops.add_scaled(shared_out_.data(), gated ? shared_logit_.data() : nullptr, rows_, hidden_, x_.data());
  }
  guard_.check(layer, x_.data());
}

void Forward::run_mlp(const MlpWeights& w, const float* x, float* out) {
  p_.ops.matmul(x, rows_, w.gate, nullptr, gate_.data());
  p_.ops.matmul(x, rows_, w.up, nullptr, up_.data());
  p_.ops.silu_mul(gate_.data(), up_.data(), rows_ * w.gate.rows);
  p_.ops.matmul(gate_.data(), rows_, w.down, nullptr, out);
}

void Forward::dense_mlp(size_t layer) {
  run_mlp(p_.weights.layer(layer).mlp, h_.data(), out_.data());
  p_.ops.add_scaled(out_.data(), nullptr, rows_, hidden_, x_.data());
  guard_.check(layer, x_.data());
}

void Forward::shared_expert(size_t layer) {
  const LayerWeights& w = p_.weights.layer(layer);
  run_mlp(w.shared, h_.data(), shared_out_.data());
  if (p_.spec.layers[layer].moe.shared_gate) p_.ops.matmul(h_.data(), rows_, w.shared_gate, nullptr, shared_logit_.data());
}

}  // namespace moestro::engine

#include "services/worker/engine/forward.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moestro::engine {

using lanes::TaskKind;

Forward::Forward(const Parts& parts, const EngineOptions& options)
    : p_(parts),
      poison_(options.poison_kv),
      floor_(options.compute_floor, parts.clock),
      step_tokens_max_(options.step_tokens_max),
      hidden_(parts.math.spec.hidden),
      guard_(parts.math.ops, hidden_, step_tokens_max_),
      math_(parts.math, step_tokens_max_) {
  const int64_t n = step_tokens_max_;
  moe_layers_ = spec().moe_layers();
  top_k_ = moe_layers_ > 0 ? spec().moe().top_k : 0;
  x_.resize(static_cast<size_t>(n * hidden_));
  expert_rows_.resize(static_cast<size_t>(n * top_k_ * hidden_));
  route_weights_.resize(static_cast<size_t>(n * moe_layers_ * top_k_));
  route_ids_.resize(route_weights_.size());
}

void Forward::begin(PlanId plan, const StepBatch& batch, std::vector<Status>& failed) {
  batch_ = &batch;
  guard_.begin(batch, failed);
  rows_ = batch.rows();
  math_.begin(batch);
  p_.experts.begin_step(plan, batch.row_share);
}

void Forward::set_watch(ExpertWatch* watch) {
  watch_ = watch;
  lookahead_.reset();
  if (watch != nullptr && watch->gate_lookahead() > 0)
    lookahead_.emplace(spec(), p_.math.weights, ops(), p_.math.memory, step_tokens_max_, watch->gate_lookahead());
}

void Forward::abandon() {
  forecast_due_.reset();
  p_.experts.abandon();
  if (watch_ != nullptr) watch_->abandon();
}

int32_t* Forward::layer_routes(size_t layer) {
  return route_ids_.data() + static_cast<int64_t>(spec().layers[layer].moe_index->value) * rows_ * top_k_;
}

float* Forward::layer_weights(size_t layer) {
  return route_weights_.data() + static_cast<int64_t>(spec().layers[layer].moe_index->value) * rows_ * top_k_;
}

Status Forward::compute(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  switch (task.kind) {
    case TaskKind::kEmbed: math_.embed(x_.data()); break;
    case TaskKind::kAttention: floor_.run([&] { math_.attention(layer, x_.data()); }); break;
    case TaskKind::kRouter: route(layer); break;
    case TaskKind::kDenseMlp: dense_mlp(layer); break;
    case TaskKind::kSharedExpert: math_.shared_expert(layer); break;
    case TaskKind::kExpert: expert(task.expert); break;
    case TaskKind::kCombine: combine(layer); break;
    case TaskKind::kExpertRead:
    case TaskKind::kLayerExperts:
    case TaskKind::kHead:
      return internal_error("a task of kind '" + std::string(task_name(task.kind)) + "' is not the forward pass's");
  }
  return Status::ok();
}

void Forward::route(size_t layer) {
  int32_t* ids = layer_routes(layer);
  math_.router(layer, ids, layer_weights(layer));
  const std::span<const int32_t> chosen(ids, static_cast<size_t>(rows_ * top_k_));
  if (poison_) std::fill(expert_rows_.begin(), expert_rows_.end(), std::numeric_limits<float>::quiet_NaN());
  const auto routed = p_.experts.route(*spec().layers[layer].moe_index, chosen, top_k_, guard_.left_out());
  clear_rows(p_.experts.dropped());
  if (watch_ != nullptr) tell_watch(*spec().layers[layer].moe_index, chosen, routed);
  p_.machine.routed(static_cast<int32_t>(layer), routed);
}

void Forward::tell_watch(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> routed) {
  // First what is wanted now, so that its copies run while the next routers are asked.
  watch_->routed(layer, ids, routed, p_.experts.uses());
  if (lookahead_) {
    const GateLookahead::Answer answer = lookahead_->ask(layer, watch_->gate_lookahead(), x_.data(), rows_);
    if (answer.layers > 0) watch_->guessed(layer, answer.layers, {answer.logits, static_cast<size_t>(answer.count)});
  }
  forecast_due_ = layer;
}

Status Forward::start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) {
  for (const lanes::TaskId id : tasks) {
    const lanes::Task task = p_.machine[id];  // a copy: a router adds to the tasks
    if (lane == lanes::Lane::kStoreRead) {
      if (p_.experts.acquire(id, task.expert)) ended.push_back(id);
      continue;
    }
    MOESTRO_RETURN_IF_ERROR(compute(task));
    ended.push_back(id);
  }
  return Status::ok();
}

Status Forward::wait_any(std::vector<lanes::TaskId>& ended) {
  MOESTRO_ASSIGN_OR_RETURN(const ExpertDispatch::Arrival arrival, p_.experts.wait());
  if (!arrival.status.is_ok()) fail_users(p_.machine[arrival.read].expert, arrival.status);
  ended.push_back(arrival.read);
  return Status::ok();
}

/// Once what the layer lacks has been requested: what it foresees must not be read before that.
void Forward::forecast() {
  if (forecast_due_) watch_->foresee(*std::exchange(forecast_due_, std::nullopt));
}

Status Forward::flush() {
  const Status requested = p_.experts.request_missing();
  forecast();
  return requested;
}

void Forward::fail_users(int32_t expert, const Status& why) {
  for (const kernels::RoutedRow& r : p_.experts.rows(expert))
    guard_.fail(batch_->sequence_of[static_cast<size_t>(r.token)], why);
}

void Forward::clear_rows(std::span<const kernels::RoutedRow> rows) {
  for (const kernels::RoutedRow& r : rows)
    std::fill_n(expert_rows_.data() + (r.token * top_k_ + r.rank) * hidden_, hidden_, 0.0f);
}

void Forward::expert(int32_t expert) {
  forecast();
  const auto rows = p_.experts.rows(expert);
  if (const std::byte* blob = p_.experts.data(expert)) {
    floor_.run([&] { ops().expert_ffn(p_.layout, blob, math_.h(), rows, top_k_, expert_rows_.data()); });
    const Status used = p_.experts.release(expert);
    if (used.is_ok()) return;
    fail_users(expert, used);
  }
  // It could not be had: its sequences have failed, and their rows must not carry what an earlier layer left here.
  clear_rows(rows);
}

void Forward::combine(size_t layer) {
  forecast();
  ops().combine(expert_rows_.data(), layer_weights(layer), rows_, top_k_, hidden_, x_.data());
  if (spec().layers[layer].moe.shared_ffn > 0) math_.add_shared_expert(layer, x_.data());
  guard_.check(layer, x_.data());
}

void Forward::dense_mlp(size_t layer) {
  math_.dense_mlp(layer, x_.data());
  guard_.check(layer, x_.data());
}

}  // namespace moestro::engine

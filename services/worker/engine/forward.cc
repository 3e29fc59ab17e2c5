#include "services/worker/engine/forward.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moestro::engine {

using lanes::TaskKind;

namespace {
constexpr std::chrono::milliseconds kKvWait{1000};
constexpr int kKvWaitsMax = 300;
}  // namespace

Forward::Forward(const Parts& parts, const EngineOptions& options)
    : p_(parts),
      poison_(options.poison_kv),
      release_early_(options.parts.release_early),
      floor_(options.compute_floor, parts.clock),
      step_tokens_max_(options.step_tokens_max),
      hidden_(parts.math.spec.hidden),
      gated_(gated_unit(parts.math.spec.moe().expert)),
      guard_(parts.math.ops, hidden_, step_tokens_max_),
      math_(parts.math, step_tokens_max_) {
  const int64_t n = step_tokens_max_;
  moe_layers_ = spec().moe_layers();
  top_k_ = moe_layers_ > 0 ? spec().moe().top_k : 0;
  x_.resize(static_cast<size_t>(n * hidden_));
  expert_rows_.resize(static_cast<size_t>(n * top_k_ * hidden_));
  route_weights_.resize(static_cast<size_t>(n * moe_layers_ * top_k_));
  route_ids_.resize(route_weights_.size());
  if (moe_layers_ > 0 && spec().moe().router.on_input) {
    expert_inputs_.resize(expert_rows_.size());
    input_rows_.reserve(static_cast<size_t>(n * top_k_));
    ones_.assign(static_cast<size_t>(n * top_k_), 1.0F);
  }
  if (spec().is_encoder_decoder() && moe_layers_ > 0) {
    beyond_.reserve(static_cast<size_t>(n * top_k_));
    taken_.reserve(static_cast<size_t>(spec().moe().experts));
  }
  if (parts.kv_link != nullptr)
    kv_.emplace(parts.math.cache, spec(), *parts.kv_link, poison_ ? &parts.math.memory : nullptr);
  if (parts.kv_link != nullptr && parts.host_ops != nullptr)
    host_.emplace(parts.math, math_, *parts.host_ops, *parts.kv_link, parts.clock, n);
}

Status Forward::status() const {
  MOESTRO_RETURN_IF_ERROR(math_.status());
  return host_ ? host_->status() : Status::ok();
}

void Forward::begin(PlanId plan, const StepBatch& batch, std::vector<Status>& failed) {
  batch_ = &batch;
  guard_.begin(batch, failed);
  rows_ = batch.rows();
  routed_layer_ = -1;
  is_watched_ = watch_ != nullptr && watch_->wants_routes();
  math_.begin(batch);
  if (kv_) kv_->begin(batch);
  if (host_) host_->begin(batch);
  p_.experts.begin_step(plan, batch.micro_batches, batch.row_share);
}

void Forward::set_watch(ExpertWatch* watch) {
  watch_ = watch;
  lookahead_.reset();
  if (watch != nullptr && watch->gate_lookahead() > 0)
    lookahead_.emplace(spec(), p_.math.weights, ops(), p_.math.memory, step_tokens_max_, watch->gate_lookahead());
}

void Forward::abandon() {
  forecast_due_.reset();
  held_.clear();
  weights_awaited_.reset();
  if (host_) host_->abandon();
  if (kv_) kv_->abandon();
  p_.experts.abandon();
  if (p_.stream != nullptr) p_.stream->abandon();
  if (watch_ != nullptr) watch_->abandon();
}

Status Forward::compute(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  switch (task.kind) {
    case TaskKind::kEmbed: math_.embed(x_.data()); break;
    case TaskKind::kAttention: attention(task); break;
    case TaskKind::kRouter: route(task); break;
    case TaskKind::kDenseMlp: dense_mlp(task); break;
    case TaskKind::kSharedExpert: math_.shared_expert(layer, rows_of(task)); break;
    case TaskKind::kExpert: expert(task); break;
    case TaskKind::kCombine: combine(task); break;
    case TaskKind::kQkv:
      floor_.run([&] { math_.begin_attention(layer, micro_batch(task), x_.data()); });
      break;
    case TaskKind::kOutput:
      floor_.run([&] { math_.finish_attention(layer, micro_batch(task), x_.data()); });
      break;
    case TaskKind::kExpertRead:
    case TaskKind::kLayerExperts:
    case TaskKind::kHead:
    case TaskKind::kWeightRead:
    case TaskKind::kKvLoad:
    case TaskKind::kKvSave:
    case TaskKind::kQkvSend:
    case TaskKind::kAttend:
    case TaskKind::kHiddenLoad: return lanes::cannot_run("the forward pass", task);
  }
  return Status::ok();
}

/// What it does on the thread that runs the step, and reads.
bool Forward::computes(const lanes::Task& task) const {
  const bool in_parts = task.kind == TaskKind::kQkv || task.kind == TaskKind::kOutput;
  return lanes::is_layerwise(task) || (host_ && in_parts && task.lane == lanes::Lane::kCompute);
}

void Forward::attention(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  const MicroBatch& of = micro_batch(task);
  floor_.run([&] {
    if (kv_) math_.attention(layer, of, kv_->sequences(task.layer, task.micro_batch), x_.data());
    else math_.attention(layer, of, x_.data());
  });
}

void Forward::route(const lanes::Task& task) {
  const LayerPart part = part_of(task);
  const TokenRange rows = micro_batch(task).rows;
  const int64_t first = rows.first * top_k_, count = rows.count * top_k_;
  int32_t* const ids = routes_of(part.layer) + first;
  math_.router(static_cast<size_t>(task.layer), rows, x_.data(), ids, weights_of(part.layer) + first);
  if (!expert_inputs_.empty()) weight_inputs(rows, weights_of(part.layer) + first);
  if (poison_)
    std::fill_n(expert_rows_.begin() + first * hidden_, count * hidden_, std::numeric_limits<float>::quiet_NaN());
  const std::span<const int32_t> chosen(ids, static_cast<size_t>(count));
  const auto routed = p_.experts.route(part, chosen, top_k_, guard_.left_out(),
                                       {weights_of(part.layer) + first, static_cast<size_t>(count)},
                                       beyond_room(micro_batch(task), chosen));
  clear_rows(p_.experts.dropped(part));
  routed_layer_ = static_cast<int32_t>(part.layer.value);
  if (is_watched_ && p_.experts.is_routed(part.layer)) tell_watch(part.layer);
  p_.machine.routed(task.layer, task.micro_batch, routed);
}

std::span<const uint8_t> Forward::beyond_room(const MicroBatch& of, std::span<const int32_t> ids) {
  const int64_t room = spec().moe().router.sequence_rows;
  if (!batch_->encodes || room == 0) return {};
  beyond_.assign(ids.size(), 0);
  for (uint32_t s = of.sequences.first; s < of.sequences.first + of.sequences.count; ++s) {
    taken_.assign(static_cast<size_t>(spec().moe().experts), 0);
    const int64_t first = (batch_->attention[s].first_token - of.rows.first) * top_k_;
    for (int64_t i = first; i < first + batch_->attention[s].tokens * top_k_; ++i) {
      const auto choice = static_cast<size_t>(i);
      beyond_[choice] = ++taken_[static_cast<size_t>(ids[choice])] > room;
    }
  }
  return beyond_;
}

void Forward::weight_inputs(TokenRange rows, const float* weights) {
  ops().scale_rows(math_.h() + rows.first * hidden_, weights, rows.count, top_k_, hidden_,
                   expert_inputs_.data() + rows.first * top_k_ * hidden_);
}

void Forward::tell_watch(MoeLayerId layer) {
  watch_->routed(layer, {routes_of(layer), static_cast<size_t>(rows_ * top_k_)},
                 p_.experts.routed({layer, lanes::kAllMicroBatches}), p_.experts.uses(layer));
  if (lookahead_) {
    const GateLookahead::Answer answer = lookahead_->ask(layer, watch_->gate_lookahead(), x_.data(), rows_);
    if (answer.layers > 0) watch_->guessed(layer, answer.layers, {answer.logits, static_cast<size_t>(answer.count)});
  }
  forecast_due_ = layer;
}

Status Forward::start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) {
  for (const lanes::TaskId id : tasks) {
    const lanes::Task task = p_.machine[id];  // a copy: a router adds to the tasks
    if (kv_ && lanes::is_kv_move(task)) {
      if (!kv_->start(id, task)) ended.push_back(id);
      continue;
    }
    if (host_ && HostAttention::does(task)) {
      host_->start(id, task);
      continue;
    }
    if (task.kind == TaskKind::kWeightRead && p_.stream != nullptr) {
      if (p_.stream->try_hold(static_cast<size_t>(task.layer))) ended.push_back(id);
      else weights_awaited_ = id;
      continue;
    }
    if (!computes(task)) return lanes::cannot_run("the forward pass", task);
    if (lane == lanes::Lane::kStoreRead) {
      if (p_.experts.acquire(id, part_of(task).layer, task.expert)) ended.push_back(id);
      continue;
    }
    MOESTRO_RETURN_IF_ERROR(compute(task));
    ended.push_back(id);
  }
  return Status::ok();
}

void Forward::poll(std::vector<lanes::TaskId>& ended) {
  take_moved(ended);
}

void Forward::take_moved(std::vector<lanes::TaskId>& ended) {
  if (kv_) kv_->take_ended(ended);
  if (host_) host_->take_ended(ended);
}

Status Forward::wait_any(std::vector<lanes::TaskId>& ended) {
  const auto moved = [&] {
    take_moved(ended);
    return !ended.empty();
  };
  if (weights_awaited_) {  // a layer begins with them: KV alone may be under way meanwhile
    MOESTRO_ASSIGN_OR_RETURN(const bool came,
                             p_.stream->wait(static_cast<size_t>(p_.machine[*weights_awaited_].layer), moved));
    if (came) ended.push_back(*std::exchange(weights_awaited_, std::nullopt));
    return Status::ok();
  }
  if (!moves_are_under_way()) {
    MOESTRO_ASSIGN_OR_RETURN(const lanes::TaskId read, p_.experts.wait());
    ended.push_back(read);
    return Status::ok();
  }
  for (int waits = 0; !moved() && !p_.experts.waits(); ++waits) {
    if (waits == kKvWaitsMax) return unavailable("nothing has crossed the link for five minutes");
    p_.kv_link->wait(kKvWait);
  }
  if (!ended.empty()) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const lanes::TaskId read, p_.experts.wait(moved));
  if (read >= 0) ended.push_back(read);
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

void Forward::fail_users(LayerPart part, int32_t expert, const Status& why) {
  for (const kernels::RoutedRow& r : p_.experts.rows(part, expert))
    guard_.fail(batch_->sequence_of[static_cast<size_t>(r.token)], why);
}

void Forward::clear_rows(std::span<const kernels::RoutedRow> rows) {
  for (const kernels::RoutedRow& r : rows)
    std::fill_n(expert_rows_.data() + (r.token * top_k_ + r.rank) * hidden_, hidden_, 0.0f);
}

void Forward::expert(const lanes::Task& task) {
  forecast();
  const LayerPart part = part_of(task);
  const auto rows = p_.experts.rows(part, task.expert);
  if (const std::byte* blob = p_.experts.data(part.layer, task.expert)) {
    floor_.run([&] { run_expert(part, task.expert, blob, rows); });
    const Status used = release(part, task.expert);
    if (used.is_ok()) return;
    fail_users(part, task.expert, used);
  } else {
    fail_users(part, task.expert, p_.experts.failure(part.layer, task.expert));
    (void)p_.experts.release(part, task.expert);  // there is no lease that could be found wrong
  }
  // The failed sequences' rows must not carry what an earlier layer left here.
  clear_rows(rows);
}

void Forward::run_expert(LayerPart part, int32_t expert, const std::byte* blob,
                         std::span<const kernels::RoutedRow> rows) {
  const ExpertLayout& layout = p_.layouts.of(p_.experts.copy(part.layer, expert), part.layer);
  if (expert_inputs_.empty())
    return ops().expert_ffn(layout, blob, math_.h(), rows, top_k_, expert_rows_.data(), gated_);
  // Each choice has an input of its own, which is a token of one choice to the kernel.
  rows_of_choices(rows, top_k_, input_rows_);
  ops().expert_ffn(layout, blob, expert_inputs_.data(), input_rows_, 1, expert_rows_.data(), gated_);
}

Status Forward::release(LayerPart part, int32_t expert) {
  if (release_early_) return p_.experts.release(part, expert);
  held_.push_back({part, expert});
  return Status::ok();
}

void Forward::release_held() {
  for (const HeldExpert& h : held_)
    if (const Status used = p_.experts.release(h.part, h.expert); !used.is_ok()) {
      fail_users(h.part, h.expert, used);
      clear_rows(p_.experts.rows(h.part, h.expert));
    }
  held_.clear();
}

void Forward::combine(const lanes::Task& task) {
  forecast();
  release_held();
  const auto layer = static_cast<size_t>(task.layer);
  const TokenRange rows = rows_of(task);
  const int64_t first = int64_t{rows.first} * top_k_;
  const float* const weights = ones_.empty() ? weights_of(*spec().layers[layer].moe_index) : ones_.data();
  ops().combine(expert_rows_.data() + first * hidden_, weights + first, rows.count, top_k_, hidden_,
                x_.data() + rows.first * hidden_);
  if (spec().layers[layer].moe.shared_ffn > 0) math_.add_shared_expert(layer, rows, x_.data());
  end_layer(layer, rows);
}

void Forward::dense_mlp(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  math_.dense_mlp(layer, rows_of(task), x_.data());
  end_layer(layer, rows_of(task));
}

/// Of these rows.
void Forward::end_layer(size_t layer, TokenRange rows) {
  if (p_.stream != nullptr) p_.stream->release(layer);
  guard_.check(layer, rows, x_.data());
}

}  // namespace moestro::engine

#include "services/worker/cuda/group_pass.h"

#include <sys/prctl.h>

#include <cstring>
#include <thread>
#include <utility>

#include "common/log.h"
#include "services/worker/engine/pass_schedule.h"

namespace moestro::cuda {
namespace {

using lanes::TaskKind;

constexpr auto kLook = std::chrono::microseconds(50);  ///< between two looks at what is awaited
constexpr Nanos kPatience = std::chrono::minutes(5);   ///< as of who waits for experts alone

}  // namespace

GroupPass::GroupPass(const engine::PassParts& parts, const CudaParts& cuda)
    : p_(parts),
      ops_(cuda.ops),
      queue_(cuda.ops.queue()),
      memory_(cuda.memory),
      slots_(cuda.slots),
      schedule_(engine::make_schedule(parts)),
      machine_(*schedule_, lanes::kStreamComputes),
      driver_(parts.clock),
      step_(parts, cuda.ops, cuda.memory, cuda.host_ops),
      kv_blocks_(cuda.ops, parts.math.cache),
      buffers_(cuda.memory),
      x_(buffers_.make<float>(parts.options.step_tokens_max * spec().hidden)) {
  if (cuda.graphs) log::info("decode steps are not launched as graphs: the schedule is not layerwise");
  if (parts.kv_link != nullptr)
    kv_.emplace(parts.math.cache, spec(), *parts.kv_link, parts.options.poison_kv ? &memory_ : nullptr);
  if (parts.host_ops != nullptr)
    host_.emplace(parts.math, step_.math(), *parts.host_ops, *parts.kv_link, parts.clock,
                  parts.options.step_tokens_max);
}

GroupPass::~GroupPass() {
  (void)queue_.functions.wait_stream(queue_.stream);
  for (const Awaited& a : awaited_) events_.push_back(a.end);
  for (MoestroCudaEvent event : events_) (void)queue_.functions.end_event(event);
}

Status GroupPass::status() const {
  MOESTRO_RETURN_IF_ERROR(step_.status());
  if (host_) MOESTRO_RETURN_IF_ERROR(host_->status());
  return buffers_.status();
}

void GroupPass::set_watch(engine::ExpertWatch* watch) {
  watch_ = watch;
  step_.set_watch(watch);
}

engine::DeviceWork GroupPass::device_work() const {
  if (!kv_) return {};
  return {.kv_in_bytes = static_cast<uint64_t>(kv_->loaded_bytes()),
          .kv_out_bytes = static_cast<uint64_t>(kv_->saved_bytes())};
}

/// Between steps, when blocks of any home are where their home is.
void GroupPass::copy_kv(std::span<const KvCopy> copies) {
  const engine::KvCache& cache = p_.math.cache;
  if (!cache.has_places()) return kv_blocks_.copy(copies);
  const auto stays = [&](uint32_t block) { return block < cache.resident_blocks(); };
  for (const KvCopy& c : copies)
    for (size_t l = 0; l < cache.layers() && c.from != c.to; ++l) {
      std::byte* const to = cache.block(l, c.to);
      const std::byte* const from = cache.block(l, c.from);
      const int64_t bytes = cache.block_bytes(l);
      if (bytes == 0) continue;
      if (stays(c.from) && stays(c.to)) memory_.copy(to, from, bytes);
      else if (stays(c.from)) memory_.copy_out(to, from, bytes);
      else if (stays(c.to)) memory_.copy_in(to, from, bytes);
      else std::memcpy(to, from, static_cast<size_t>(bytes));
    }
}

// --- a step ---

Result<lanes::ExecutionTotals> GroupPass::run(const engine::StepPlan& plan, const engine::StepBatch& batch,
                                              std::vector<Status>& failed,
                                              std::vector<engine::SequenceOutcome>& outcomes) {
  const Nanos begin = p_.clock.now();
  prctl(PR_SET_TIMERSLACK, 1UL);  // of this thread: the kernel's slack is as long as kLook
  if (timeline_ != nullptr) timeline_->begin_step(plan.id.value);
  step_.begin(plan, batch, failed);
  routers_queued_ = 0, head_queued_ = false;
  if (kv_) kv_->begin(batch);
  if (host_) host_->begin(batch);
  machine_.begin(engine::step_shape(batch));
  auto totals = driver_.run(machine_, *this, timeline_);
  if (const Status ended = totals.is_ok() ? end_without_head() : totals.status(); !ended.is_ok()) {
    totals = ended;
    abandon();
  }
  if (totals.is_ok()) {
    kv_blocks_.settled();
    step_.finish(failed, outcomes);
  }
  if (p_.kv_link != nullptr) engine::draw_kv(*p_.kv_link, carried_, timeline_);
  if (host_) host_->draw(timeline_);
  if (timeline_ != nullptr) timeline_->end_step();
  if (!totals.is_ok()) return totals;
  if (p_.stream != nullptr) totals->stalled += p_.stream->stalled();
  totals->elapsed = p_.clock.now() - begin;
  totals->busy[static_cast<int>(lanes::Lane::kCompute)] = totals->elapsed - totals->stalled;
  return totals;
}

/// A step whose rows need no logits has no such task; what its head reads of rows that are not finite is read.
Status GroupPass::end_without_head() {
  if (head_queued_) return Status::ok();
  step_.head();
  return ops_.wait();
}

/// What has been queued reads and writes memory until it has ended.
void GroupPass::abandon() {
  (void)queue_.functions.wait_stream(queue_.stream);
  for (const Awaited& a : awaited_) events_.push_back(a.end);
  awaited_.clear();
  used_.clear();
  forecast_due_.reset();
  dense_of_.reset();
  if (host_) host_->abandon();
  if (kv_) kv_->abandon();
  p_.experts.abandon();
  if (p_.stream != nullptr) p_.stream->abandon();
  if (watch_ != nullptr) watch_->abandon();
}

Status GroupPass::start(lanes::Lane lane, std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) {
  if (lane == lanes::Lane::kCompute) return queue(tasks, ended);
  for (const lanes::TaskId id : tasks) {
    const lanes::Task& task = machine_[id];
    if (kv_ && lanes::is_kv_move(task)) {
      if (!kv_->start(id, task)) ended.push_back(id);
    } else if (host_ && engine::HostAttention::does(task)) {
      host_->start(id, task);
    } else if (task.kind == TaskKind::kExpertRead && lane == lanes::Lane::kStoreRead) {
      if (p_.experts.acquire(id, part_of(task).layer, task.expert)) ended.push_back(id);
    } else {
      return lanes::cannot_run("the CUDA pass of groups", task);
    }
  }
  return ops_.status();
}

/// What the layer lacks has been requested before what is foreseen is read.
Status GroupPass::flush() {
  const Status requested = p_.experts.request_missing();
  forecast();
  return requested;
}

void GroupPass::forecast() {
  if (forecast_due_) watch_->foresee(*std::exchange(forecast_due_, std::nullopt));
}

// --- queued ---

/// Meanwhile KV goes on, of which few bytes are queued at a time.
Status GroupPass::queue(std::span<const lanes::TaskId> tasks, std::vector<lanes::TaskId>& ended) {
  forecast();
  for (const lanes::TaskId id : tasks) {
    poll(ended);
    const lanes::Task task = machine_[id];
    MOESTRO_RETURN_IF_ERROR(queue_one(task));
    const bool routes = task.kind == TaskKind::kRouter;
    if (!routes && !goes_on_elsewhere(task) && id != tasks.back()) continue;
    const MoestroCudaEvent end = obtain_event();
    if (routes) step_.send_ids(static_cast<size_t>(task.layer), micro_batch(task).rows, end);
    else if (queue_.error == 0)
      queue_.note("record_event", queue_.functions.record_event(end, queue_.stream));
    awaited_.push_back({id, end});
  }
  step_.marks().end();
  if (p_.options.parts.release_early) MOESTRO_RETURN_IF_ERROR(let_experts_go());
  return ops_.status();
}

/// Whether what it has computed is to leave the device. Behind attention with experts, the host learns it from the
/// router.
bool GroupPass::goes_on_elsewhere(const lanes::Task& task) const {
  if (task.kind == TaskKind::kQkv) return true;
  return kv_ && task.kind == TaskKind::kAttention && !spec().layers[static_cast<size_t>(task.layer)].moe_index;
}

Status GroupPass::queue_one(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  if (task.kind == TaskKind::kAttention) MOESTRO_RETURN_IF_ERROR(hold_dense(layer));
  if (task.kind != TaskKind::kHead) step_.marks().begin(task.kind, task.layer, task.expert, task.micro_batch);
  switch (task.kind) {
    case TaskKind::kEmbed: step_.math().embed(x_); break;
    case TaskKind::kAttention: attention(task); break;
    case TaskKind::kRouter:
      step_.route(layer, micro_batch(task).rows, x_);
      if (++routers_queued_ % step_.batch().micro_batches.size() == 0) step_.guess(layer, x_);  // the layer's last
      break;
    case TaskKind::kSharedExpert: step_.math().shared_expert(layer, rows_of(task)); break;
    case TaskKind::kQkv: step_.math().begin_attention(layer, micro_batch(task), x_); break;
    case TaskKind::kOutput: step_.math().finish_attention(layer, micro_batch(task), x_); break;
    case TaskKind::kExpert: expert(task); break;
    case TaskKind::kCombine:
      step_.combine(layer, rows_of(task), x_, x_);
      MOESTRO_RETURN_IF_ERROR(let_experts_go());
      return let_dense_go();
    case TaskKind::kDenseMlp:
      step_.dense_mlp(layer, rows_of(task), x_);
      return let_dense_go();
    case TaskKind::kHead:
      head_queued_ = true;
      step_.head();
      break;
    default: return lanes::cannot_run("the CUDA pass of groups", task);
  }
  return Status::ok();
}

void GroupPass::attention(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  const engine::MicroBatch& of = micro_batch(task);
  kv_blocks_.before_layer(layer);
  const bool is_normed = layer > 0;  // by the end of the layer before, for all rows
  if (kv_) step_.math().attention(layer, of, kv_->sequences(task.layer, task.micro_batch), x_, is_normed);
  else step_.math().attention(layer, of, x_, is_normed);
}

void GroupPass::expert(const lanes::Task& task) {
  const engine::LayerPart part = part_of(task);
  if (p_.experts.data(part.layer, task.expert) != nullptr) {
    step_.compute_expert(part, task.expert);
    used_.push_back({part, task.expert});
    return;
  }
  step_.fail_users(part, task.expert, p_.experts.failure(part.layer, task.expert));
  (void)p_.experts.release(part, task.expert);  // there is no lease that could be found wrong
  step_.clear_rows(p_.experts.rows(part, task.expert));
}

/// Nothing is held while the host waits: what is queued reads its slot before the next copy into it.
Status GroupPass::let_experts_go() {
  if (used_.empty()) return Status::ok();
  MOESTRO_RETURN_IF_ERROR(slots_.launched());
  for (const UsedExpert& used : used_) step_.release(used.part, used.expert);
  used_.clear();
  return Status::ok();
}

Status GroupPass::hold_dense(size_t layer) {
  if (p_.stream == nullptr || !p_.stream->streams(layer) || dense_of_ == layer) return Status::ok();
  dense_of_ = layer;
  return p_.stream->try_hold(layer) ? Status::ok() : step_.wait_for_dense(layer);
}

Status GroupPass::let_dense_go() {
  if (!dense_of_) return Status::ok();
  const size_t layer = *std::exchange(dense_of_, std::nullopt);
  MOESTRO_RETURN_IF_ERROR(slots_.launched());
  slots_.dense_read(*p_.math.weights.streamed_blob(layer));
  p_.stream->release(layer);
  return Status::ok();
}

// --- what the host waits for ---

MoestroCudaEvent GroupPass::obtain_event() {
  MoestroCudaEvent event = nullptr;
  if (events_.empty()) {
    queue_.note("make_event", queue_.functions.make_event(0, &event));
    return event;
  }
  event = events_.back();
  events_.pop_back();
  return event;
}

Result<bool> GroupPass::is_reached(MoestroCudaEvent end) {
  MOESTRO_RETURN_IF_ERROR(ops_.status());
  const MoestroCudaResult result = queue_.functions.query_event(end);
  if (result == MOESTRO_CUDA_NOT_READY) return false;
  queue_.note("query_event", result);
  MOESTRO_RETURN_IF_ERROR(ops_.status());
  return true;
}

bool GroupPass::is_computing() {
  return !awaited_.empty() && queue_.functions.query_event(awaited_.back().end) == MOESTRO_CUDA_NOT_READY;
}

void GroupPass::poll(std::vector<lanes::TaskId>& ended) {
  if (kv_) kv_->take_ended(ended);
  if (host_) host_->take_ended(ended);
}

Status GroupPass::end_first(std::vector<lanes::TaskId>& ended) {
  const Awaited first = awaited_.front();
  awaited_.pop_front();
  events_.push_back(first.end);
  const lanes::Task task = machine_[first.task];  // a copy: a router adds to the tasks
  if (task.kind == TaskKind::kRouter) take_choice(task);
  ended.push_back(first.task);
  return ops_.status();
}

Status GroupPass::look(std::vector<lanes::TaskId>& ended) {
  poll(ended);
  if (p_.kv_link != nullptr) MOESTRO_RETURN_IF_ERROR(p_.kv_link->status());
  if (!ended.empty()) return Status::ok();
  if (!awaited_.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const bool reached, is_reached(awaited_.front().end));
    if (reached) return end_first(ended);
  }
  if (!p_.experts.waits()) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const lanes::TaskId read, p_.experts.poll());
  if (read >= 0) ended.push_back(read);
  return Status::ok();
}

Status GroupPass::wait_any(std::vector<lanes::TaskId>& ended) {
  const bool moves = (kv_ && kv_->waits()) || (host_ && host_->waits());
  if (!moves && !p_.experts.waits() && !awaited_.empty()) {
    queue_.note("wait_event", queue_.functions.wait_event(awaited_.front().end));
    MOESTRO_RETURN_IF_ERROR(ops_.status());
    return end_first(ended);
  }
  if (!moves && awaited_.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const lanes::TaskId read, p_.experts.wait());
    ended.push_back(read);
    return Status::ok();
  }
  const Nanos until = p_.clock.now() + kPatience;
  while (true) {
    MOESTRO_RETURN_IF_ERROR(look(ended));
    if (!ended.empty()) return Status::ok();
    if (p_.clock.now() > until) return unavailable("nothing has ended on the device, or come to it, for five minutes");
    std::this_thread::sleep_for(kLook);
  }
}

void GroupPass::take_choice(const lanes::Task& router) {
  const auto layer = static_cast<size_t>(router.layer);
  const engine::LayerPart part = part_of(router);
  const auto routed = p_.experts.route(part, step_.ids(layer, micro_batch(router).rows), spec().moe().top_k,
                                       step_.guard().left_out());
  step_.clear_rows(p_.experts.dropped(part));
  if (step_.is_watched() && p_.experts.is_routed(part.layer)) {
    step_.tell_watch(layer, p_.experts.routed({part.layer, lanes::kAllMicroBatches}));
    forecast_due_ = part.layer;
  }
  machine_.routed(router.layer, router.micro_batch, routed);
}

}  // namespace moestro::cuda

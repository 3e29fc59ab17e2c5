#include "services/worker/service/worker_service.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "common/log.h"
#include "common/log_format.h"
#include "services/worker/service/orchestrator_link.h"

namespace moestro::worker {
namespace {

constexpr std::chrono::milliseconds kStoreCheck{100};

Registration describe(const ServiceOptions& options, const engine::Engine& engine) {
  const engine::EngineLimits& limits = engine.limits();
  Registration r;
  r.name = options.name;
  r.model = limits.model;
  r.device = options.device;
  r.pack_identity = options.pack_identity;
  r.tokenizer = options.tokenizer;
  // Differs from every earlier start of this worker: nanoseconds of wall time.
  r.kv_epoch = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  r.kv_blocks = static_cast<uint32_t>(limits.kv_blocks);
  r.kv_host_blocks = static_cast<uint32_t>(limits.kv_host_blocks);
  r.state_slots = static_cast<uint32_t>(limits.state_slots);
  r.state_interval = static_cast<uint32_t>(limits.state_interval);
  r.context_max = static_cast<uint32_t>(limits.context_max);
  r.step_tokens_max = static_cast<uint32_t>(limits.step_tokens_max);
  r.overtaking_tokens_max = static_cast<uint32_t>(limits.overtaking_tokens_max);
  r.step_sequences_max = static_cast<uint32_t>(limits.step_sequences_max);
  r.moe_layers = static_cast<uint32_t>(engine.spec().moe_layers());
  r.experts = static_cast<uint32_t>(engine.spec().moe().experts);
  r.top_k = static_cast<uint32_t>(engine.spec().moe().top_k);
  r.kv_sinks = static_cast<uint32_t>(limits.visible.sinks);
  r.kv_window = static_cast<uint32_t>(limits.visible.window);
  r.wants_history = options.history != nullptr;
  r.mixed = limits.mixed;
  r.device_slots = options.device_slots;
  r.device_slot_bytes = options.device_slot_bytes;
  return r;
}

bool succeeded(const engine::StepOutcome& outcome) {
  for (const engine::SequenceOutcome& s : outcome.sequences)
    if (!s.status.is_ok()) return false;
  return true;
}

/// One line a step, however many of its sequences it was.
void warn_not_finite(const engine::StepOutcome& outcome) {
  for (const engine::SequenceOutcome& s : outcome.sequences) {
    if (s.status.code() != Code::kInternal) continue;
    log::warn("plan {}: {} of {} sequences failed: {}", outcome.plan.value, outcome.nonfinite_sequences,
              outcome.sequences.size(), s.status.message());
    return;
  }
}

}  // namespace

Result<std::unique_ptr<WorkerService>> WorkerService::create(const ServiceOptions& options, engine::Engine& engine,
                                                             std::function<Status()> check_store) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::DealerSocket::connect(options.orchestrator));
  const int wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd < 0) return io_error("eventfd", errno);
  auto link = std::make_unique<Link>(options, describe(options, engine), std::move(socket), wake_fd);
  return std::unique_ptr<WorkerService>(new WorkerService(options, engine, std::move(check_store), std::move(link)));
}

WorkerService::WorkerService(const ServiceOptions& options, engine::Engine& engine, std::function<Status()> check_store,
                             std::unique_ptr<Link> link)
    : engine_(engine),
      history_(options.history),
      take_device_figures_(options.take_device_figures),
      idle_(options.idle),
      check_store_(std::move(check_store)),
      link_(std::move(link)) {}
WorkerService::~WorkerService() = default;

const tier::TierFigures* WorkerService::device_figures() {
  if (!take_device_figures_) return nullptr;
  take_device_figures_(figures_);
  return &figures_;
}

bool WorkerService::attach_anew() const { return link_->attach_anew(); }

bool WorkerService::wanted() { return link_->overtakes(); }

/// Between two layers of the plan at hand, which has parked.
void WorkerService::take() {
  const std::optional<RunPlan> work = link_->next_overtaking();
  if (!work) return;
  requests_.learn(work->plan, work->names);
  const Status ran = engine_.overtake(work->plan, overtaking_outcome_);
  if (Status lost = answer(work->epoch, work->plan, ran, overtaking_outcome_); !lost.is_ok())
    lost_amid_step_ = std::move(lost);
}

/// Says what a plan computed. Without the store no further plan can succeed: then the plan is left unanswered, so that
/// its sequences run again elsewhere, and the error says why.
Status WorkerService::answer(uint64_t epoch, const engine::StepPlan& plan, const Status& ran,
                             const engine::StepOutcome& outcome) {
  if (!ran.is_ok()) {
    const log::Field field("request_id", requests_.of(plan));
    log::warn("plan {}: {}", plan.id.value, ran.message());
  } else if (outcome.nonfinite_sequences > 0) {
    const log::Field field("request_id", requests_.of_failed(outcome));
    warn_not_finite(outcome);
  }
  if (!ran.is_ok() || !succeeded(outcome)) MOESTRO_RETURN_IF_ERROR(check_store_());
  link_->answer(epoch, ran.is_ok() ? write_result(outcome, device_figures()) : write_failure(plan.id, ran));
  return Status::ok();
}

Status WorkerService::run(const std::atomic<bool>& stop) {
  link_->start(stop);
  if (engine_.limits().overtaking_tokens_max > 0) engine_.set_breaks(this);
  Status end;
  auto checked = std::chrono::steady_clock::now();
  for (bool running = true; running;) {
    // Also where plan follows plan and every expert is a hit: nothing else tells such a worker that its arena is over.
    if (const auto now = std::chrono::steady_clock::now(); now - checked >= kStoreCheck) {
      if (end = check_store_(); !end.is_ok()) break;
      checked = now;
    }
    std::optional<Job> job = link_->next(kStoreCheck);
    if (!job) {
      if (idle_) idle_();
      continue;
    }
    if (auto* ended = std::get_if<Stop>(&*job)) {
      end = ended->why;
      running = false;
    } else if (std::holds_alternative<ForgetAll>(*job)) {
      engine_.forget_all();
      requests_.forget_all();
    } else if (const auto* update = std::get_if<TakeHistory>(&*job)) {
      if (history_ == nullptr) continue;
      if (auto answer = history_->take(update->update)) link_->say(update->epoch, std::move(*answer));
    } else if (const auto* release = std::get_if<Release>(&*job)) {
      engine_.release(release->released);
      requests_.forget(release->released);
    } else {
      const RunPlan& work = std::get<RunPlan>(*job);
      requests_.learn(work.plan, work.names);
      const Status ran = engine_.step(work.plan, outcome_);
      if (end = answer(work.epoch, work.plan, ran, outcome_); !end.is_ok()) break;
      if (end = lost_amid_step_; !end.is_ok()) break;
    }
  }
  engine_.set_breaks(nullptr);
  link_->close(end);
  return end;
}

}  // namespace moestro::worker

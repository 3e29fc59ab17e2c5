#include "services/worker/service/orchestrator_link.h"

#include <unistd.h>

#include "common/log.h"

namespace moestro::worker {

using std::chrono::milliseconds;

namespace {
constexpr milliseconds kPollMax{50};
constexpr milliseconds kFarewell{200};
}

WorkerService::Link::Link(const ServiceOptions& options, const Registration& registration, net::DealerSocket socket,
                          int wake_fd)
    : options_(options), wake_fd_(wake_fd), registration_(registration), socket_(std::move(socket)) {}

WorkerService::Link::~Link() {
  close();
  ::close(wake_fd_);
}

void WorkerService::Link::close(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!closing_.exchange(true)) leaves_ = why;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void WorkerService::Link::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      ::write(wake_fd_, &one, sizeof one);  // fails only on a full counter, which wakes as well
}

void WorkerService::Link::push(Job job) {
  const std::lock_guard lock(mutex_);
  if (std::holds_alternative<RunPlan>(job)) ++queued_plans_;
  jobs_.push_back(std::move(job));
  overtakes_.store(overtaking() != jobs_.end());
  ready_.notify_one();
}

/// With the mutex held.
std::deque<Job>::iterator WorkerService::Link::overtaking() {
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (std::holds_alternative<TakeHistory>(*job)) continue;
    const auto* plan = std::get_if<RunPlan>(&*job);
    if (plan == nullptr) return jobs_.end();
    if (plan->plan.overtakes) return job;
  }
  return jobs_.end();
}

std::optional<RunPlan> WorkerService::Link::next_overtaking() {
  const std::lock_guard lock(mutex_);
  const auto job = overtaking();
  if (job == jobs_.end()) return std::nullopt;
  RunPlan work = std::get<RunPlan>(std::move(*job));
  jobs_.erase(job);
  --queued_plans_;
  overtakes_.store(overtaking() != jobs_.end());
  return work;
}

std::optional<Job> WorkerService::Link::next(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  ready_.wait_for(lock, timeout, [this] { return !jobs_.empty(); });
  if (drain_.load()) return Stop{};
  if (jobs_.empty()) return std::nullopt;
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  if (std::holds_alternative<RunPlan>(job)) --queued_plans_;
  overtakes_.store(overtaking() != jobs_.end());
  return job;
}

void WorkerService::Link::say(uint64_t epoch, std::vector<std::byte> message) {
  {
    const std::lock_guard lock(mutex_);
    answers_.push_back({epoch, std::move(message)});
  }
  wake();
}

void WorkerService::Link::loop() {
  for (;;) {
    // Read before the answers are sent: what was answered before close() goes out.
    const bool closing = closing_.load();
    receive_all();
    send_answers();
    if (closing) return say_goodbye();
    if (stop_->load() && !drain_.load()) ask_to_leave();
    send_due();
    const auto until_due = std::chrono::duration_cast<milliseconds>(due_ - Clock::now());
    const auto woken = socket_.wait(std::clamp(until_due, milliseconds(1), kPollMax), wake_fd_);
    if (!woken.is_ok()) return push(Stop{woken.status().with_context("connection to the orchestrator")});
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = ::read(wake_fd_, &count, sizeof count);  // non-blocking: empties it
  }
}

void WorkerService::Link::ask_to_leave() {
  const auto now = Clock::now();
  if (!heard_since_) heard_since_ = now, due_ = {};
  if (!registered_ || now - *heard_since_ > options_.leave_silence) leave();
}

void WorkerService::Link::leave() {
  drain_.store(true);
  push(Stop{});
}

void WorkerService::Link::say_goodbye() {
  socket_.linger(kFarewell);
  // Also before an answer to the registration has come: for the orchestrator it may have begun by now.
  const std::lock_guard lock(mutex_);
  send(write_leaving(leaves_));
}

void WorkerService::Link::receive_all() {
  for (;;) {
    auto message = socket_.receive();
    if (!message.is_ok()) return push(Stop{message.status().with_context("connection to the orchestrator")});
    if (!message->has_value()) return;
    auto parsed = read_orchestrator_message(**message);
    if (parsed.is_ok()) handle(std::move(*parsed));
    else
      log::warn("a message of {} bytes from the orchestrator is refused: {}", (*message)->size(),
                parsed.status().message());
  }
}

void WorkerService::Link::handle(OrchestratorSays message) {
  if (heard_since_) heard_since_ = Clock::now();
  if (const auto* r = std::get_if<Registered>(&message)) {
    if (!registered_) log::info("registered as worker {} of {}", r->worker, options_.orchestrator);
    registered_ = true;
    worker_ = r->worker;
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    handle_refusal(*refused);
  } else if (const auto* asked = std::get_if<Drain>(&message)) {
    if (!heard_since_)
      log::info("the orchestrator asked this worker to {}", asked->attach_anew ? "attach to the store anew" : "stop");
    attach_anew_.store(asked->attach_anew);
    leave();
  } else if (auto* release = std::get_if<Release>(&message)) {
    push(std::move(*release));
  } else if (auto* plan = std::get_if<PlanMessage>(&message)) {
    handle_plan(std::move(*plan));
  } else if (auto* update = std::get_if<HistoryUpdate>(&message)) {
    push(TakeHistory{registration_.kv_epoch, std::move(*update)});  // between the plans that it came between
  }
}

void WorkerService::Link::handle_refusal(const Refused& refused) {
  if (drain_.load()) return;  // it has gone already, for the orchestrator
  if (!registered_) {
    // kNotFound answers a heartbeat that crossed our registration: the answer to that is still to come.
    if (refused.why.code() != Code::kNotFound) push(Stop{refused.why.with_context("refused by the orchestrator")});
    return;
  }
  log::info("the orchestrator does not know this worker any more ({}): registering again", refused.why.message());
  begin_epoch();
}

void WorkerService::Link::begin_epoch() {
  registered_ = false;
  ++registration_.kv_epoch;
  push(ForgetAll{});
  due_ = {};
}

void WorkerService::Link::handle_plan(PlanMessage message) {
  bool full = false;
  {
    const std::lock_guard lock(mutex_);
    full = queued_plans_ >= options_.queued_plans_max;
  }
  if (!message.plan.is_ok()) return answer(registration_.kv_epoch, write_failure(message.id, message.plan.status()));
  if (full)
    return answer(registration_.kv_epoch,
                  write_failure(message.id, exhausted("worker " + options_.name + " has " +
                                                      std::to_string(options_.queued_plans_max) + " plans queued")));
  push(RunPlan{registration_.kv_epoch, std::move(*message.plan), std::move(message.names)});
}

void WorkerService::Link::send(std::span<const std::byte> message) {
  if (Status sent = socket_.send(message); !sent.is_ok())
    log::warn("cannot send to the orchestrator: {}", sent.message());
}

void WorkerService::Link::send_answers() {
  std::deque<Answer> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  for (const Answer& a : answers)
    if (a.epoch == registration_.kv_epoch) send(a.message);
}

void WorkerService::Link::send_due() {
  const auto now = Clock::now();
  if (now < due_) return;
  send(registered_ ? write_heartbeat(worker_, plans_done_.load(), heard_since_.has_value())
                   : write_registration(registration_));
  due_ = now + (registered_ ? options_.heartbeat : options_.register_retry);
}

}  // namespace moestro::worker

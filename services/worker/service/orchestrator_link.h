#pragma once
// The worker's side of the connection to the orchestrator: registration, heartbeats, plans in, results out. Its own
// thread owns the socket, so that a worker in a step of several seconds does not appear dead.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "common/net/zmq_socket.h"
#include "services/worker/service/worker_service.h"
#include "services/worker/wire/orchestrator_messages.h"

namespace moestro::worker {

/// The next job of the engine's thread.
struct RunPlan {
  uint64_t epoch = 0;
  engine::StepPlan plan;
  std::vector<RequestName> names;  ///< of its new sequences
};
struct ForgetAll {};  ///< a new KV epoch has begun
struct Stop {
  Status why;  ///< OK: drained
};
struct TakeHistory {
  uint64_t epoch = 0;
  HistoryUpdate update;
};
using Job = std::variant<RunPlan, Release, ForgetAll, Stop, TakeHistory>;

class WorkerService::Link {
 public:
  Link(const ServiceOptions& options, const Registration& registration, net::DealerSocket socket, int wake_fd);
  ~Link();

  /// `stop` outlives this. Once it is set, next() says so when the orchestrator has nothing that this worker alone can
  /// end, or is silent.
  void start(const std::atomic<bool>& stop) {
    stop_ = &stop;
    thread_ = std::thread([this] { loop(); });
  }
  /// The next job, or none after `timeout`.
  std::optional<Job> next(std::chrono::milliseconds timeout);
  /// Whether next_overtaking() has a plan. Cheap; asked while a step runs.
  bool overtakes() const { return overtakes_.load(std::memory_order_relaxed) && !drain_.load(); }
  /// The next plan that may run before those that came earlier. Only plans are overtaken, and updates of the history:
  /// not a release, and not the end of an epoch.
  std::optional<RunPlan> next_overtaking();
  /// Sends a plan's result, unless its epoch is over.
  void answer(uint64_t epoch, std::vector<std::byte> message) {
    plans_done_.fetch_add(1);
    say(epoch, std::move(message));
  }
  /// Sends another message, unless its epoch is over.
  void say(uint64_t epoch, std::vector<std::byte> message);
  /// Sends outstanding answers, says goodbye with the reason (OK: asked to stop) and ends the thread.
  void close(const Status& why = Status::ok());
  bool attach_anew() const { return attach_anew_.load(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Answer {
    uint64_t epoch;
    std::vector<std::byte> message;
  };
  void loop();
  void ask_to_leave();
  void leave();
  void say_goodbye();
  void receive_all();
  void handle(OrchestratorSays message);
  void handle_refusal(const Refused& refused);
  void handle_plan(PlanMessage message);
  void send_answers();
  void send_due();
  void send(std::span<const std::byte> message);
  void begin_epoch();
  void push(Job job);
  std::deque<Job>::iterator overtaking();
  void wake();

  const ServiceOptions options_;
  const int wake_fd_;
  const std::atomic<bool>* stop_ = nullptr;  ///< from start() on

  // I/O thread only.
  Registration registration_;
  net::DealerSocket socket_;
  bool registered_ = false;
  uint32_t worker_ = 0;
  Clock::time_point due_{};  ///< of the next heartbeat or registration
  std::optional<Clock::time_point> heard_since_;  ///< it has asked to leave: when it did, or last heard something then

  // Shared by both threads.
  std::atomic<uint64_t> plans_done_{0};
  std::atomic<bool> drain_{false}, closing_{false}, attach_anew_{false}, overtakes_{false};
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;
  size_t queued_plans_ = 0;
  std::deque<Answer> answers_;
  Status leaves_;  ///< why
  std::thread thread_;
};

}  // namespace moestro::worker

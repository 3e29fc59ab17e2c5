#pragma once

// The state and work of the control thread. Callers include only control_plane.h.

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/net/zmq_socket.h"
#include "orchestrator/control/control_plane.h"
#include "orchestrator/control/history_lender.h"
#include "orchestrator/control/retry_after.h"
#include "orchestrator/control/scheduler_setup.h"
#include "orchestrator/control/worker_figures.h"
#include "orchestrator/control/worker_wire.h"
#include "orchestrator/scheduler/queue_places.h"
#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {

class ControlPlane::Loop {
 public:
  Loop(ControlOptions options, net::RouterSocket socket, int wake_fd)
      : options_(std::move(options)),
        socket_(std::move(socket)),
        wake_fd_(wake_fd),
        scheduler_(scheduler_options(options_)),
        lender_(
            options_.endpoint, options_.access,
            [this](WorkerId worker, const auto& message) { return socket_.send(peers_.at(worker).identity, message); }),
        history_(lent(options_.history, lender_)),
        places_(options_.queue_max) {}
  ~Loop() { close(wake_fd_); }

  void run();

  // From other threads.
  Status submit(SequenceRequest request, Sink sink);
  void cancel(SequenceId id, int64_t sampled);
  void drain(std::chrono::milliseconds limit);
  void history_kept(const Status& how);
  void keep_history_now(std::chrono::milliseconds limit);
  void stop() {
    stop_.store(true);
    wake();
  }
  std::chrono::seconds retry_after() {
    const std::lock_guard lock(mutex_);
    return retry_after_.refused(options_.clock->now(), places_.size());
  }
  SequenceId next_id() { return SequenceId{next_id_.fetch_add(1)}; }
  ControlSnapshot snapshot() const {
    const std::lock_guard lock(mutex_);
    return snapshot_;
  }
  ExpertShares expert_shares() const { return expert_use_.shares(); }
  int64_t context_max() const { return context_max_.load(); }
  int64_t source_max() const { return source_max_.load(); }
  KvRoom kv_room() const { return kv_room_.load(); }
  bool serves_mixed() const { return serves_mixed_.load(); }
  size_t places() const { return worker_places_.load(); }
  uint64_t pack_version() const { return computed_version_.load(); }
  bool has_worker() const { return worker_count_.load() > 0; }
  bool had_worker() const { return had_worker_.load(); }
  bool draining() const {
    const std::lock_guard lock(mutex_);
    return draining_;
  }
  size_t queue_max() const { return options_.queue_max; }

 private:
  struct Order {
    std::optional<SequenceRequest> request;  ///< absent: cancel `id`
    SequenceId id;
    Sink sink;
    int64_t sampled = -1;  ///< for a cancelled sequence: the tokens of its answer
  };
  struct Owner {
    Sink sink;
    std::string request_id, flow;
  };
  struct Peer {
    std::string identity;
    ControlSnapshot::Worker figures;  ///< its name among them
    uint64_t version = 0;  ///< of its pack
    uint64_t kv_epoch = 0;
    int64_t context_max = 0;  ///< the longest sequence that it can hold
    int64_t source_max = 0;   ///< the longest source that it encodes in a step
    KvRoom kv_room = {};
    bool mixed = false;       ///< Registration::mixed
    Nanos heard{0};
    Nanos at_step_since{0};    ///< while it has plans
    bool unreachable = false;  ///< a message could not be sent to it
    struct Leave {
      Nanos asked{0};
      SequenceId before;  ///< what was submitted by then has a lower id
    };
    std::optional<Leave> leave = {};  ///< it was told to stop
  };

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n =
        write(wake_fd_, &one, sizeof one);  // cannot fail but by a full counter, which wakes as well
  }
  void take_orders();
  void take_messages();
  void on_message(const std::string& identity, const net::Bytes& body);
  void on_registration(const std::string& identity, const Registration& r);
  void on_report(WorkerId id, Peer& peer, StepReport report);
  std::map<WorkerId, Peer>::iterator find(const std::string& identity);
  void lose(WorkerId id, const std::string& why);
  void on_asks_to_leave(WorkerId id, Peer& peer);
  bool is_needed(WorkerId id, const Peer& peer) const;
  void on_leaving(WorkerId id, const Leaving& leaving);
  void forget(WorkerId id);
  void renew(WorkerId id);
  void look_at_served_version();
  void look_at_computed_version();
  bool was_served(uint64_t version) const;
  void serve_version(uint64_t version);
  void forgive_own_pause();
  void lose_silent();
  void fail_all();
  Nanos now() const { return options_.clock->now(); }
  void feed(Event event);
  void act(Action action);
  bool send_to(WorkerId worker, const std::vector<std::byte>& message);
  void end_sequence(SequenceId id, SequenceEvent event);
  void leave_queue(const std::string& flow);
  void publish();
  void publish_context();
  static HistoryOptions lent(HistoryOptions options, HistoryLender& lender);
  void publish_history(const std::vector<HistoryEntry>& changes);
  void keep_history();

  const ControlOptions options_;
  net::RouterSocket socket_;
  const int wake_fd_;

  // Control thread only.
  Scheduler scheduler_;
  HistoryLender lender_;
  HistoryKeeper history_;
  std::map<WorkerId, Peer> peers_;
  Nanos looked_{0};  ///< when it was last looked who is silent
  std::unordered_map<SequenceId, Owner> sinks_;
  uint32_t next_worker_ = 1;
  uint64_t version_ = 0;        ///< version of the pack that workers should have; 0: unknown
  Nanos version_since_{0};
  uint64_t said_by_store_ = 0;  ///< last
  std::deque<uint64_t> versions_served_;  ///< the last ones, without version_
  activation::EamcShape experts_;  ///< of the connected workers
  ControlSnapshot totals_;
  NamesSeen names_seen_;

  // Shared with other threads.
  ExpertUse expert_use_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<bool> stop_{false}, give_up_{false};
  std::atomic<size_t> worker_count_{0};
  std::atomic<uint64_t> computed_version_{0};  ///< the last version_ that a worker had
  std::atomic<int64_t> context_max_{0}, source_max_{0};
  std::atomic<KvRoom> kv_room_{};
  static_assert(decltype(kv_room_)::is_always_lock_free);
  std::atomic<bool> serves_mixed_{false};
  std::atomic<size_t> worker_places_{0};
  std::atomic<bool> had_worker_{false};
  std::atomic<bool> history_lost_{false};     ///< the last checkpoint could not be stored
  std::atomic<int64_t> history_kept_at_{-1};  ///< nanoseconds of the clock; -1: never
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Order> orders_;
  QueuePlaces places_;  ///< of sequences that were submitted and have not ended
  RetryAfter retry_after_;
  bool draining_ = false;
  uint64_t keep_wanted_ = 0, keep_done_ = 0;  ///< calls of keep_history_now
  ControlSnapshot snapshot_;
};

}  // namespace moestro::orchestrator

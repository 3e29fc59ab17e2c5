#include "orchestrator/control/control_plane.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "common/log_format.h"
#include "common/net/zmq_socket.h"
#include "orchestrator/control/history_lender.h"
#include "orchestrator/control/registration_check.h"
#include "orchestrator/control/retry_after.h"
#include "orchestrator/control/scheduler_setup.h"
#include "orchestrator/control/worker_figures.h"
#include "orchestrator/control/worker_wire.h"
#include "orchestrator/scheduler/kv_window.h"
#include "orchestrator/scheduler/queue_places.h"
#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {

using std::chrono::milliseconds;

namespace {
constexpr int kMessagesOfATurn = 1000;
constexpr uint64_t kStepMicrosMax = 3'600'000'000;  ///< a worker that says more has told nothing
}  // namespace

class ControlPlane::Loop {
 public:
  Loop(ControlOptions options, net::RouterSocket socket, int wake_fd)
      : options_(std::move(options)),
        socket_(std::move(socket)), wake_fd_(wake_fd),
        scheduler_(scheduler_options(options_)),
        lender_(options_.endpoint, options_.access, [this](WorkerId worker, const auto& message) { return socket_.send(peers_.at(worker).identity, message); }),
        history_(lent(options_.history, lender_)), places_(options_.queue_max) {}
  ~Loop() { close(wake_fd_); }

  void run();

  // From other threads.
  Status submit(SequenceRequest request, Sink sink);
  void cancel(SequenceId id, int64_t sampled);
  void drain(milliseconds limit);
  void history_kept(const Status& how);
  void keep_history_now(milliseconds limit);
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
    int64_t sampled = -1;  ///< of a cancelled one: its answer
  };
  struct Owner {
    Sink sink;
    std::string request_id, flow;
  };
  struct Peer {
    std::string identity;
    ControlSnapshot::Worker figures;  ///< its name among them
    uint64_t kv_epoch = 0;
    int64_t context_max = 0;  ///< the longest sequence it can hold
    Nanos heard{0};
    bool unreachable = false;  ///< a message could not be sent to it
  };

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_fd_, &one, sizeof one);  // cannot fail but by a full counter, which wakes as well
  }
  void take_orders();
  void take_messages();
  void on_message(const std::string& identity, const net::Bytes& body);
  void on_registration(const std::string& identity, const Registration& r);
  void on_report(WorkerId id, Peer& peer, StepReport report);
  std::map<WorkerId, Peer>::iterator find(const std::string& identity);
  void lose(WorkerId id, const std::string& why);
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
  std::unordered_map<SequenceId, Owner> sinks_;
  uint32_t next_worker_ = 1;
  uint64_t pack_identity_ = 0;  ///< of the workers that are there: a sequence never changes weights under way
  ControlSnapshot totals_;
  NamesSeen names_seen_;

  // Shared.
  ExpertUse expert_use_;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<bool> stop_{false}, give_up_{false};
  std::atomic<size_t> worker_count_{0};
  std::atomic<int64_t> context_max_{0};
  std::atomic<bool> had_worker_{false};
  std::atomic<bool> history_lost_{false};     ///< the last checkpoint could not be kept
  std::atomic<int64_t> history_kept_at_{-1};  ///< nanoseconds of the clock; -1: never
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<Order> orders_;
  QueuePlaces places_;  ///< of who was submitted and has not ended
  RetryAfter retry_after_;
  bool draining_ = false;
  uint64_t keep_wanted_ = 0, keep_done_ = 0;  ///< calls of keep_history_now
  ControlSnapshot snapshot_;
};

Status ControlPlane::Loop::submit(SequenceRequest request, Sink sink) {
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return unavailable("the server is shutting down");
    MOESTRO_RETURN_IF_ERROR(places_.enter(request.flow));
    if (places_.size() == 1) retry_after_.began(now());
    const SequenceId id = request.id;
    orders_.push_back(Order{std::move(request), id, std::move(sink), -1});
  }
  wake();
  return Status::ok();
}

void ControlPlane::Loop::cancel(SequenceId id, int64_t sampled) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(Order{std::nullopt, id, {}, sampled});
  }
  wake();
}

void ControlPlane::Loop::drain(milliseconds limit) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto idle = [this] { return places_.size() == 0; };
  if (idle_.wait_for(lock, limit, idle)) return;
  give_up_.store(true);
  wake();
  idle_.wait(lock, idle);  // the control thread lives longer than any caller
}

void ControlPlane::Loop::run() {
  while (!stop_.load()) {
    const auto woken = socket_.wait(milliseconds(100), wake_fd_);
    if (!woken.is_ok()) log::error("control: {}", woken.status().message());
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(wake_fd_, &count, sizeof count);  // non-blocking: empties it
    feed(Tick{now()});
    take_messages();
    if (give_up_.load()) fail_all();
    lose_silent();
    keep_history();
    ++totals_.turns;
    publish();
  }
  take_orders();  // whoever was let in hears how it ended
  fail_all();
  for (const auto& [id, peer] : peers_) (void)socket_.send(peer.identity, write_drain()).is_ok();
}

void ControlPlane::Loop::fail_all() {
  std::vector<SequenceId> open;
  for (const auto& [id, sink] : sinks_) open.push_back(id);
  for (SequenceId id : open) {
    end_sequence(id, Failed{id, unavailable("the server is shutting down")});
    feed(Cancelled{id, -1});
  }
}

void ControlPlane::Loop::take_orders() {
  std::deque<Order> orders;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  for (Order& o : orders) {
    if (o.request.has_value()) {
      sinks_.emplace(o.id, Owner{std::move(o.sink), o.request->request_id, o.request->flow});
      history_.submitted(o.id, static_cast<int64_t>(o.request->prompt.size()), o.request->text_ends);
      feed(Submitted{std::move(*o.request)});
    } else {
      const auto owner = sinks_.extract(o.id);  // none: it has ended by itself
      if (owner) feed(Cancelled{o.id, o.sampled});
      publish_history(history_.settled(o.id, o.sampled));
      if (owner) leave_queue(owner.mapped().flow);
    }
  }
}

/// Busy workers must not keep what clients want waiting: orders are looked at before each message, and a turn has an end.
void ControlPlane::Loop::take_messages() {
  for (int taken = 0; taken < kMessagesOfATurn; ++taken) {
    take_orders();
    auto incoming = socket_.receive();
    if (!incoming.is_ok()) {
      log::error("control: {}", incoming.status().message());
      return;
    }
    if (!incoming->has_value()) return;
    on_message((*incoming)->peer, (*incoming)->body);
  }
}

std::map<WorkerId, ControlPlane::Loop::Peer>::iterator ControlPlane::Loop::find(const std::string& identity) {
  return std::find_if(peers_.begin(), peers_.end(), [&](const auto& entry) { return entry.second.identity == identity; });
}

void ControlPlane::Loop::on_message(const std::string& identity, const net::Bytes& body) {
  auto message = read_worker_message(body);
  if (!message.is_ok()) {
    log::warn("control: a peer sent {} bytes that are refused: {}", body.size(), message.status().message());
    return;
  }
  if (const auto* registration = std::get_if<Registration>(&*message)) return on_registration(identity, *registration);
  const auto it = find(identity);
  if (it == peers_.end()) {
    // From before this process started, or given up: it has to register again.
    (void)socket_.send(identity, write_refused(not_found("not registered; register again"))).is_ok();
    return;
  }
  it->second.heard = now();
  if (auto* report = std::get_if<StepReport>(&*message)) on_report(it->first, it->second, std::move(*report));
  else if (const auto* reader = std::get_if<HistoryReader>(&*message)) lender_.answered(it->first, it->second.figures.name, *reader, history_.history());
}

void ControlPlane::Loop::on_registration(const std::string& identity, const Registration& r) {
  const Status refusal = check_registration(r, options_.model, peers_.empty() ? std::nullopt : std::optional(pack_identity_));
  if (!refusal.is_ok()) {
    log::warn("control: worker {} refused: {}", r.name, refusal.message());
    (void)socket_.send(identity, write_refused(refusal)).is_ok();
    return;
  }
  if (const auto it = find(identity); it != peers_.end()) {
    if (it->second.kv_epoch == r.kv_epoch) {  // it did not get our answer
      it->second.heard = now();
      (void)socket_.send(identity, write_registered(it->first)).is_ok();
      return;
    }
    lose(it->first, "it started anew");
  }
  for (const auto& [old, peer] : peers_) {
    if (peer.figures.name != r.name) continue;
    lose(old, "its successor registered");
    break;
  }
  const WorkerId id{next_worker_++};
  pack_identity_ = r.pack_identity;
  peers_.emplace(id, Peer{identity, begin_figures(r, totals_), r.kv_epoch, KvWindow(r.limits).length_max(), now(), false});
  if (names_seen_.again(r.name)) ++totals_.worker_restarts;
  history_.begin(r.pack_identity, r.experts);
  expert_use_.begin(r.experts);
  worker_count_.store(peers_.size());
  publish_context();
  had_worker_.store(true);
  log::info("control: worker {} joined ({}, {} KV blocks of {} tokens)", r.name, r.device, r.limits.kv_blocks,
            r.limits.kv_block_tokens);
  if (Status sent = socket_.send(identity, write_registered(id)); !sent.is_ok()) return lose(id, sent.message());
  if (r.wants_history && history_.history() != nullptr) lender_.joined(id, *history_.history());
  feed(WorkerJoined{id, r.limits});
}

void ControlPlane::Loop::on_report(WorkerId id, Peer& peer, StepReport report) {
  count_step(report, peer.figures, totals_);
  if (!report.outcome.error.is_ok()) log::warn("control: worker {}: {}", peer.figures.name, report.outcome.error.message());
  scheduler_.leave_out_dropped(id, report.outcome);
  history_.done(id, report.outcome);
  for (const SequenceOutcome& s : report.outcome.sequences) expert_use_.count(s.activations, now());
  const Nanos took = std::chrono::microseconds(report.step_us <= kStepMicrosMax ? static_cast<int64_t>(report.step_us) : 0);
  feed(PlanDone{id, std::move(report.outcome), took});
}

void ControlPlane::Loop::lose(WorkerId id, const std::string& why) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  log::warn("control: worker {} is gone: {}", it->second.figures.name, why);
  peers_.erase(it);
  worker_count_.store(peers_.size());
  publish_context();
  ++totals_.workers_lost;
  history_.lost(id);
  lender_.left(id);
  feed(WorkerLost{id});
}

void ControlPlane::Loop::lose_silent() {
  std::vector<std::pair<WorkerId, std::string>> gone;
  for (const auto& [id, peer] : peers_) {
    if (peer.unreachable)
      gone.emplace_back(id, "it cannot be reached");
    else if (now() - peer.heard > options_.silence_max)
      gone.emplace_back(id, "not heard for " + std::to_string(options_.silence_max.count()) + " ms");
  }
  for (const auto& [id, why] : gone) lose(id, why);
}

void ControlPlane::Loop::feed(Event event) {
  std::vector<Action> actions = scheduler_.step(std::move(event));
  // Workers first: they are not to wait until everybody has heard what the step before brought.
  std::stable_partition(actions.begin(), actions.end(), [](const Action& a) { return std::holds_alternative<SendPlan>(a); });
  for (Action& action : actions) act(std::move(action));
}

bool ControlPlane::Loop::send_to(WorkerId worker, const std::vector<std::byte>& message) {
  const auto it = peers_.find(worker);
  if (it == peers_.end()) return false;
  const Status sent = socket_.send(it->second.identity, message);
  if (sent.is_ok()) return true;
  // lose_silent() ends it; doing so here would re-enter the scheduler.
  log::warn("control: cannot send to worker {}: {}", it->second.figures.name, sent.message());
  it->second.unreachable = true;
  return false;
}

void ControlPlane::Loop::act(Action action) {
  if (auto* send = std::get_if<SendPlan>(&action)) {
    history_.planned(send->worker, send->plan);
    if (send_to(send->worker, write_plan(send->plan, options_.model))) ++peers_.at(send->worker).figures.plans_in_flight;
  } else if (const auto* release = std::get_if<SendRelease>(&action)) {
    send_to(release->worker, write_release(release->released));
  } else if (auto* progress = std::get_if<Progress>(&action)) {
    totals_.sampled_tokens += progress->sampled.size();
    if (const auto it = sinks_.find(progress->id); it != sinks_.end()) it->second.sink(std::move(*progress));
  } else if (auto* finished = std::get_if<Finished>(&action)) {
    publish();  // whoever hears of its end may ask for the figures at once
    end_sequence(finished->id, *finished);
  } else if (auto* failed = std::get_if<Failed>(&action)) {
    const auto owner = sinks_.find(failed->id);
    const log::Field field("request_id", owner == sinks_.end() ? "" : owner->second.request_id);
    if (failed->quarantined) log::error("control: sequence {}: {}", failed->id.value, failed->error.message());
    publish();
    end_sequence(failed->id, *failed);
  }
}

void ControlPlane::Loop::end_sequence(SequenceId id, SequenceEvent event) {
  const auto it = sinks_.find(id);
  if (it == sinks_.end()) return;
  const Owner owner = std::move(it->second);
  sinks_.erase(it);
  owner.sink(std::move(event));
  publish_history(history_.ended(id));
  leave_queue(owner.flow);
}

void ControlPlane::Loop::leave_queue(const std::string& flow) {
  const std::lock_guard lock(mutex_);
  retry_after_.ended(now());
  places_.leave(flow);
  if (places_.size() == 0) idle_.notify_all();
}

HistoryOptions ControlPlane::Loop::lent(HistoryOptions options, HistoryLender& lender) {
  options.make = [&lender](uint64_t pack_identity, const activation::EamcShape& shape, int32_t capacity) { return lender.make(pack_identity, shape, capacity); };
  return options;
}

void ControlPlane::Loop::publish_history(const std::vector<HistoryEntry>& changes) {
  if (!changes.empty()) lender_.changed(*history_.history(), changes);
}

void ControlPlane::Loop::keep_history() {
  uint64_t wanted = 0;
  bool at_once = false;
  {
    const std::lock_guard lock(mutex_);
    wanted = keep_wanted_, at_once = keep_wanted_ != keep_done_;
  }
  if (history_lost_.exchange(false)) history_.not_kept();
  if (auto bytes = history_.checkpoint(now(), at_once); bytes && options_.keep_history) options_.keep_history(std::move(*bytes));
  if (!at_once) return;
  const std::lock_guard lock(mutex_);
  keep_done_ = wanted;
  idle_.notify_all();
}

void ControlPlane::Loop::history_kept(const Status& how) {
  if (how.is_ok()) return history_kept_at_.store(now().count());
  log::warn("history: the checkpoint is not kept: {}", how.message());
  history_lost_.store(true);
}

void ControlPlane::Loop::keep_history_now(milliseconds limit) {
  std::unique_lock lock(mutex_);
  const uint64_t mine = ++keep_wanted_;
  wake();
  (void)idle_.wait_for(lock, limit, [&] { return keep_done_ >= mine; });
}

/// While no worker is there, the last one's stands: its successor will most likely be like it.
void ControlPlane::Loop::publish_context() {
  int64_t most = 0;
  for (const auto& [id, peer] : peers_) most = std::max(most, peer.context_max);
  if (most > 0) context_max_.store(most);
}

void ControlPlane::Loop::publish() {
  totals_.waiting = scheduler_.waiting();
  totals_.running = scheduler_.running();
  totals_.waiting_of_batches = scheduler_.waiting_of_batches();
  totals_.preemptions = scheduler_.preemptions();
  totals_.quarantined = scheduler_.quarantined();
  const KvFigures kv = scheduler_.kv();
  totals_.kv_blocks_used = kv.held;
  totals_.kv_blocks_total = kv.blocks;
  totals_.kv_host_blocks_used = kv.host_used;
  totals_.kv_host_blocks_total = kv.host_blocks;
  totals_.kv_moved_out_tokens = kv.moved_out_tokens;
  totals_.kv_moved_in_tokens = kv.moved_in_tokens;
  totals_.prefix_blocks = kv.cached;
  totals_.prefix_cached_tokens = kv.reused_tokens;
  totals_.history = history_.figures();
  totals_.history_readers = lender_.figures();
  if (const int64_t at = history_kept_at_.load(); at >= 0) totals_.history_kept_s = std::chrono::duration<double>(now() - Nanos(at)).count();
  totals_.workers.clear();
  for (const auto& [id, peer] : peers_) {
    totals_.workers.push_back(peer.figures);
    totals_.workers.back().age_s = std::chrono::duration<double>(now() - peer.heard).count();
  }
  const std::lock_guard lock(mutex_);
  snapshot_ = totals_;
}

Result<std::unique_ptr<ControlPlane>> ControlPlane::start(ControlOptions options) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, net::RouterSocket::bind(options.endpoint));
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return io_error("eventfd", errno);
  auto loop = std::make_unique<Loop>(std::move(options), std::move(socket), fd);
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::move(loop)));
}

ControlPlane::ControlPlane(std::unique_ptr<Loop> loop) : loop_(std::move(loop)), thread_([this] { loop_->run(); }) {}

ControlPlane::~ControlPlane() {
  loop_->stop();
  thread_.join();
}

Status ControlPlane::submit(SequenceRequest request, Sink sink) { return loop_->submit(std::move(request), std::move(sink)); }
void ControlPlane::cancel(SequenceId id, int64_t sampled) { loop_->cancel(id, sampled); }
std::chrono::seconds ControlPlane::retry_after() { return loop_->retry_after(); }
SequenceId ControlPlane::next_sequence_id() { return loop_->next_id(); }
ControlSnapshot ControlPlane::snapshot() const { return loop_->snapshot(); }
ExpertShares ControlPlane::expert_shares() const { return loop_->expert_shares(); }
int64_t ControlPlane::context_max() const { return loop_->context_max(); }
bool ControlPlane::has_worker() const { return loop_->has_worker(); }
bool ControlPlane::had_worker() const { return loop_->had_worker(); }
bool ControlPlane::draining() const { return loop_->draining(); }
size_t ControlPlane::queue_max() const { return loop_->queue_max(); }
size_t ControlPlane::sequences_max(const std::string& flow) const { return QueuePlaces::most_of(flow, loop_->queue_max()); }
void ControlPlane::history_kept(const Status& how) { loop_->history_kept(how); }
void ControlPlane::keep_history_now(milliseconds limit) { loop_->keep_history_now(limit); }
void ControlPlane::drain(milliseconds limit) { loop_->drain(limit); }

}  // namespace moestro::orchestrator

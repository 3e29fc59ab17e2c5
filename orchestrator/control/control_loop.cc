#include "orchestrator/control/control_loop.h"

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "common/log_format.h"
#include "orchestrator/control/registration_check.h"
#include "orchestrator/scheduler/kv_window.h"

namespace moestro::orchestrator {

using std::chrono::milliseconds;

namespace {
constexpr int kMessagesOfATurn = 1000;
constexpr Nanos kStoreAskedWithin = std::chrono::seconds(5);
constexpr size_t kVersionsKept = 64;  ///< of the pack; far more than are replaced while a worker starts
constexpr uint64_t kStepMicrosMax = 3'600'000'000;  ///< a worker that says more has told nothing

/// The longest source that a worker encodes in steps of so many tokens.
int64_t source_max_of(const WorkerLimits& limits, int64_t step_tokens) {
  return std::min<int64_t>({step_tokens, limits.step_tokens_max, limits.context_max});
}
}  // namespace

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
  looked_ = now();
  while (!stop_.load()) {
    const auto woken = socket_.wait(milliseconds(scheduler_.masks_wait() ? 0 : 100), wake_fd_);
    if (!woken.is_ok()) log::error("control: {}", woken.status().message());
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(wake_fd_, &count, sizeof count);  // non-blocking: empties it
    feed(Tick{now()});
    look_at_served_version();
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

/// Busy workers must not keep what clients want waiting: orders are looked at before each message, and a turn has an
/// end.
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
  return std::find_if(peers_.begin(), peers_.end(),
                      [&](const auto& entry) { return entry.second.identity == identity; });
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
    if (std::holds_alternative<Leaving>(*message)) return;
    // From before this process started, or given up: it has to register again.
    (void)socket_.send(identity, write_refused(not_found("not registered; register again"))).is_ok();
    return;
  }
  it->second.heard = now();
  if (auto* report = std::get_if<StepReport>(&*message)) on_report(it->first, it->second, std::move(*report));
  else if (const auto* reader = std::get_if<HistoryReader>(&*message))
    lender_.answered(it->first, it->second.figures.name, *reader, history_.history());
  else if (const auto* leaving = std::get_if<Leaving>(&*message))
    on_leaving(it->first, *leaving);
  else if (const auto* alive = std::get_if<HeartbeatMessage>(&*message); alive != nullptr && alive->asks_to_leave)
    on_asks_to_leave(it->first, it->second);
}

void ControlPlane::Loop::on_registration(const std::string& identity, const Registration& r) {
  const Status refusal = check_registration(r, options_.model, options_.tokenizer,
                                            peers_.empty() ? std::nullopt : std::optional(experts_));
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
  // Of a version that nobody knew it is the first; the store says which, but only once a second.
  const bool store_is_silent = options_.served_version != nullptr && said_by_store_ == 0;
  if (version_ == 0 || (!store_is_silent && !was_served(r.pack_identity))) serve_version(r.pack_identity);
  const WorkerId id{next_worker_++};
  experts_ = r.experts;
  const int64_t source_max = source_max_of(r.limits, options_.step_tokens.value_or(SchedulerOptions::kAnyStep));
  peers_.emplace(id, Peer{identity, begin_figures(r, totals_), r.pack_identity, r.kv_epoch,
                          KvWindow(r.limits).length_max(), source_max,
                          KvRoom{r.limits.kv_blocks, r.limits.kv_block_tokens}, r.mixed, now(), Nanos(0), false});
  look_at_computed_version();
  if (names_seen_.again(r.name)) ++totals_.worker_restarts;
  const bool outdated = r.pack_identity != version_;
  if (!outdated) history_.begin(r.pack_identity, r.experts);
  expert_use_.begin(r.experts);
  publish();  // whoever sees that there is one may ask for its figures at once
  worker_count_.store(peers_.size());
  publish_context();
  had_worker_.store(true);
  log::info("control: worker {} joined ({}, {} KV blocks of {} tokens)", r.name, r.device, r.limits.kv_blocks,
            r.limits.kv_block_tokens);
  if (Status sent = socket_.send(identity, write_registered(id)); !sent.is_ok()) return lose(id, sent.message());
  if (r.wants_history && !outdated && history_.history() != nullptr) lender_.joined(id, *history_.history());
  feed(WorkerJoined{id, r.limits, r.pack_identity});
}

void ControlPlane::Loop::look_at_served_version() {
  const uint64_t said = options_.served_version == nullptr ? 0 : options_.served_version->load();
  if (said == 0) return;
  const bool news = said != std::exchange(said_by_store_, said);
  // A worker may know of a version before the store has been asked again, but not for long.
  if (news || now() - version_since_ > kStoreAskedWithin) serve_version(said);
}

/// Workers of a former version take new sequences until one of this version is there.
void ControlPlane::Loop::look_at_computed_version() {
  const auto has_it = [this](const auto& entry) { return entry.second.version == version_; };
  if (std::ranges::any_of(peers_, has_it)) computed_version_.store(version_);
}

bool ControlPlane::Loop::was_served(uint64_t version) const {
  return version == version_ || std::ranges::find(versions_served_, version) != versions_served_.end();
}

void ControlPlane::Loop::serve_version(uint64_t version) {
  if (version == version_) return;
  if (version_ != 0) {
    log::info("control: another version of the pack is served: workers end what they have begun, then take it");
    versions_served_.push_back(version_);
  }
  if (versions_served_.size() > kVersionsKept) versions_served_.pop_front();
  version_ = version;
  version_since_ = now();
  look_at_computed_version();
  feed(VersionServed{version});
}

void ControlPlane::Loop::renew(WorkerId id) {
  log::info("control: worker {} attaches anew, to the version of the pack that is served",
            peers_.at(id).figures.name);
  send_to(id, write_drain(/*attach_anew=*/true));
  names_seen_.forget(peers_.at(id).figures.name);
  forget(id);
}

void ControlPlane::Loop::on_report(WorkerId id, Peer& peer, StepReport report) {
  count_step(report, peer.figures, totals_);
  count_kind(report, scheduler_.work_of(id, report.outcome.plan), totals_);
  peer.at_step_since = now();
  if (!report.outcome.error.is_ok())
    log::warn("control: worker {}: {}", peer.figures.name, report.outcome.error.message());
  scheduler_.leave_out_dropped(id, report.outcome);
  history_.done(id, report.outcome);
  for (const SequenceOutcome& s : report.outcome.sequences) expert_use_.count(s.activations, now());
  const Nanos took =
      std::chrono::microseconds(report.step_us <= kStepMicrosMax ? static_cast<int64_t>(report.step_us) : 0);
  feed(PlanDone{id, std::move(report.outcome), took});
}

void ControlPlane::Loop::lose(WorkerId id, const std::string& why) {
  const auto it = peers_.find(id);
  if (it == peers_.end()) return;
  log::warn("control: worker {} is gone: {}", it->second.figures.name, why);
  ++totals_.workers_lost;
  forget(id);
  feed(WorkerLost{id});
}

void ControlPlane::Loop::on_asks_to_leave(WorkerId id, Peer& peer) {
  const bool asked_before = peer.leave.has_value();
  if (!asked_before) peer.leave = Peer::Leave{now(), SequenceId{next_id_.load()}};
  const bool needed = is_needed(id, peer);
  if (needed && !asked_before)
    log::info("control: worker {} is to stop; no other can go on with its requests, so it ends them first, for at "
              "most {} s", peer.figures.name, std::chrono::ceil<std::chrono::seconds>(options_.leave_max).count());
  send_to(id, needed ? write_registered(id) : write_drain());
}

/// By requests that came before it asked to leave, while no other worker can take them.
bool ControlPlane::Loop::is_needed(WorkerId id, const Peer& peer) const {
  if (now() - peer.leave->asked > options_.leave_max) return false;
  for (const auto& [other, of_other] : peers_)
    if (other != id && of_other.version == peer.version && !of_other.leave) return false;
  return std::ranges::any_of(sinks_, [&](const auto& owner) { return owner.first.value < peer.leave->before.value; });
}

/// Who stops as it was asked to is neither lost nor, when it is back, restarted.
void ControlPlane::Loop::on_leaving(WorkerId id, const Leaving& leaving) {
  if (!leaving.why.is_ok()) return lose(id, leaving.why.message());
  const std::string name = peers_.at(id).figures.name;
  log::info("control: worker {} has left", name);
  names_seen_.forget(name);
  forget(id);
  feed(WorkerLost{id, /*died=*/false});
}

void ControlPlane::Loop::forget(WorkerId id) {
  peers_.erase(id);
  worker_count_.store(peers_.size());
  publish_context();
  history_.lost(id);
  lender_.left(id);
}

/// This process may have been stopped, or its virtual machine: it heard nobody meanwhile, and what was sent to it may
/// still be on its way. The time does not count, or requests would be suspected of deaths that never were.
void ControlPlane::Loop::forgive_own_pause() {
  const Nanos at = now(), apart = at - std::exchange(looked_, at);
  if (apart <= options_.silence_max / 4) return;
  for (auto& [id, peer] : peers_) peer.heard = std::min(at, peer.heard + apart);
}

void ControlPlane::Loop::lose_silent() {
  forgive_own_pause();
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
  std::stable_partition(actions.begin(), actions.end(),
                        [](const Action& a) { return std::holds_alternative<SendPlan>(a); });
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
    if (send_to(send->worker, write_plan(send->plan, options_.model))) {
      Peer& peer = peers_.at(send->worker);
      if (peer.figures.plans_in_flight++ == 0) peer.at_step_since = now();
    }
  } else if (const auto* release = std::get_if<SendRelease>(&action)) {
    send_to(release->worker, write_release(release->released));
  } else if (const auto* gone = std::get_if<RenewWorker>(&action)) {
    renew(gone->worker);
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
  options.make = [&lender](uint64_t pack_identity, const activation::EamcShape& shape, int32_t capacity) {
    return lender.make(pack_identity, shape, capacity);
  };
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
  if (auto bytes = history_.checkpoint(now(), at_once); bytes && options_.keep_history)
    options_.keep_history(std::move(*bytes));
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
  int64_t most = 0, source = 0;
  KvRoom room;
  bool mixed = false;
  for (const auto& [id, peer] : peers_) {
    most = std::max(most, peer.context_max);
    source = std::max(source, peer.source_max);
    if (peer.kv_room.tokens() > room.tokens()) room = peer.kv_room;
    mixed = mixed || peer.mixed;
  }
  if (most > 0) context_max_.store(most), source_max_.store(source), kv_room_.store(room), serves_mixed_.store(mixed);
}

void ControlPlane::Loop::publish() {
  totals_.waiting = scheduler_.waiting();
  totals_.running = scheduler_.running();
  totals_.waiting_of_batches = scheduler_.waiting_of_batches();
  if (const size_t places = scheduler_.places(); places > 0) worker_places_.store(places);
  totals_.preemptions = scheduler_.preemptions();
  totals_.quarantined = scheduler_.quarantined();
  const KvFigures kv = scheduler_.kv();
  totals_.kv_blocks_used = kv.held;
  totals_.kv_blocks_total = kv.blocks;
  totals_.kv_host_blocks_used = kv.host_used;
  totals_.kv_host_blocks_total = kv.host_blocks;
  totals_.kv_moved_out_tokens = kv.moved_out_tokens;
  totals_.kv_moved_in_tokens = kv.moved_in_tokens;
  totals_.state_slots = kv.state_slots;
  totals_.states_held = kv.states_held;
  totals_.states_cached = kv.states_cached;
  totals_.states_kept = kv.states_kept;
  totals_.states_restored = kv.states_restored;
  totals_.prefix_blocks = kv.cached;
  totals_.prefix_cached_tokens = kv.reused_tokens;
  totals_.history = history_.figures();
  totals_.history_readers = lender_.figures();
  const auto seconds_since = [this](Nanos then) { return std::chrono::duration<double>(now() - then).count(); };
  if (const int64_t at = history_kept_at_.load(); at >= 0)
    totals_.history_kept_s = seconds_since(Nanos(at));
  totals_.workers.clear();
  for (const auto& [id, peer] : peers_) {
    ControlSnapshot::Worker& worker = totals_.workers.emplace_back(peer.figures);
    worker.outdated = peer.version != version_;
    worker.age_s = seconds_since(peer.heard);
    worker.step_age_s = worker.plans_in_flight > 0 ? seconds_since(peer.at_step_since) : 0;
  }
  const std::lock_guard lock(mutex_);
  snapshot_ = totals_;
}

}  // namespace moestro::orchestrator

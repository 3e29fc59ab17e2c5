#include "store/server/store_server.h"

#include <algorithm>
#include <cstring>

#include "common/clock.h"
#include "common/fault_point.h"
#include "common/log.h"

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kIdleWait{
    100};  ///< also how often workers are looked for: pins of a dead one go well within 1 s
constexpr milliseconds kBlockedWait{1};    ///< while a blob waits for room: unpinning sends no message
constexpr milliseconds kConfirmWithin{5000};
constexpr int kUnconfirmedMax =
    16;  ///< whoever only begins to attach, in a loop, must not keep all slots from the others
constexpr milliseconds kBlockedLong{
    1000};  ///< shares shrink when a worker attaches: its neighbours give way within a step, not at once

}  // namespace

StoreServer::~StoreServer() {
  socket_.reset();
  loader_.reset();  // waits for the reads under way
  if (files_) files_->close();
}

Status StoreServer::run(const std::atomic<bool>& stop) {
  while (!stop.load(std::memory_order_relaxed)) {
    const bool blocked = machine_->blocked();
    MOESTRO_ASSIGN_OR_RETURN([[maybe_unused]] const bool ready, socket_->wait(wait_at_most(), loader_->event_fd()));
    const Nanos now = SteadyClock().now();
    machine_->at(now);
    pump_reads();
    MOESTRO_RETURN_IF_ERROR(receive());
    if (machine_->blocked() || machine_->queued() > 0 || machine_->sweeping() ||
        machine_->look_again().value_or(Nanos::max()) <= now)
      perform(machine_->poll());
    check_residents();
    look_around();
    scrub();
    warm_up();
    name_who_pins_too_much(blocked && machine_->blocked());
    look_for_dead_workers();
    release_unused_packs();
  }
  close_down();
  return Status::ok();
}

std::chrono::milliseconds StoreServer::wait_at_most() const {
  if (!check_.idle()) return milliseconds(0);
  if (machine_->blocked()) return kBlockedWait;
  const milliseconds idle = until_scrub(kIdleWait);
  const auto look = machine_->look_again();  // reads ahead wait for their time
  return look ? std::clamp(std::chrono::ceil<milliseconds>(*look - SteadyClock().now()), milliseconds(0), idle) : idle;
}

Status StoreServer::receive() {
  for (int i = 0; i < 64; ++i) {  // then look at the reads again
    MOESTRO_ASSIGN_OR_RETURN(auto incoming, socket_->receive());
    if (!incoming) break;
    handle(incoming->peer, incoming->body);
  }
  return Status::ok();
}

void StoreServer::handle(const std::string& peer, std::span<const std::byte> body) {
  auto request = parse_request(body);
  if (!request) return refuse(peer, request.status());
  std::visit([&](const auto& r) { answer(peer, r); }, *request);
}

void StoreServer::reply(const std::string& peer, const net::Bytes& body) {
  if (const Status sent = socket_->send(peer, body); !sent) log::debug("a reply was not sent: {}", sent.message());
}

void StoreServer::refuse(const std::string& peer, const Status& why) {
  if (const auto unsaid = refusals_.refused(steady_clock::now()))
    log::warn("refused a request: {}{}", why.message(),
              *unsaid == 0 ? "" : " (and " + std::to_string(*unsaid) + " more before it)");
  reply(peer, build_refused(why));
}

void StoreServer::answer(const std::string& peer, const AttachRequest& request) {
  if (request.protocol != kStoreProtocol || request.shared_version != kSharedVersion)
    return refuse(
        peer, unsupported("client '" + request.client + "' speaks store protocol " + std::to_string(request.protocol) +
                          " with memory layout " + std::to_string(request.shared_version) + ", this store " +
                          std::to_string(kStoreProtocol) + " with " + std::to_string(kSharedVersion) +
                          ": run both from one build"));
  looked_ = {};  // a worker that comes back may be here before its former self was missed
  look_for_dead_workers();
  const auto model = catalogue_.find(request.model);
  if (!model) return refuse(peer, model.status());
  const auto free = std::ranges::find_if(workers_, [](const auto& w) { return !w.has_value(); });
  if (free == workers_.end())
    return refuse(peer, exhausted("all " + std::to_string(kWorkerSlotsMax) +
                                  " worker slots of this store are taken: stop a worker first"));
  if (std::ranges::count_if(workers_, [](const auto& w) { return w && !w->confirmed; }) >= kUnconfirmedMax)
    return refuse(peer, exhausted(std::to_string(kUnconfirmedMax) +
                                  " workers have begun to attach and not confirmed it: try again in some seconds"));
  const auto slot = static_cast<uint32_t>(free - workers_.begin());
  const Catalogue::Pack& pack = catalogue_.pack(*model);
  const uint64_t incarnation = files_->table().incarnations.fetch_add(1) + 1;
  if (const Status made = files_->create_slot(
          slot, {incarnation, request.model, request.client, pack.manifest.identity, pack.first_entry});
      !made)
    return refuse(peer, made);
  const auto number = catalogue_.number(request.model, attached_models());
  const Status fits = number ? machine_->attach(slot, pack.largest_expert, request.client, *number) : number.status();
  if (!fits) {
    files_->forget_slot(slot);
    return refuse(peer, fits);
  }
  *free = Worker{peer, request.client, incarnation, request.model, *model, false, steady_clock::now(), 0};
  perform(machine_->share_known(pack.first_entry, pack.blobs()));
  AttachReply attached{slot, incarnation, epoch_, files_->dir().string(), files_->table().arena_bytes, entries_max_,
                       serialise_manifest(pack.manifest), {}, payload_address(files_->payload()), pack.streamed};
  for (uint32_t i = 0; i < pack.manifest.blobs.size(); ++i) attached.entries.push_back(pack.first_entry + i);
  reply(peer, build_attached(attached));
}

StoreServer::Worker* StoreServer::holder(const std::string& peer, const Session& session) {
  if (session.slot < kWorkerSlotsMax && workers_[session.slot] &&
      workers_[session.slot]->incarnation == session.incarnation) {
    workers_[session.slot]->peer = peer;  // a reconnected socket has a new identity
    return &*workers_[session.slot];
  }
  const Status why = unavailable("no worker of this store has slot " + std::to_string(session.slot) + ", incarnation " +
                                 std::to_string(session.incarnation) + ": attach again");
  if (std::ranges::find(gone_, session.incarnation) != gone_.end()) reply(peer, build_refused(why));
  else refuse(peer, why);
  return nullptr;
}

void StoreServer::answer(const std::string& peer, const ConfirmRequest& request) {
  Worker* worker = holder(peer, request);
  if (worker == nullptr) return;
  const auto alive = files_->worker_alive(request.slot);
  if (!alive || !*alive)
    return refuse(peer,
                  invalid_argument("slot " + std::to_string(request.slot) + " was confirmed without holding its lock"));
  worker->confirmed = true;
  log::info("worker '{}' attached to slot {} for model {}", worker->client, request.slot, worker->model);
  reply(peer, build_confirmed(request));
}

void StoreServer::answer(const std::string& peer, const DetachRequest& request) {
  if (holder(peer, request) != nullptr) drop_worker(request.slot, "detached");
}

void StoreServer::answer(const std::string& peer, const FetchRequest& request) {
  Worker* worker = holder(peer, request);
  if (worker == nullptr) return;
  const auto entries = entries_of(*worker, request);
  if (!entries) return;
  worker->fetches += entries->size();
  perform(machine_->fetch(request.slot, {request.plan, request.moe_layer}, *entries));
}

void StoreServer::answer(const std::string& peer, const CancelRequest& request) {
  if (holder(peer, request) != nullptr) perform(machine_->cancel(request.slot));
}

void StoreServer::answer(const std::string& peer, const StatusRequest& request) {
  if (const Status spoken = check_protocol("a request for the status", request.protocol); !spoken)
    return refuse(peer, spoken);
  reply(peer, build_status(figures()));
}

void StoreServer::pump_reads() {
  std::vector<LoadOutcome> outcomes;
  loader_->pump(outcomes);
  for (const LoadOutcome& outcome : outcomes) {
    const auto [entry, source, file] = under_way_.extract(outcome.load).mapped();
    const Status status =
        outcome.status.is_ok() ? outcome.status : outcome.status.with_context(catalogue_.describe(source));
    const Actions actions = machine_->read_done(entry, outcome.load, status, outcome.content, outcome.carried);
    if (machine_->state(entry) == Residency::kBad)
      log::error("{}; requests that need it will fail", machine_->failure(entry).message());
    else if (!status.is_ok() && status.code() != Code::kCancelled)
      log::warn("{}; reading the same bytes from another pack", status.message());
    if (machine_->state(entry) == Residency::kResident) MOESTRO_FAULT_POINT("resident");
    perform(actions);
  }
}

void StoreServer::perform(const Actions& actions) {
  for (const uint32_t entry : machine_->take_readable_again())
    log::info("{} can be read again", catalogue_.describe(entry));
  for (const Action& action : actions) {
    switch (action.kind) {
      case Action::Kind::kRead: begin_read(action); break;
      case Action::Kind::kPromote: loader_->promote(action.load); break;
      case Action::Kind::kCancel: loader_->cancel(action.load); break;
      case Action::Kind::kNotify: notify(action); break;
      case Action::Kind::kCheck: begin_check(action); break;
      case Action::Kind::kPoison: std::memset(files_->arena() + action.offset, 0xff, action.length); break;
    }
  }
}

void StoreServer::begin_read(const Action& action) {
  const Catalogue::Pack& pack = catalogue_.pack_of_entry(action.source);
  under_way_[action.load] = {action.entry, action.source, pack.first_file};
  loader_->load({action.load, files_->arena() + action.offset,
                 load_slices(catalogue_.blob(action.source), pack.first_file), action.read_class});
  MOESTRO_FAULT_POINT("loading");
}

void StoreServer::begin_check(const Action& action) {
  const TableEntry& entry = files_->entry(action.entry);
  check_.add(action.entry, action.load, catalogue_.blob(action.entry), files_->arena() + action.offset,
             {entry.content_low.load(std::memory_order_relaxed), entry.content_high.load(std::memory_order_relaxed)});
}

void StoreServer::notify(const Action& action) {
  const auto& worker = workers_[action.slot];
  if (!worker || !files_->has_slot(action.slot)) return;
  if (action.outcome != Code::kOk) {  // the reason goes first, so that it is there when the bell rings
    const Catalogue::Pack& pack = catalogue_.pack(worker->pack);
    for (uint32_t blob = 0; blob < pack.manifest.blobs.size(); ++blob)  // several of its blobs may have these bytes
      if (machine_->resolve(pack.first_entry + blob) == action.entry)
        reply(worker->peer, build_blob_failed(blob, machine_->failure(action.entry)));
  }
  files_->ring(action.slot, action.entry, static_cast<uint32_t>(action.outcome));
}

void StoreServer::look_around() {
  const auto now = steady_clock::now();
  if (now - looked_around_ < kIdleWait) return;
  looked_around_ = now;
  machine_->look_around();
}

void StoreServer::look_for_dead_workers() {
  const auto now = steady_clock::now();
  if (now - looked_ < kIdleWait) return;
  looked_ = now;
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    if (!workers_[slot]) continue;
    if (files_->pins_cut(slot)) {
      log::warn("worker '{}' of slot {} has cut the file of its pins short: it has no place here any more",
                workers_[slot]->client, slot);
      drop_worker(slot, "is put out");
      continue;
    }
    if (!workers_[slot]->confirmed && now - workers_[slot]->offered < kConfirmWithin) continue;
    const auto alive = files_->worker_alive(slot);
    if (alive && !*alive) drop_worker(slot, workers_[slot]->confirmed ? "is gone" : "never confirmed its slot");
  }
}

uint64_t StoreServer::pinned_bytes(uint32_t slot) const {
  const uint64_t least = files_->table().pin_bytes_min.load(std::memory_order_relaxed);
  uint64_t bytes = 0;
  for (uint32_t entry = 0; entry < catalogue_.entries(); ++entry)
    if (catalogue_.has_entry(entry) && catalogue_.blob(entry).kind == BlobKind::kExpert)
      bytes += PinWord::pinned(files_->pin_word(slot, entry).load(std::memory_order_relaxed))
                   ? std::max(catalogue_.blob(entry).length, least)
                   : 0;
  return bytes;
}

/// Why the store does not take from a worker what it pins beyond its share stands in store/README.md.
void StoreServer::name_who_pins_too_much(bool blocked) {
  const auto now = steady_clock::now();
  if (!blocked) not_blocked_ = now;
  if (now - not_blocked_ < kBlockedLong) return;
  not_blocked_ = now;
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    auto& worker = workers_[slot];
    if (!worker || !worker->confirmed || worker->named) continue;
    const uint64_t share = files_->table().share_bytes[slot].load(std::memory_order_relaxed),
                   pinned = pinned_bytes(slot);
    worker->named = pinned > share;
    if (worker->named)
      log::warn(
          "worker '{}' of slot {} pins {} bytes of experts, its share is {}: others wait for room until it lets go; if "
          "it does not, "
          "stop it",
          worker->client, slot, pinned, share);
  }
}

void StoreServer::drop_worker(uint32_t slot, const char* why) {
  log::info("worker '{}' of slot {} {}: its pins are cleared", workers_[slot]->client, slot, why);
  (void)state_->hits_of_all(), (void)state_->misses_of_all();  // what it had counted by now
  machine_->look_at_all();     // what it used says what is hot
  files_->forget_slot(slot);  // its pin words go with the file
  gone_.push_back(workers_[slot]->incarnation);
  if (gone_.size() > kWorkerSlotsMax) gone_.pop_front();
  workers_[slot].reset();
  perform(machine_->gone(slot));
}

StoreFigures StoreServer::figures() const {
  StoreFigures f;
  f.epoch = epoch_, f.arena_bytes = files_->table().arena_bytes, f.used_bytes = machine_->used_bytes();
  PageReport pages = files_->pages();
  f.huge_bytes = pages.huge_bytes, f.pages = std::move(pages.found), f.pages_mend = std::move(pages.mend);
  f.reader = std::string(loader_->drives().front()->reader_name()), f.policy = std::string(machine_->policy());
  f.models = model_figures();
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    if (!workers_[slot]) continue;
    const Worker& worker = *workers_[slot];
    WorkerFigures w{slot,
                    worker.client,
                    worker.model,
                    worker.fetches,
                    files_->table().share_bytes[slot].load(std::memory_order_relaxed),
                    0,
                    files_->pins_header(slot).hits.load(std::memory_order_relaxed),
                    files_->pins_header(slot).misses.load(std::memory_order_relaxed)};
    for (uint32_t entry = 0; entry < catalogue_.entries(); ++entry)
      w.pinned += PinWord::pinned(files_->pin_word(slot, entry).load(std::memory_order_relaxed));
    f.workers.push_back(std::move(w));
  }
  const StoreMachine::Counters& c = machine_->counters();
  f.fetches = c.fetches, f.joined = c.joined, f.loads = c.loads, f.evictions = c.evictions, f.bad_blobs = c.bad_blobs,
  f.segments_emptied = c.segments_emptied;
  f.window_places = window_.places, f.streamed_loads = c.streamed, f.streamed_loaded_bytes = c.streamed_bytes;
  f.adopted = c.adopted, f.adopted_bytes = c.adopted_bytes, f.adopted_seconds = adoption_.seconds;
  f.unchecked = machine_->unchecked(), f.damaged = c.damaged, f.unreadable = machine_->unreadable();
  const auto seconds_since = [](std::optional<TimePoint> then) {
    return then ? std::chrono::duration<double>(steady_clock::now() - *then).count() : -1;
  };
  f.memory_changed_s = seconds_since(memory_changed_), f.refused_s = seconds_since(refusals_.last());
  f.refused = refusals_.count(), f.reads_elsewhere = c.reads_elsewhere,
  f.aliases = static_cast<uint32_t>(machine_->aliases()), f.resident_bytes = machine_->resident_bytes();
  const BlobLoader::Counters read = loader_->counters();
  f.bytes_read = read.bytes_read, f.retries = read.retries;
  f.reading = reading_figures();
  f.warm_start = warm_.progress(steady_clock::now());
  f.queued = static_cast<uint32_t>(machine_->queued()), f.loading = static_cast<uint32_t>(machine_->loading());
  return f;
}

}  // namespace moestro::store

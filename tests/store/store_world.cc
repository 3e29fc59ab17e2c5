#include "tests/store/store_world.h"

#include <algorithm>

namespace moestro::store::testing {
namespace {
constexpr uint64_t kEventsBetweenCalms = 1500;
constexpr int kRoundsMax = 3000;
using State = SimulatedWorker::State;
}  // namespace

void StoreWorld::run(uint64_t events) {
  for (uint64_t i = 0; i < events; ++i) {
    survive(&StoreWorld::event);
    ++tally_.events;
    check();
    if (i % kEventsBetweenCalms == kEventsBetweenCalms - 1) quiesce();
  }
  end();
}

void StoreWorld::event() {
  const uint64_t passed = pick(1500);
  machine_->at(now_ += passed == 0 ? std::chrono::seconds(15) : Nanos(passed % 3));
  SimulatedWorker& worker = workers_[pick(workers_.size())];
  const uint64_t what = pick(200);
  if (what < 2) return damage_memory();
  if (what < 4) return damage_file();
  if (what < 6) return scrub();
  if (what < 9) return change_packs();
  if (what < 12 && worker.stopped) return worker.stopped = false, void();
  if (what < 10 && worker.state == State::kIn) return worker.stopped = true, ++tally_.stops, void();
  if (what < 11 && worker.state == State::kIn) return worker.leave();
  if (what < 12 && chance(4)) return die();
  if (what < 13 && chance(3)) return kill_after_ = 1 + pick(40), void();
  if (what < 14 && chance(40)) return shut_down();
  if (what < 18) return warm_some();
  if (what < 28) return server_turn();
  if (what < 32 && !checks_.empty()) return check_one();
  if (what < 70 && !reads_.empty()) return drive_one();
  if (what < 100 && !mail_.empty()) return receive();
  if (worker.state == State::kIn && !worker.stopped) return worker.act();
  if (worker.state != State::kOut || packs_.empty()) return;
  const auto& [first, pack] = *std::next(packs_.begin(), static_cast<long>(pick(packs_.size())));
  if (!pack.retired) worker.attach(first);
}

/// As StoreServer::run() does after each wait.
void StoreWorld::server_turn() {
  if (machine_->blocked() || machine_->queued() > 0 || machine_->sweeping() || machine_->look_again())
    perform(machine_->poll());
  machine_->look_around();
  for (uint32_t slot = 0; slot < workers_.size(); ++slot)
    if (workers_[slot].state == State::kDead) drop_worker(slot);
  release_packs();
}

void StoreWorld::drop_worker(uint32_t slot) {
  machine_->look_at_all();
  shared_.pins[slot].clear();
  if (workers_[slot].state == State::kIn) workers_[slot].leave();
  workers_[slot].state = State::kOut;
  perform(machine_->gone(slot));
}

/// Of one worker after the other, in the order in which each sent them.
void StoreWorld::receive() {
  if (mail_.empty()) return;
  const uint32_t slot = mail_[pick(mail_.size())].slot;
  const auto at = std::ranges::find(mail_, slot, &Message::slot);
  const Message message = std::move(*at);
  mail_.erase(at);
  const SimulatedWorker& worker = workers_[slot];
  if (worker.state == State::kOut || worker.incarnation != message.incarnation) return;
  std::vector<uint32_t> entries;
  for (const uint32_t blob : message.blobs) entries.push_back(worker.pack + blob);
  const auto layer = static_cast<uint32_t>(message.plan % 3);
  switch (message.kind) {
    case Message::Kind::kFetch: return perform(machine_->fetch(slot, {message.plan, layer}, entries));
    case Message::Kind::kCancel: return perform(machine_->cancel(slot));
    case Message::Kind::kDetach: return drop_worker(slot);
    case Message::Kind::kForesee: return foresee(slot, entries);
  }
}

/// Anything that a client can send, in any order.
void StoreWorld::foresee(uint32_t slot, const std::vector<uint32_t>& entries) {
  std::vector<ForeseenEntry> experts;
  for (const uint32_t entry : entries)
    experts.push_back({entry, static_cast<float>(pick(11)) / 10, Nanos(pick(40))});
  ++tally_.outlooks;
  perform(machine_->foresee(slot, {experts, chance(4), chance(2)}));
}

void StoreWorld::perform(const Actions& actions) {
  for (const Action& action : actions) {
    switch (action.kind) {
      case Action::Kind::kRead: begin_read(action); break;
      case Action::Kind::kPromote: break;
      case Action::Kind::kCancel:
        for (Read& read : reads_) read.cancelled |= read.action.load == action.load;
        ++tally_.given_up;
        break;
      case Action::Kind::kNotify:
        if (workers_[action.slot].state == State::kIn) workers_[action.slot].told(action.entry, action.outcome);
        break;
      case Action::Kind::kPoison:
        for (uint64_t at = 0; at < action.length; at += kPage) *pages_at(action.offset + at) = {Page::kPoison};
        break;
      case Action::Kind::kCheck: checks_[action.entry] = {action.load, action.offset}; break;
    }
  }
}

void StoreWorld::begin_read(const Action& action) {
  const ServedPack* pack = pack_of(action.source);
  if (pack == nullptr || pack->removed) wrong("a read from a pack that is gone");
  expect(content_of(action.source) == content_of(action.entry), "a read of something else");
  reads_.push_back({action, pack->files, action.source - pack->first});
  tally_.warm += action.read_class == ReadClass::kScrub;
  tally_.read_ahead += action.read_class == ReadClass::kPrefetch;
}

void StoreWorld::write_page(Read& read) {
  const bool damaged = read.pages_done == 0 && read.files->health[read.blob] == Files::Health::kDamaged;
  *pages_at(read.action.offset + read.pages_done * kPage) = {read.files->contents[read.blob], read.pages_done,
                                                            damaged ? Harm::kMisread : Harm::kNone};
  ++read.pages_done;
}

/// One page of one read; the last one ends it.
void StoreWorld::drive_one() {
  if (reads_.empty()) return;
  const size_t at = pick(reads_.size());
  Read& read = reads_[at];
  Status status;
  if (read.cancelled && chance(2)) status = cancelled("nobody wants it");
  else if (read.files->health[read.blob] == Files::Health::kUnreadable || (!calm_ && chance(300)))
    status = io_error("the drive");
  else write_page(read);
  if (status && read.pages_done * kPage < read.action.length) return;
  const Read done = read;
  reads_.erase(reads_.begin() + static_cast<long>(at));
  expect(pack_of(done.action.source) != nullptr, "the pack of a read has gone before the read has ended");
  const uint32_t content = done.files->contents[done.blob];
  if (status && pages_at(done.action.offset)->harm == Harm::kMisread) status = corrupt("the file");
  perform(machine_->read_done(done.action.entry, done.action.load, status, {content, 7}, done.pages_done * kPage));
  const uint32_t entry = done.action.entry;
  if (machine_->state(entry) == Residency::kBad && contents_[content].dense)
    for (const SimulatedWorker& worker : workers_)
      tally_.bad_dense += std::ranges::count(worker.leases, entry, &SimulatedWorker::Lease::entry) > 0;
  const bool alias = machine_->state(entry) == Residency::kAlias;
  tally_.aliases += alias, tally_.dense_aliases += alias && contents_[content].dense;
}

void StoreWorld::check_one() {
  if (checks_.empty()) return;
  const auto at = std::next(checks_.begin(), static_cast<long>(pick(checks_.size())));
  const auto [entry, check] = *at;
  checks_.erase(at);
  perform(machine_->checked(entry, check.load, holds(check.offset, content_of(entry), Harm::kNone)));
}

/// As WarmLoad has it.
void StoreWorld::warm_some() {
  std::erase_if(named_, [this](uint32_t entry) {
    return machine_->state(machine_->resolve(entry)) != Residency::kLoading && !machine_->wanted(entry);
  });
  std::vector<uint32_t> next;
  while (!warm_.empty() && named_.size() + next.size() < 6) next.push_back(warm_.front()), warm_.pop_front();
  named_.insert(named_.end(), next.begin(), next.end());
  if (!next.empty()) perform(machine_->warm(next));
}

/// Every second time of something that a worker has leased, and its file is damaged too.
void StoreWorld::damage_memory() {
  auto entry = static_cast<uint32_t>(pick(machine_->entries()));
  const auto& leases = workers_[pick(workers_.size())].leases;
  if (chance(2) && !leases.empty()) {
    entry = leases[pick(leases.size())].entry;
    const ServedPack& pack = *pack_of(entry);
    pack.files->health[entry - pack.first] = static_cast<Files::Health>(1 + pick(2));
  }
  const Residency state = machine_->state(entry);
  if (state != Residency::kResident && state != Residency::kAdopted) return;
  const uint64_t at = machine_->offset(entry) + pick(contents_[content_of(entry)].pages) * kPage;
  pages_at(at)->harm = std::max(pages_at(at)->harm, Harm::kHit);
  for (SimulatedWorker& worker : workers_)
    for (SimulatedWorker::Lease& lease : worker.leases) lease.harmed |= lease.entry == entry;
  ++tally_.hits;
}

void StoreWorld::damage_file() {
  if (packs_.empty()) return;
  ServedPack& pack = std::next(packs_.begin(), static_cast<long>(pick(packs_.size())))->second;
  Files::Health& health = pack.files->health[pick(pack.blobs())];
  health = health == Files::Health::kGood ? static_cast<Files::Health>(1 + pick(2)) : Files::Health::kGood;
}

void StoreWorld::scrub() {
  for (uint32_t entry = 0; entry < machine_->entries(); ++entry) {
    if (machine_->state(entry) != Residency::kResident) continue;
    if (holds(machine_->offset(entry), content_of(entry), Harm::kNone)) continue;
    ++tally_.rereads;
    return perform(machine_->found_wrong(entry));
  }
}

void StoreWorld::change_packs() {
  const uint64_t what = pick(5);
  if (packs_.empty() || what == 0) return add_pack();
  ServedPack& pack = std::next(packs_.begin(), static_cast<long>(pick(packs_.size())))->second;
  if (what == 1) {
    pack.retired = true;
    return add_pack();  // in its stead
  }
  if (what == 2) {
    pack.retired = true;
    return release_packs();
  }
  if (!pack.removed) mend(pack);
}

void StoreWorld::add_pack() {
  const auto& contents = templates_[pick(templates_.size())];
  uint32_t first = 0;
  for (const auto& [taken, pack] : packs_) {
    if (taken - first >= contents.size()) break;
    first = taken + pack.blobs();
  }
  if (first + contents.size() > machine_->entries()) return;
  std::vector<MachineBlob> blobs;
  for (const uint32_t content : contents) blobs.push_back(blob_of(content));
  if (!machine_->add_entries(first, blobs)) return;
  uint32_t model = 0;
  while (std::ranges::any_of(packs_, [&](const auto& pack) { return pack.second.model == model; })) ++model;
  packs_[first] = {first, model, std::make_shared<Files>(Files{contents, std::vector<Files::Health>(contents.size())})};
  ++tally_.packs_added;
  machine_->set_owners(first, packs_[first].blobs(), ModelMask{1} << model);
}

/// Its files are opened anew.
void StoreWorld::mend(ServedPack& pack) {
  pack.files = std::make_shared<Files>(*pack.files);
  if (!chance(4)) pack.files->health.assign(pack.blobs(), Files::Health::kGood);
  pack.retired = false;
  ++tally_.mended;
  perform(machine_->mend_entries(pack.first, pack.blobs()));
}

uint32_t StoreWorld::workers_of(const ServedPack& pack) const {
  return static_cast<uint32_t>(std::ranges::count_if(workers_, [&](const SimulatedWorker& worker) {
    return worker.state != State::kOut && worker.pack == pack.first;
  }));
}

/// As StoreServer::release_unused_packs().
void StoreWorld::release_packs() {
  std::vector<uint32_t> unused;
  for (const auto& [first, pack] : packs_)
    if (pack.retired && workers_of(pack) == 0) unused.push_back(first);
  for (const uint32_t first : unused) {
    ServedPack& pack = packs_.at(first);
    const auto of_it = [&](uint32_t entry) { return entry >= first && entry < first + pack.blobs(); };
    if (!std::exchange(pack.removed, true)) {
      tally_.removed_while_warming += std::erase_if(warm_, of_it) + std::erase_if(named_, of_it) > 0;
      perform(machine_->remove_entries(first, pack.blobs()));
    }
    if (!machine_->entries_free(first, pack.blobs())) continue;
    std::erase_if(checks_, [&](const auto& check) { return of_it(check.first); });
    packs_.erase(first);
    ++tally_.packs_gone;
  }
}

void StoreWorld::shut_down() {
  std::vector<Warmth> hot = machine_->by_heat();
  start_afresh(chance(4) ? std::vector<Warmth>{} : std::move(hot));
}

bool StoreWorld::settled() {
  const bool waiting = std::ranges::any_of(workers_, [](const SimulatedWorker& worker) {
    return worker.state == State::kDead || (worker.state == State::kIn && !worker.stopped && !worker.idle());
  });
  return !waiting && reads_.empty() && checks_.empty() && mail_.empty() && warm_.empty() && machine_->queued() == 0 &&
         machine_->unchecked() == 0 && !machine_->blocked();
}

/// Nothing goes wrong any more: whatever is wanted must come, and whatever is not must go, although stopped workers
/// keep what they have. Only dense weights longer than a segment, of a pack that was added, may have to wait for those,
/// and others' layers for who pins more than its share, which has shrunk.
void StoreWorld::quiesce() {
  calm_ = true, kill_after_ = 0;
  const bool long_dense = std::ranges::any_of(
      contents_, [this](const Content& content) { return content.dense && content.pages * kPage > segment_bytes_; });
  for (SimulatedWorker& worker : workers_) worker.stopped &= !long_dense && !worker.over_window_share();
  for (int round = 0;; ++round) {
    if (round == kRoundsMax) wrong("something that is wanted does not come: " + what_is_outstanding());
    for (SimulatedWorker& worker : workers_) {
      if (worker.state != State::kIn || worker.stopped) continue;
      worker.release_all();
      worker.look();
    }
    for (size_t n = mail_.size(); n > 0 && !mail_.empty(); --n) receive();
    machine_->at(now_ += Nanos(1));
    drive_one(), check_one(), warm_some(), server_turn();
    check();
    if (settled()) break;
  }
  server_turn();
  check_removed();
  calm_ = false;
}

/// Everyone leaves: nothing is left.
void StoreWorld::end() {
  quiesce();
  for (SimulatedWorker& worker : workers_)
    if (worker.state == State::kIn) worker.leave();
  for (auto& [first, pack] : packs_) pack.retired = true;
  quiesce();
  expect(packs_.empty() && machine_->entries_free(0, machine_->entries()), "entries are left of packs that are gone");
  expect(machine_->used_bytes() == window_.bytes() && machine_->expert_bytes() == arena_bytes_ - window_.bytes(),
         "room has leaked");
  expect(machine_->aliases() == 0 && !machine_->sweeping(), "something is waited for that cannot come");
  for (uint32_t model = 0; model < kModelsMax; ++model)
    expect(machine_->model_bytes(model) == 0, "bytes are charged to a model that is gone");
}

}  // namespace moestro::store::testing

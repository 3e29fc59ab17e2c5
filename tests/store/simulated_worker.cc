// What store/client/store_client.cc does, without sockets and clocks.

#include <algorithm>

#include "tests/store/store_world.h"

namespace moestro::store::testing {

void SimulatedWorker::attach(uint32_t first) {
  const ServedPack& served = world_.packs_.at(first);
  uint64_t largest = 0;
  for (const uint32_t content : served.files->contents)
    if (!world_.contents_[content].dense) largest = std::max(largest, world_.contents_[content].pages * kPage);
  if (!world_.machine_->attach(slot_, largest, "w", served.model)) return;
  world_.perform(world_.machine_->share_known(first, served.blobs()));
  state = State::kIn, stopped = false, pack = first, incarnation = ++world_.incarnations_;
  leases.clear(), waiting_.clear(), rung_.clear(), asked_.clear(), late_.clear();
  blobs_.assign(served.blobs(), {});
  std::vector<uint32_t> dense;
  for (uint32_t blob = 0; blob < blobs_.size(); ++blob) {
    const uint32_t content = served.files->contents[blob];
    const Content& known = world_.contents_[content];
    blobs_[blob] = {first + blob, content, known.pages * kPage, known.dense, known.dense && !known.streamed,
                    known.streamed};
    (void)follow(blobs_[blob]);
    if (blobs_[blob].held) dense.push_back(blob);
  }
  fetch(dense);
}

/// The pins of a process that is gone stay set until the store clears them.
void SimulatedWorker::leave() {
  state = State::kDead, stopped = false;
  leases.clear(), waiting_.clear(), rung_.clear(), asked_.clear(), late_.clear(), blobs_.clear();
}

void SimulatedWorker::act() {
  look_at_late_pins();
  const uint64_t what = world_.pick(12);
  if (what < 4 && idle()) {
    ++plan_;
    std::vector<uint32_t> wanted;
    for (uint64_t i = 0, n = 1 + world_.pick(6); i < n; ++i) wanted.push_back(any_expert());
    return fetch(wanted);
  }
  if (what == 0) return try_pin(any_expert());
  if (what == 1) {
    std::vector<uint32_t> ahead;
    for (uint64_t n = world_.pick(2 * blobs_.size()); n > 0; --n) ahead.push_back(any_expert());
    return world_.post({Message::Kind::kForesee, slot_, incarnation, plan_, ahead});
  }
  if (what == 2 && world_.chance(12)) return cancel();
  if (what < 6 && !rung_.empty()) {
    const uint32_t blob = rung_.front();
    rung_.pop_front();
    return (void)look_at(blob);
  }
  if (what == 6) return look();
  if (what == 7 && std::ranges::any_of(blobs_, &Record::streamed)) return ask_streamed();
  if (what < 9) return release_all();
  activate();
}

/// The second half of pin_too_late().
void SimulatedWorker::look_at_late_pins() {
  for (const uint32_t blob : std::exchange(late_, {})) {
    if (world_.shared_.state(blobs_[blob].entry) == Residency::kResident) lease(blob);
    else clear_pin(blobs_[blob]);
  }
}

void SimulatedWorker::look() {
  look_at_late_pins();
  activate();
  for (const uint32_t blob : std::vector<uint32_t>(asked_))
    if (state == State::kIn) (void)look_at(blob);
  for (const uint32_t blob : asked_) ask({blob});
}

/// As StoreClient::ask_streamed(): it asks for no more than it may pin.
void SimulatedWorker::ask_streamed() {
  for (uint32_t blob = 0; blob < blobs_.size(); ++blob) {
    Record& record = blobs_[blob];
    if (!record.streamed || record.use != Use::kNone || record.pinned || !fits(record) || !world_.chance(3)) continue;
    record.use = Use::kAsked, record.failed = false;
    asked_.push_back(blob);
    set_pin(record);
    if (follow(record) == Residency::kResident) rung_.push_back(blob);
    else ask({blob});
  }
}

uint32_t SimulatedWorker::pinned_streamed() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(blobs_, [](const Record& record) { return record.streamed && record.pinned; }));
}

bool SimulatedWorker::over_window_share() const { return pinned_streamed() > world_.shared_.window_shares[slot_]; }

std::string SimulatedWorker::text() const {
  std::string text = "worker " + std::to_string(slot_) + (stopped ? " (stopped)" : "") + " of " +
                     std::to_string(leases.size()) + " leases with a share of " +
                     std::to_string(world_.shared_.shares[slot_]) + " waits for entries";
  for (const uint32_t blob : waiting_) text += " " + std::to_string(blobs_[blob].entry);
  text += ", has asked for";
  for (const uint32_t blob : asked_) text += " " + std::to_string(blobs_[blob].entry);
  return text;
}

void SimulatedWorker::told(uint32_t entry, Code outcome) {
  for (uint32_t blob = 0; blob < blobs_.size(); ++blob) {
    if (outcome != Code::kOk && world_.machine_->resolve(pack + blob) == entry) blobs_[blob].failed = true;
    if (blobs_[blob].entry == entry || pack + blob == entry) rung_.push_back(blob);
  }
}

void SimulatedWorker::pin_too_late(uint32_t entry) {
  for (uint32_t blob = 0; blob < blobs_.size(); ++blob) {
    Record& record = blobs_[blob];
    if (record.entry != entry || record.use != Use::kNone || record.pinned || record.held || !fits(record)) continue;
    set_pin(record);
    late_.push_back(blob);
    return;
  }
}

uint32_t SimulatedWorker::any_expert() {
  while (true)
    if (const auto blob = static_cast<uint32_t>(world_.pick(blobs_.size())); !blobs_[blob].dense) return blob;
}

bool SimulatedWorker::fits(const Record& record) const {
  if (record.streamed) return pinned_streamed() < world_.shared_.window_shares[slot_];
  uint64_t bytes = 0, count = 0;
  for (const Record& other : blobs_)
    if (other.pinned && !other.dense) bytes += other.length, ++count;
  const uint64_t cost = std::max(bytes, count * world_.shared_.pin_bytes_min);
  return record.dense || cost + world_.shared_.pin_cost(record.length) <= world_.shared_.shares[slot_];
}

void SimulatedWorker::fetch(const std::vector<uint32_t>& blobs) {
  for (const uint32_t blob : blobs) {
    if (blobs_[blob].use != Use::kNone || blobs_[blob].pinned) continue;
    blobs_[blob].use = Use::kWaiting, blobs_[blob].failed = false;
    waiting_.push_back(blob);
  }
  activate();
}

void SimulatedWorker::activate() {
  std::vector<uint32_t> batch;
  while (!waiting_.empty() && fits(blobs_[waiting_.front()])) {
    const uint32_t blob = waiting_.front();
    waiting_.pop_front();
    blobs_[blob].use = Use::kAsked;
    asked_.push_back(blob);
    set_pin(blobs_[blob]);
    if (follow(blobs_[blob]) == Residency::kResident) rung_.push_back(blob);
    else batch.push_back(blob);
  }
  if (!batch.empty()) ask(batch);
}

void SimulatedWorker::ask(const std::vector<uint32_t>& blobs) {
  world_.post({Message::Kind::kFetch, slot_, incarnation, plan_, blobs});
}

/// True: it has arrived or failed.
bool SimulatedWorker::look_at(uint32_t blob) {
  Record& record = blobs_[blob];
  if (record.use != Use::kAsked) return false;
  const uint32_t asked_of = record.entry;
  const Residency seen = follow(record);
  if (record.entry != asked_of && seen != Residency::kResident) ask({blob});
  if (seen == Residency::kResident) {
    std::erase(asked_, blob);
    lease(blob);
    return true;
  }
  if (seen != Residency::kBad || !record.failed) return false;
  record.failed = false, record.use = Use::kNone;
  std::erase(asked_, blob);
  clear_pin(record);
  if (!record.held) return true;
  for (Record& other : blobs_) clear_pin(other);  // without its dense weights it ends, in good order
  leave();
  return true;
}

Residency SimulatedWorker::follow(Record& record) {
  FakeSharedState& shared = world_.shared_;
  if (shared.state(record.entry) != Residency::kAlias || shared.aliases[record.entry] == 0)
    return shared.state(record.entry);
  const uint32_t before = std::exchange(record.entry, shared.aliases[record.entry] - 1);
  if (record.pinned) shared.pins[slot_].insert(record.entry), shared.pins[slot_].erase(before);
  return shared.state(record.entry);
}

void SimulatedWorker::try_pin(uint32_t blob) {
  Record& record = blobs_[blob];
  if (record.use != Use::kNone || record.pinned || !fits(record) || follow(record) != Residency::kResident) return;
  set_pin(record);
  lease(blob);
}

void SimulatedWorker::set_pin(Record& record) {
  record.pinned = true;
  world_.shared_.pins[slot_].insert(record.entry);
  world_.shared_.use(slot_, record.entry);
}

void SimulatedWorker::clear_pin(Record& record) {
  if (!std::exchange(record.pinned, false)) return;
  const bool twin = std::ranges::any_of(
      blobs_, [&](const Record& other) { return other.entry == record.entry && other.pinned; });
  if (!twin) world_.shared_.pins[slot_].erase(record.entry);
}

void SimulatedWorker::lease(uint32_t blob) {
  Record& record = blobs_[blob];
  record.use = Use::kLeased;
  const uint64_t offset = world_.shared_.offsets[record.entry];
  world_.expect(world_.holds(offset, record.content, Harm::kHit), "a lease on wrong bytes");
  leases.push_back({blob, record.entry, record.content, offset, !world_.holds(offset, record.content, Harm::kNone)});
  ++world_.tally_.leases;
}

void SimulatedWorker::release(size_t at) {
  Record& record = blobs_[leases[at].blob];
  leases.erase(leases.begin() + static_cast<long>(at));
  record.use = Use::kNone;
  clear_pin(record);
}

/// All but the dense weights.
void SimulatedWorker::release_all() {
  for (size_t i = leases.size(); i-- > 0;)
    if (!blobs_[leases[i].blob].held) release(i);
}

void SimulatedWorker::cancel() {
  if (std::ranges::any_of(asked_, [this](uint32_t blob) { return blobs_[blob].held; })) return;
  for (const uint32_t blob : asked_) blobs_[blob].use = Use::kNone, clear_pin(blobs_[blob]);
  for (const uint32_t blob : waiting_) blobs_[blob].use = Use::kNone;
  asked_.clear(), waiting_.clear();
  world_.post({Message::Kind::kCancel, slot_, incarnation, plan_});
}

}  // namespace moestro::store::testing

#include "store/replay/virtual_store.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace moestro::store {
namespace {

constexpr Nanos kLookAround = std::chrono::milliseconds(100);  ///< how often a store reads pin words of its own accord

}  // namespace

Result<std::unique_ptr<VirtualStore>> VirtualStore::create(const VirtualStoreOptions& options,
                                                           std::unique_ptr<policy::CachePolicy> policy) {
  std::unique_ptr<VirtualStore> made(new VirtualStore(options));
  StoreMachine::Options machine;
  machine.arena_bytes = options.experts_held * Placement::rounded(options.expert_bytes);
  machine.loading_bytes_max = options.loading_bytes_max > 0
                                  ? options.loading_bytes_max
                                  : std::max(machine.loading_bytes_max, 2 * options.expert_bytes);
  machine.ahead_floor = options.ahead_floor, machine.ahead_waste_max = options.ahead_waste_max;
  const std::vector<MachineBlob> blobs(options.experts, MachineBlob{.length = options.expert_bytes});
  MOESTRO_ASSIGN_OR_RETURN(made->machine_, StoreMachine::create(machine, blobs, std::move(policy), made->memory_));
  made->machine_->set_read_bytes(options.chunk_bytes);
  MOESTRO_RETURN_IF_ERROR(made->machine_->attach(VirtualMemory::kSlot, options.expert_bytes, "replay"));
  return made;
}

// --- the worker's side ---

bool VirtualStore::fits_share() const {
  const uint64_t each = std::max(options_.expert_bytes, memory_.pin_bytes_min());
  return (pinned_ + 1) * each <= memory_.share_bytes();
}

void VirtualStore::pin(tier::Key key) {
  Expert& expert = experts_[key];
  const uint32_t parts = expert.weight.sixteenths();
  memory_.pin(key, parts, parts == UseWeight::kWhole);
  expert.pinned = true;
  ++pinned_;
}

tier::Found VirtualStore::try_pin(tier::Key key, float weight) {
  Expert& expert = experts_[key];
  MOESTRO_CHECK(!expert.pinned && !expert.asked, "an expert that is in use is asked for again");
  expert.weight = UseWeight::of(weight);
  if (memory_.state(key) == Residency::kLoading) return tier::Found::kLate;
  if (!holds(key) || !fits_share()) return tier::Found::kMiss;
  pin(key);
  ++counters_.hits;
  const uint64_t generation = machine_->generation(key);
  counters_.brought += std::exchange(expert.generation, generation) != generation;
  return tier::Found::kHit;
}

void VirtualStore::fetch(std::span<const tier::Key> keys, uint64_t step, int32_t layer) {
  for (const tier::Key key : keys) {
    ++counters_.misses;
    counters_.late += memory_.state(key) == Residency::kLoading;
    experts_[key].asked = true;
    waiting_.push_back({key, {step, static_cast<uint32_t>(layer)}});
  }
  ask_for_waiting();
}

/// The pin goes first, so that the expert lands pinned.
void VirtualStore::ask_for_waiting() {
  while (!waiting_.empty() && fits_share()) {
    const ReadQueue::Why why = waiting_.front().why;
    std::vector<uint32_t> batch;
    while (!waiting_.empty() && fits_share()) {
      const Waiting next = waiting_.front();
      if (next.why.plan != why.plan || next.why.moe_layer != why.moe_layer) break;
      waiting_.pop_front();
      pin(next.key);
      if (holds(next.key)) arrived_.push_back(next.key);
      else batch.push_back(next.key);
    }
    if (!batch.empty()) perform(machine_->fetch(VirtualMemory::kSlot, why, batch));
  }
}

std::optional<tier::Key> VirtualStore::take_arrival() {
  ask_for_waiting();
  if (arrived_.empty()) return std::nullopt;
  const tier::Key key = arrived_.front();
  arrived_.pop_front();
  experts_[key].asked = false, experts_[key].generation = machine_->generation(key);
  return key;
}

void VirtualStore::unpin(tier::Key key) {
  MOESTRO_CHECK(experts_[key].pinned && !experts_[key].asked, "an expert that is not in use is let go");
  experts_[key].pinned = false;
  --pinned_;
  memory_.unpin(key);
  if (machine_->blocked()) perform(machine_->poll());
}

void VirtualStore::foresee(std::span<const tier::ForeseenKey> experts, bool scan, bool leads) {
  if (experts.empty() && !std::exchange(outlook_stands_, false)) return;
  outlook_stands_ = !experts.empty();
  foreseen_.clear();
  for (const tier::ForeseenKey& f : experts) foreseen_.push_back({f.key, f.probability, f.due});
  perform(machine_->foresee(VirtualMemory::kSlot, {foreseen_, scan, leads}));
}

tier::HostCounters VirtualStore::counters() {
  tier::HostCounters all = counters_;
  const PrefetchLedger::Counters& ahead = machine_->prefetch_counters();
  all.prefetched = ahead.used + ahead.wasted + ahead.unused;
  all.prefetched_used = ahead.used, all.prefetched_wasted = ahead.wasted;
  all.wasted_bytes = ahead.wasted_bytes;
  all.evictions = machine_->counters().evictions;
  all.read_bytes = drive_.bytes(), all.drive_busy = drive_.busy();
  return all;
}

// --- the store's side ---

std::optional<Nanos> VirtualStore::next_event() {
  std::optional<Nanos> next = drive_.ends();
  if (const auto look = machine_->look_again()) next = std::min(next.value_or(Nanos::max()), std::max(*look, now_));
  return next;
}

void VirtualStore::advance(Nanos now) {
  for (auto next = next_event(); next && *next <= now; next = next_event()) {
    now_ = *next;
    machine_->at(now_);
    if (machine_->look_again().value_or(Nanos::max()) <= now_) perform(machine_->poll());
    if (drive_.ends() != now_) continue;
    const auto read = drive_.finish();
    perform(read ? ended(*read) : Actions{});
  }
  now_ = now;
  machine_->at(now_);
  if (now_ - looked_around_ < kLookAround) return;
  looked_around_ = now_;
  machine_->look_around();
}

Actions VirtualStore::ended(const VirtualDrive::Ended& read) {
  ++counters_.reads;
  if (!read.whole) ++counters_.dropped;
  const ContentHash content{read.entry + 1, 1};  // no two experts are equal
  return machine_->read_done(read.entry, read.load, read.whole ? Status::ok() : cancelled("nobody wants it any more"),
                             content, read.bytes);
}

void VirtualStore::perform(Actions actions) {
  while (true) {
    for (const Action& action : actions) {
      switch (action.kind) {
        case Action::Kind::kRead:
          drive_.begin(action.load, action.entry, action.read_class == ReadClass::kDemand);
          break;
        case Action::Kind::kPromote: drive_.promote(action.load); break;
        case Action::Kind::kCancel: drive_.cancel(action.load); break;
        case Action::Kind::kNotify:
          if (experts_[action.entry].asked) arrived_.push_back(action.entry);
          break;
        case Action::Kind::kPoison:
        case Action::Kind::kCheck: break;  // of memory that has bytes
      }
    }
    const auto given_up = drive_.take_cancelled();
    if (!given_up) break;
    actions = ended(*given_up);
  }
  drive_.poke(now_);
}

}  // namespace moestro::store

#include "store/machine/store_machine.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/check.h"
#include "common/expert_layout.h"

namespace moestro::store {
namespace {
constexpr uint64_t kGranule = kDiskAlign;
static_assert(kGranule == SegmentAllocator::kGranule);
constexpr uint32_t kLooksAtOnce = 4096;  ///< entries of the table: tens of microseconds
/// Read ahead at once, if it is at most this part of the room; of blobs that are larger two, so that the drive goes on
/// from one to the next. Drives have two chunks in flight of what nobody waits for (DriveOptions::background_depth).
constexpr uint64_t kAheadBytes = 4ULL << 20, kAheadShare = 16;

struct Needs {
  uint64_t dense = 0, largest_expert = 0;
};

Needs needs_of(const std::vector<MachineBlob>& blobs) {
  Needs needs;
  for (const MachineBlob& blob : blobs) {
    if (blob.stays()) needs.dense += Placement::rounded(blob.length);
    else if (!blob.dense) needs.largest_expert = std::max(needs.largest_expert, Placement::rounded(blob.length));
  }
  return needs;
}

/// Of the experts; what dense weights leave is theirs.
uint64_t segment_bytes_for(const std::vector<MachineBlob>& blobs, uint64_t arena_bytes, WindowShape window = {}) {
  std::map<uint64_t, uint64_t> bytes;
  for (const MachineBlob& blob : blobs)
    if (!blob.dense) bytes[Placement::rounded(blob.length)] += Placement::rounded(blob.length);
  std::vector<SizeShare> sizes;
  for (const auto& [length, total] : bytes) sizes.push_back({length, total});
  return choose_segment_bytes(sizes, arena_bytes / kGranule * kGranule - needs_of(blobs).dense - window.bytes());
}
}  // namespace

uint64_t StoreMachine::arena_bytes_min(const std::vector<MachineBlob>& blobs) {
  const Needs needs = needs_of(blobs);
  return needs.dense + needs.largest_expert;
}

uint64_t StoreMachine::arena_bytes_max(const std::vector<MachineBlob>& blobs) {
  uint64_t experts = 0;
  std::map<uint64_t, uint64_t> counts;
  for (const MachineBlob& blob : blobs)
    if (!blob.dense) ++counts[blob.length], experts += Placement::rounded(blob.length);
  const uint64_t dense = needs_of(blobs).dense, segment = segment_bytes_for(blobs, dense + experts);
  if (counts.empty()) return dense;
  uint64_t segments = 0;
  for (const auto& [length, count] : counts) segments += (count - 1) / (segment / Placement::rounded(length)) + 1;
  return dense + segments * segment;
}

Result<std::unique_ptr<StoreMachine>> StoreMachine::create(Options options, std::vector<MachineBlob> blobs,
                                                           std::unique_ptr<policy::CachePolicy> policy,
                                                           SharedState& shared) {
  const WindowShape& window = options.window;
  if (window.places > 0 && (window.place_bytes == 0 || window.places > options.arena_bytes / window.place_bytes))
    return corrupt(std::to_string(window.places) + " places of " + std::to_string(window.place_bytes) +
                   " bytes for dense weights, in an arena of " + std::to_string(options.arena_bytes));
  Needs needs = needs_of(blobs);
  needs.dense += options.window.bytes();
  if (options.arena_bytes / kGranule * kGranule < needs.dense + needs.largest_expert)
    return exhausted("an arena of " + std::to_string(options.arena_bytes) + " bytes is too small: dense weights need " +
                     std::to_string(needs.dense) + " and the largest expert " + std::to_string(needs.largest_expert) +
                     "; raise --dram to at least " + std::to_string(needs.dense + needs.largest_expert));
  if (options.segment_bytes == 0) options.segment_bytes = segment_bytes_for(blobs, options.arena_bytes, options.window);
  if (options.window.place_bytes % kGranule != 0)
    return corrupt("places of " + std::to_string(options.window.place_bytes) + " bytes for dense weights");
  for (const MachineBlob& blob : blobs)
    if (blob.streamed && (options.window.places == 0 || blob.length > options.window.place_bytes))
      return corrupt("dense weights of " + std::to_string(blob.length) + " bytes are to take turns in places of " +
                     std::to_string(options.window.place_bytes));
  if (options.segment_bytes % kGranule != 0 || options.segment_bytes > options.arena_bytes)
    return corrupt("segments of " + std::to_string(options.segment_bytes) + " bytes in an arena of " +
                   std::to_string(options.arena_bytes));
  return std::unique_ptr<StoreMachine>(new StoreMachine(options, std::move(blobs), std::move(policy), shared));
}

StoreMachine::StoreMachine(Options options, std::vector<MachineBlob> blobs, std::unique_ptr<policy::CachePolicy> policy,
                           SharedState& shared)
    : options_(options),
      shared_(shared),
      placement_(options.arena_bytes, options.segment_bytes),
      policy_(std::move(policy)),
      watch_(shared),
      waste_(options.ahead_floor, options.ahead_waste_max,
             tier::kWasteWindow * static_cast<double>(needs_of(blobs).largest_expert)) {
  for (MachineBlob& blob : blobs) entries_.emplace_back().blob = kind_of(blob), entries_.back().used = true;
  entries_.resize(std::max<size_t>(entries_.size(), options_.entries_max));
  contents_.resize(entries_.size());
  watch_.resize(entries_.size());
  outlooks_.resize(entries_.size());
  if (options.window.places > 0)  // at the arena's low end, in every store of this geometry
    window_ = LayerWindow(*placement_.place(true, options.window.bytes(), UINT32_MAX), options.window);
  place_dense();
  expert_bytes_ = options_.arena_bytes / kGranule * kGranule - placement_.used_bytes();
  set_waste_share();
}

void StoreMachine::place_dense() {
  for (uint32_t index = 0; index < entries_.size(); ++index)
    if (entries_[index].blob.stays())
      entries_[index].offset = *place(index), entries_[index].placed = true;  // create() measured
}

Actions StoreMachine::gone(uint32_t slot) {
  Actions actions;
  outlooks_.remove(slot);
  queue_.forget(slot);
  workers_[slot].reset();
  watch_.rebase();  // its words are gone
  share_out();
  schedule(actions);
  return actions;
}

Actions StoreMachine::cancel(uint32_t slot) {
  Actions actions;
  queue_.forget(slot);
  schedule(actions);
  return actions;
}

size_t StoreMachine::queued(ReadClass read_class) const {
  switch (read_class) {
    case ReadClass::kDemand: return queue_.queued_demands();
    case ReadClass::kPrefetch: return ahead_to_read();
    case ReadClass::kScrub: break;
  }
  return queue_.queued() - queue_.queued_demands();
}

Actions StoreMachine::poll() {
  Actions actions;
  if (sweep_again_) sweep(actions);
  schedule(actions);
  return actions;
}

Actions StoreMachine::fetch(uint32_t slot, ReadQueue::Why why, const std::vector<uint32_t>& wanted) {
  Actions actions;
  for (const uint32_t asked : wanted) {
    if (share_unread(asked, actions)) {  // whoever asks looks at the alias, and asks again if that one is not there
      actions.push_back({.kind = Action::Kind::kNotify, .entry = asked, .slot = slot});
      continue;
    }
    const uint32_t index = contents_.resolve(asked);
    const Entry& entry = entries_[index];
    if (entry.state == Residency::kBad && pace_.now() >= entry.again) try_again(index, actions);
    switch (entry.state) {
      case Residency::kResident:
      case Residency::kEvicting:  // only ever within try_evict()
        actions.push_back({.kind = Action::Kind::kNotify, .entry = index, .slot = slot});
        break;
      case Residency::kBad:
        actions.push_back(
            {.kind = Action::Kind::kNotify, .entry = index, .slot = slot, .outcome = entry.failure.code()});
        break;
      case Residency::kAlias: break;  // resolve() has gone past it
      case Residency::kAbsent:
      case Residency::kAdopted:  // its check comes before others', and answers like a read
      case Residency::kLoading: {
        const bool absent = entry.state == Residency::kAbsent;
        const bool joins = !absent || queue_.demanded(index);
        if (!queue_.want(slot, index, why, absent)) break;  // asked again
        ++counters_.fetches;
        counters_.joined += joins;
        if (entry.state == Residency::kAdopted) actions.push_back(check_of(index));
        else if (!absent) promote(index, actions);
      }
    }
  }
  schedule(actions);
  return actions;
}

Actions StoreMachine::read_done(uint32_t index, uint64_t load, const Status& status, const ContentHash& content,
                                uint64_t carried) {
  Actions actions;
  Entry& entry = entries_[index];
  if (entry.state != Residency::kLoading || entry.load != load) return actions;
  pace_.carried(status.is_ok() ? entry.blob.length : carried);
  if (status.code() == Code::kCancelled) return given_up(index, carried);
  const ContentKey key{content, entry.blob.length, entry.blob.format};
  Status verdict = status;
  if (status.is_ok() && contents_.contradicts(index, key))
    verdict = corrupt("its bytes are not those that were read before");
  if (!verdict.is_ok() && read_elsewhere(index, actions)) return actions;
  no_longer_loading(entry);
  entry.tried.clear();
  if (verdict.is_ok()) {
    can_be_read(index);
    const auto first = contents_.learn(index, key);
    note_claim(index, entry.source);
    if (first) {
      become_alias(index, *first, content, actions);
      if (sweep_again_) sweep(actions);
      schedule(actions);
      return actions;
    }
    landed(index, content);
  } else {
    failed(index, verdict, actions);
  }
  tell(index, verdict.code(), actions);
  if (sweep_again_) sweep(actions);
  schedule(actions);
  return actions;
}

void StoreMachine::landed(uint32_t index, const ContentHash& content) {
  Entry& entry = entries_[index];
  ++entry.generation;
  shared_.set_place(index, entry.offset, content);
  if (!entry.blob.dense) note_arrival(index);
  if (!entry.scanned && !entry.blob.streamed) waste_.moved(entry.blob.length);
  if (entry.read_class == ReadClass::kPrefetch)
    prefetched_.landed(index, entry.blob.length, shared_.uses(index).sixteenths);
  set_state(index, Residency::kResident);
}

void StoreMachine::tell(uint32_t index, Code outcome, Actions& actions) {
  for (const uint32_t slot : queue_.ended(index))
    actions.push_back({.kind = Action::Kind::kNotify, .entry = index, .slot = slot, .outcome = outcome});
}

void StoreMachine::no_longer_loading(const Entry& entry) {
  const auto read_class = static_cast<size_t>(entry.read_class);
  --loading_[read_class], loading_bytes_[read_class] -= entry.blob.length;
  if (entry.blob.streamed) --loading_streamed_, loading_streamed_bytes_ -= entry.blob.length;
}

/// Reads ahead go only as far as they keep the drive busy: each takes its room when it is begun, from what may be used
/// until it has come, and, until its chunk is read, the drive.
bool StoreMachine::may_begin(const MachineBlob& blob, ReadClass read_class) const {
  if (blob.streamed) return true;
  const bool demand = read_class == ReadClass::kDemand;
  const size_t reads = demand ? loading_[0] - loading_streamed_ : loading();
  const uint64_t bytes = demand ? loading_bytes_[0] - loading_streamed_bytes_
                                : loading_bytes_[0] + loading_bytes_[1] + loading_bytes_[2];
  const uint64_t ahead_max = std::max(2 * blob.length, std::min(kAheadBytes, expert_bytes_ / kAheadShare));
  const uint64_t bytes_max = demand ? options_.loading_bytes_max : std::min(options_.loading_bytes_max, ahead_max);
  return reads == 0 || bytes + blob.length <= bytes_max;
}

/// Whoever asked for it has set its pin word, which counts as a use; where nobody did, it was brought on a promise.
void StoreMachine::note_arrival(uint32_t index) {
  watch_.tick();
  const auto use = watch_.news(index);
  const auto known = remembered_.extract(index);
  if (!use && known)
    return policy_->inserted(index, group_of(entries_[index].blob.length), {known.mapped(), 0},
                             true);  // as hot as it was
  policy_->inserted(index, group_of(entries_[index].blob.length), use.value_or(policy::Use{watch_.now()}),
                    !use.has_value());
}

void StoreMachine::look_at(uint32_t index) {
  if (entries_[index].state != Residency::kResident || entries_[index].blob.dense) return;
  if (const auto use = news_of(index)) policy_->used(index, *use);
}

void StoreMachine::look_around() {
  watch_.tick();
  for (uint32_t i = 0; i < std::min<size_t>(kLooksAtOnce, entries_.size()); ++i) {
    look_at(looked_);
    looked_ = (looked_ + 1) % static_cast<uint32_t>(entries_.size());
  }
}

void StoreMachine::schedule(Actions& actions) {
  blocked_ = false;
  watch_.tick();
  if (!held_.empty()) leave_held_places(actions);
  queue_for_window();
  if (outlooks_.stale(pace_.now())) merge_outlooks(actions);
  look_again_.reset(), due_bytes_.clear();
  AheadTurn turn;
  while (true) {
    std::optional<ReadQueue::Next> next = queue_.next();
    if (!next || next->read_class != ReadClass::kDemand) {
      if (next_ahead(turn, actions)) continue;
      next = queue_.next();  // what was next may be an alias now
    }
    if (!next) return;
    const bool demanded = next->read_class == ReadClass::kDemand;
    Entry& entry = entries_[next->entry];
    if (!may_begin(entry.blob, next->read_class)) return;
    if (!entry.placed) {
      const std::optional<uint64_t> offset = entry.blob.streamed
                                                 ? room_in_window(next->read_class, actions)
                                                 : make_room({next->entry, next->read_class}, actions);
      if (!offset && !demanded) {  // nobody waits for what the store reads for itself
        queue_.ended(next->entry);
        continue;
      }
      if (!offset && entry.blob.streamed) {
        wait_for_window(next->entry);
        continue;
      }
      if (!offset) {
        blocked_ = true;
        queue_.hold(next->entry);
        give_up_ahead(actions);
        return;
      }
      entry.offset = *offset, entry.placed = true;
    }
    begin(next->entry, next->read_class, actions);
  }
}

void StoreMachine::begin(uint32_t index, ReadClass read_class, Actions& actions) {
  Entry& entry = entries_[index];
  const auto source = next_source(index);
  MOESTRO_CHECK(entry.used && source, "a read of what no pack has");
  queue_.taken(index);
  entry.read_class = read_class;
  ++loading_[static_cast<size_t>(read_class)], ++counters_.loads;
  loading_bytes_[static_cast<size_t>(read_class)] += entry.blob.length;
  if (entry.blob.streamed) {
    ++loading_streamed_, loading_streamed_bytes_ += entry.blob.length;
    ++counters_.streamed, counters_.streamed_bytes += entry.blob.length;
  }
  charge(index);
  shared_.set_place(index, entry.offset, content_of(index));
  set_state(index, Residency::kLoading);
  read_from(*source, index, actions);
}

void StoreMachine::set_state(uint32_t index, Residency state) {
  Entry& entry = entries_[index];
  unchecked_ += (state == Residency::kAdopted) - (entry.state == Residency::kAdopted);
  entry.state = state;
  entry.leased |= state == Residency::kResident || state == Residency::kAdopted;
  shared_.set_word(index, state, entry.generation);
}

}  // namespace moestro::store

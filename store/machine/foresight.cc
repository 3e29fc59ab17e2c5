// What is read ahead because workers foresee it (outlooks.h), and what becomes of it. Nothing is read ahead while a
// demand waits: schedule() asks for the next one only when no worker waits for anything that could be begun. Limits
// keep reads ahead from doing harm (common/tier/prefetch_rules.h has their figures):
//
//   floor     only what is likely enough to be worth that a demand may wait for a chunk of it; the floor rises while
//             too many of the bytes read are wasted
//   budget    only what the drives can bring before it is due, behind demands and what is due earlier
//   patience  one that evicts waits until it would otherwise come late; free room is used at once
//   guard     it takes nothing that is used sooner than itself (victims.cc)
//
// A scan names the next layers in the order of their use, so its reads ahead need neither floor nor budget nor
// patience. But they take at most a quarter of the room from others.

#include <algorithm>
#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {
constexpr double kPassedBy = 0.5;  ///< of the horizon: a due that moved further is that of a later pass
constexpr uint32_t kSearchesMax = 4;  ///< for room, in vain, before the rest of the wishes waits for the next event
}

void StoreMachine::at(Nanos now) { pace_.at(now, loading() > 0, loading_[0] > 0 || queue_.queued_demands() > 0); }

bool StoreMachine::likely_enough(const Wish& wish) const {
  const uint64_t in_the_way = std::min(read_bytes_, entries_[wish.entry].blob.length);
  return wish.probability >= waste_.floor() && wish.probability >= pace_.break_even(static_cast<double>(in_the_way));
}

Actions StoreMachine::foresee(uint32_t slot, const SlotOutlook& outlook) {
  Actions actions;
  outlooks_.replace(slot, pace_.now(), outlook);
  if (!outlook.scan && !outlook.experts.empty()) waste_.adjust();
  schedule(actions);
  return actions;
}

/// What share of the bytes read may be wasted depends on how much room the experts have.
void StoreMachine::set_waste_share() {
  double all = 0;
  for (const Entry& entry : entries_)
    if (entry.used && !entry.blob.dense) all += static_cast<double>(entry.blob.length);
  waste_.set_share_max(options_.ahead_waste_max > 0 ? options_.ahead_waste_max
                                                    : tier::waste_share(static_cast<double>(expert_bytes_), all));
}

/// What no worker foresees any more is given up, or loses its protection.
void StoreMachine::merge_outlooks(Actions& actions) {
  outlooks_.merge(pace_.now(), [this](uint32_t asked) -> std::optional<uint32_t> {
    const uint32_t index = contents_.resolve(asked);
    const Entry& entry = entries_[index];
    return entry.used && !entry.blob.dense ? std::optional(index) : std::nullopt;
  });
  std::erase_if(ahead_, [&](uint32_t index) {
    Entry& entry = entries_[index];
    if (entry.state == Residency::kResident) look_at(index);
    if (!entry.ahead) return true;
    if (stands(index)) return entry.due = outlooks_.find(index)->due, false;
    entry.ahead = false;
    if (entry.state != Residency::kLoading) policy_->ruled_out(index);
    else if (!queue_.wanted(index)) give_up(index, actions);
    return true;
  });
}

/// Whether what was read ahead is still to be used: it is foreseen, for no later pass than before.
bool StoreMachine::stands(uint32_t index) {
  const Wish* wish = outlooks_.find(index);
  if (wish == nullptr || (!wish->scan && wish->probability < tier::kDropBelow * options_.ahead_floor)) return false;
  const double moved = static_cast<double>((wish->due - entries_[index].due).count());
  return entries_[index].state == Residency::kLoading ||
         moved <= kPassedBy * static_cast<double>(outlooks_.horizon().count());
}

/// `index` is not protected as one that was read ahead.
void StoreMachine::no_longer_ahead(uint32_t index) {
  Entry& entry = entries_[index];
  entry.ahead = false;
  if (std::exchange(entry.scanned, false)) scanned_bytes_ -= entry.blob.length;
}

/// A demand waits for room, and reads ahead hold some.
void StoreMachine::give_up_ahead(Actions& actions) {
  for (const uint32_t index : reading_ahead_) {
    Entry& entry = entries_[index];
    if (entry.state != Residency::kLoading || !entry.ahead || queue_.wanted(index)) continue;
    entry.ahead = false;
    give_up(index, actions);
  }
}

/// What is being read ahead ends at its next chunk.
void StoreMachine::give_up(uint32_t index, Actions& actions) {
  ++counters_.prefetches_dropped;
  actions.push_back({.kind = Action::Kind::kCancel, .entry = index, .load = entries_[index].load});
}

/// The loader has left the load of `index` off. What it has carried was for nothing. If a worker wants the blob by now,
/// it is read again.
Actions StoreMachine::given_up(uint32_t index, uint64_t carried) {
  Actions actions;
  Entry& entry = entries_[index];
  prefetched_.broke_off(carried);
  if (!entry.scanned) waste_.moved(carried), waste_.wasted(carried);
  no_longer_loading(entry);
  entry.tried.clear();
  leave_place(index, actions);
  set_state(index, Residency::kAbsent);
  queue_.queue_again(index);
  if (sweep_again_) sweep(actions);
  schedule(actions);
  return actions;
}

/// A load that is demanded now counts, and is read, as one.
void StoreMachine::promote(uint32_t index, Actions& actions) {
  Entry& entry = entries_[index];
  if (entry.read_class == ReadClass::kDemand) return;
  counters_.prefetches_late += entry.read_class == ReadClass::kPrefetch;
  no_longer_ahead(index);
  no_longer_loading(entry);
  entry.read_class = ReadClass::kDemand;
  ++loading_[0], loading_bytes_[0] += entry.blob.length;
  actions.push_back({.kind = Action::Kind::kPromote, .entry = index, .load = entry.load});
}

/// Begins at most one read ahead. False: there is no more to be done now.
bool StoreMachine::next_ahead(AheadTurn& turn, Actions& actions) {
  const std::span<Wish> wishes = outlooks_.wishes();
  while (turn.next < wishes.size() && turn.searches < kSearchesMax) {
    Wish& wish = wishes[turn.next++];
    const uint32_t index = wish.entry;
    const Entry& entry = entries_[index];
    if (entry.state != Residency::kAbsent) continue;
    if (!wish.scan && !likely_enough(wish)) {
      counters_.below_floor += !std::exchange(wish.below_floor, true);
      continue;
    }
    if (!may_begin(entry.blob, ReadClass::kPrefetch)) break;
    if (!in_budget(wish)) {
      counters_.over_budget += !std::exchange(wish.over_budget, true);
      continue;
    }
    if (!next_source(index) || share_unread(index, actions)) continue;
    std::optional<uint64_t> offset = free_room(index);
    if (!offset && !wish.scan && may_wait(wish)) {
      counters_.early += !std::exchange(wish.early, true);
      continue;
    }
    if (!offset) offset = make_room({index, ReadClass::kPrefetch, &wish}, actions);
    if (offset) begin_ahead(wish, *offset, actions);
    else ++turn.searches, counters_.guarded += !std::exchange(wish.guarded, true);
    return true;  // an eviction may have brought a demand back into the queue
  }
  turn.next = wishes.size();
  return false;
}

void StoreMachine::begin_ahead(Wish& wish, uint64_t offset, Actions& actions) {
  Entry& entry = entries_[wish.entry];
  entry.offset = offset, entry.placed = true;
  entry.ahead = true, entry.due = wish.due;
  ahead_.push_back(wish.entry), reading_ahead_.push_back(wish.entry);
  if (wish.scan) entry.scanned = true, scanned_bytes_ += entry.blob.length, scanned_.push_back(wish.entry);
  ++counters_.prefetches;
  begin(wish.entry, ReadClass::kPrefetch, actions);
}

/// Whether the drives can bring it in time, behind all that is demanded, and what is being read ahead and due earlier.
bool StoreMachine::in_budget(const Wish& wish) {
  std::erase_if(reading_ahead_, [this](uint32_t index) {
    const Entry& entry = entries_[index];
    return entry.state != Residency::kLoading || entry.read_class != ReadClass::kPrefetch || !entry.ahead;
  });
  if (wish.scan) return true;
  uint64_t bytes = entries_[wish.entry].blob.length + loading_bytes_[0] + loading_bytes_[1];
  for (const uint32_t index : reading_ahead_)
    if (entries_[index].due > wish.due) bytes -= entries_[index].blob.length;
  return pace_.in_time(static_cast<double>(bytes), wish.due);
}

/// Whether a later read would be in time too. The room that it takes is that of an entry which may be used until then:
/// where every expert is used in turn, reading ahead as far as the drive can reach would read every expert once a pass,
/// however much room there is.
bool StoreMachine::may_wait(const Wish& wish) {
  const std::span<const Wish> wishes = outlooks_.wishes();
  const std::span<const uint32_t> by_due = outlooks_.by_due();
  if (due_bytes_.empty()) {
    double sum = static_cast<double>(loading_bytes_[0]);
    for (const uint32_t i : by_due) {
      const Entry& entry = entries_[wishes[i].entry];
      const bool to_come = entry.state == Residency::kAbsent || entry.state == Residency::kLoading;
      if (to_come && (wishes[i].scan || likely_enough(wishes[i])))
        sum += wishes[i].probability * static_cast<double>(entry.blob.length);
      due_bytes_.push_back(sum);
    }
  }
  const auto after = std::ranges::upper_bound(by_due, wish.due, {}, [&](uint32_t i) { return wishes[i].due; });
  const auto until = pace_.may_wait(due_bytes_[static_cast<size_t>(after - by_due.begin()) - 1], wish.due);
  if (until) look_again_ = std::min(look_again_.value_or(*until), *until);
  return until.has_value();
}

bool StoreMachine::scan_is_full(uint64_t length) const {
  return scanned_bytes_ + length > std::max(2 * length, expert_bytes_ / tier::kScanShare);
}

/// Room that it may have without an eviction.
std::optional<uint64_t> StoreMachine::free_room(uint32_t index) {
  const bool within_share = shares_.over_maximum(owners_of(index), entries_[index].blob.length) == 0;
  return within_share ? place(index) : std::nullopt;
}

const PrefetchLedger::Counters& StoreMachine::prefetch_counters() {
  prefetched_.settle([this](uint32_t index) { return shared_.uses(index).sixteenths; });
  return prefetched_.counters();
}

/// Reads ahead that only wait for the drives: not for their time, or for room.
size_t StoreMachine::ahead_to_read() const {
  return static_cast<size_t>(std::ranges::count_if(outlooks_.wishes(), [this](const Wish& wish) {
    return entries_[wish.entry].state == Residency::kAbsent && (wish.scan || likely_enough(wish)) &&
           !wish.over_budget && !wish.early && !wish.guarded;
  }));
}

std::string StoreMachine::inconsistency() const {
  uint64_t scanned = 0;
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    const auto listed = [index](const auto& list) { return std::ranges::find(list, index) != list.end(); };
    if (entry.scanned) scanned += entry.blob.length;
    const char* wrong = nullptr;
    if ((entry.ahead || entry.scanned) && !entry.placed) wrong = " was read ahead and has no place";
    else if (entry.ahead && !listed(ahead_)) wrong = " is read ahead and not listed";
    else if (entry.scanned && !listed(scanned_)) wrong = " is a scan's and not listed";
    else if (entry.ahead && entry.state == Residency::kLoading && entry.read_class == ReadClass::kDemand)
      wrong = " is read ahead and demanded";
    if (wrong != nullptr) return "entry " + std::to_string(index) + wrong;
  }
  if (scanned != scanned_bytes_) return "bytes of scans are miscounted";
  for (const Wish& wish : outlooks_.wishes())
    if (outlooks_.find(wish.entry) != &wish) return "a wish is not found by its entry";
  return {};
}

}  // namespace moestro::store

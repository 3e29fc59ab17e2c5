// Which of the entries that the policy proposes goes. Without outlooks it is the first that nobody has pinned.
//
//  - What a scan has read ahead, and its layer has passed, goes first.
//  - What is not foreseen goes before what is foreseen by a worker whose forecasts lead. If the policy proposes nothing
//    else for so long that a quarter of the residents was looked at, the one goes whose next use is furthest away.
//    Belady's oracle evicts what is used furthest in the future; so does this, with what is known of it.
//  - What was read ahead, and is still to be used, goes for no other read ahead, and for a demand only if nothing else
//    can go.
//  - A read ahead takes nothing that is used sooner than itself. Sooner includes likelier (tier::passes_until).

#include <algorithm>
#include <utility>

#include "store/machine/store_machine.h"

namespace moestro::store {
namespace {
using Verdict = policy::Verdict;
/// How many foreseen entries a search looks at: a quarter of the residents, within these limits.
constexpr uint64_t kLooksShare = 4, kForeseenLooksMin = 8, kForeseenLooksMax = 64;
}  // namespace

/// Uses since the last call, for the policy. What was read ahead has been used by now.
std::optional<policy::Use> StoreMachine::news_of(uint32_t index) {
  const auto use = watch_.news(index);
  if (!use) return use;
  Entry& entry = entries_[index];
  entry.ahead = false;
  if (!use->scan && std::exchange(entry.scanned, false)) scanned_bytes_ -= entry.blob.length;
  return use;
}

/// Evicts one entry; false if none may go.
bool StoreMachine::evict_one(const policy::Wanted& wanted, const RoomFor& what, const Shares::Eviction& why,
                             Actions& actions) {
  if (!scanned_.empty())
    if (const auto passed = passed_scan(wanted, why)) return evicted(*passed, actions), true;
  const uint64_t length = Placement::rounded(entries_[what.entry].blob.length);
  if (what.wish != nullptr && what.wish->scan && scan_is_full(length)) return false;
  Search search{.ahead = what.wish,
                .looks_max = std::clamp(placement_.used_bytes() / length / kLooksShare, kForeseenLooksMin,
                                        kForeseenLooksMax)};
  auto found = find_victim(wanted, why, search);
  if (!found && search.cut_short && what.wish == nullptr) {  // all of them have been pinned since
    search = {.looks_max = UINT64_MAX};
    found = find_victim(wanted, why, search);
  }
  if (found) evicted(*found, actions);
  return found.has_value();
}

/// Try_evict() has said yes to the result.
std::optional<uint32_t> StoreMachine::find_victim(const policy::Wanted& wanted, const Shares::Eviction& why,
                                                  Search& search) {
  bool taken = false;
  uint64_t looks = 0;
  const auto judge = [&](uint32_t index) -> Verdict {
    const Entry& entry = entries_[index];
    if (!shares_.may_evict(entry.charged, entry.blob.length, why)) return {Verdict::Kind::kSpared, {}};
    if (const auto use = news_of(index)) return {Verdict::Kind::kUsed, *use};
    if (const Wish* wish = outlooks_.find(index)) {
      if (shared_.pinned(index)) return {Verdict::Kind::kInUse, {}};
      if (entry.ahead) {
        search.promised.push_back(index);
        return {Verdict::Kind::kSpared, {}};
      }
      const bool sooner = search.ahead != nullptr && wish->until <= search.ahead->until;
      if (sooner || wish->leads) {
        if (!sooner) search.later.push_back(index);
        search.cut_short = ++looks >= search.looks_max;
        return {search.cut_short ? Verdict::Kind::kTake : Verdict::Kind::kSpared, {}};
      }
    }
    taken = try_evict(index);
    return {taken ? Verdict::Kind::kTake : Verdict::Kind::kInUse, {}};
  };
  const auto proposed = policy_->victim(wanted, judge);
  if (taken) return proposed;
  const auto until = [this](uint32_t index) { return outlooks_.find(index)->until; };
  if (search.ahead != nullptr) search.promised.clear();
  for (std::vector<uint32_t>* candidates : {&search.later, &search.promised}) {
    std::ranges::sort(*candidates, std::greater{}, until);
    for (const uint32_t index : *candidates)
      if (try_evict(index)) return index;
  }
  return std::nullopt;
}

/// What a scan has read ahead, and is neither still to come nor foreseen by anyone else.
std::optional<uint32_t> StoreMachine::passed_scan(const policy::Wanted& wanted, const Shares::Eviction& why) {
  std::erase_if(scanned_, [this](uint32_t index) { return !entries_[index].scanned; });
  for (const uint32_t index : scanned_) {
    const Entry& entry = entries_[index];
    if (entry.state != Residency::kResident || entry.ahead || outlooks_.find(index) != nullptr) continue;
    if (std::ranges::find(wanted.groups, group_of(entry.blob.length)) == wanted.groups.end()) continue;
    if (!shares_.may_evict(entry.charged, entry.blob.length, why)) continue;
    if (const auto use = news_of(index)) policy_->used(index, *use);
    if (entry.scanned && try_evict(index)) return index;
  }
  return std::nullopt;
}

void StoreMachine::count_waste(uint32_t index) {
  const uint64_t wasted = prefetched_.evicted(index, shared_.uses(index).sixteenths);
  if (!entries_[index].scanned) waste_.wasted(wasted);
}

}  // namespace moestro::store

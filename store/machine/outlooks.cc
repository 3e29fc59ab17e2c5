#include "store/machine/outlooks.h"

#include <algorithm>
#include <numeric>

#include "common/tier/prefetch_rules.h"

namespace moestro::store {
namespace {

double in_seconds(Nanos time) { return std::chrono::duration<double>(time).count(); }

/// Equal priorities are those of dues at the horizon, so the due and the probability decide before the number does.
bool comes_first(const Wish& a, const Wish& b) {
  if (a.scan != b.scan) return b.scan;
  if (a.scan) return a.order < b.order;
  if (a.priority() != b.priority()) return a.priority() > b.priority();
  if (a.due != b.due) return a.due < b.due;
  return a.probability != b.probability ? a.probability > b.probability : a.entry < b.entry;
}

}  // namespace

void Outlooks::replace(uint32_t slot, Nanos now, const SlotOutlook& outlook) {
  Standing& standing = standing_[slot];
  if (standing.experts.empty() && outlook.experts.empty()) return;
  slots_ = slots_ + !outlook.experts.empty() - !standing.experts.empty();
  standing.experts.assign(outlook.experts.begin(), outlook.experts.end());
  standing.since = now, standing.furthest = Nanos{0};
  standing.scan = outlook.scan, standing.leads = outlook.leads;
  for (const ForeseenEntry& expert : standing.experts) standing.furthest = std::max(standing.furthest, expert.due);
  stale_ = true;
}

void Outlooks::remove(uint32_t slot) { replace(slot, Nanos{0}, {}); }

void Outlooks::add(const Standing& outlook, const ForeseenEntry& expert, uint32_t entry) {
  if (wish_of_[entry] == 0) {
    wishes_.push_back({.entry = entry, .order = static_cast<uint32_t>(wishes_.size()), .due = Nanos::max()});
    wish_of_[entry] = static_cast<uint32_t>(wishes_.size());
  }
  Wish& wish = wishes_[wish_of_[entry] - 1];
  const double furthest = in_seconds(outlook.furthest);
  const double proximity = furthest > 0 ? 1 - in_seconds(expert.due) / furthest : 1;
  wish.probability = 1 - (1 - wish.probability) * (1 - expert.probability);
  wish.proximity = std::max(wish.proximity, static_cast<float>(proximity));
  wish.due = std::min(wish.due, outlook.since + expert.due);
  wish.scan &= outlook.scan, wish.leads |= outlook.leads;
}

void Outlooks::merge(Nanos now, const std::function<std::optional<uint32_t>(uint32_t entry)>& entry_of) {
  stale_ = false, ends_ = Nanos::max();
  for (const Wish& wish : wishes_) wish_of_[wish.entry] = 0;
  wishes_.clear();
  horizon_ = Nanos{0};
  for (Standing& standing : standing_) {
    if (standing.experts.empty()) continue;
    const Nanos end = standing.since + std::max(2 * standing.furthest, kStandsAtLeast);
    if (now > end) {
      standing.experts.clear(), --slots_;
      continue;
    }
    ends_ = std::min(ends_, end);
    horizon_ = std::max(horizon_, standing.since + standing.furthest - now);
    for (const ForeseenEntry& expert : standing.experts)
      if (const auto entry = entry_of(expert.entry)) add(standing, expert, *entry);
  }
  const double pass = std::max(in_seconds(horizon_), 1e-9);
  for (Wish& wish : wishes_)
    wish.until = tier::passes_until(std::max(in_seconds(wish.due - now), 0.0) / pass, wish.probability,
                                    wish.probability);
  std::ranges::sort(wishes_, comes_first);
  for (uint32_t i = 0; i < wishes_.size(); ++i) wish_of_[wishes_[i].entry] = i + 1;
  by_due_.resize(wishes_.size());
  std::iota(by_due_.begin(), by_due_.end(), 0);
  std::ranges::sort(by_due_, {}, [this](uint32_t i) { return wishes_[i].due; });
}

}  // namespace moestro::store

#include "common/tier/use_window.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>

#include "common/check.h"
#include "common/policy/lru_policy.h"
#include "common/tier/visit_oracle.h"

namespace moestro::tier {
namespace {

constexpr size_t kNotCountedShare = 4;  ///< a quarter

size_t first_counted(const UseWindow& window) { return window.visits.size() / kNotCountedShare; }
bool counts(const UseWindow& window, size_t visit) {
  return visit >= first_counted(window) && !window.visits[visit].scan;
}

std::span<const UseWindow::Use> uses_of(const UseWindow& window, size_t visit) {
  const size_t first = window.visits[visit].first;
  const size_t end = visit + 1 < window.visits.size() ? window.visits[visit + 1].first : window.uses.size();
  return std::span(window.uses).subspan(first, end - first);
}

/// What decoding used last before the window, the latest last.
std::vector<Key> held_before(const UseWindow& window, size_t slots) {
  std::vector<Key> keys;
  for (Key key = 0; key < window.used_before.size(); ++key)
    if (window.used_before[key] > 0) keys.push_back(key);
  std::ranges::sort(keys, {}, [&](Key key) { return window.used_before[key]; });
  if (keys.size() > slots) keys.erase(keys.begin(), keys.end() - static_cast<std::ptrdiff_t>(slots));
  return keys;
}

/// A device that copies what it lacks when it is wanted, in no time.
class OnDemand {
 public:
  OnDemand(TierOptions options, std::unique_ptr<policy::CachePolicy> policy) : experts_(options.experts) {
    options.prefetch = false, options.keep = true, options.chunk_bytes = options.expert_bytes;
    tier_.emplace(options, std::move(policy));
    tier_->sources_always_ready();
  }

  void begin_step(bool scan) { tier_->begin_step(kNow, scan); }
  /// How many of them were there.
  uint32_t visit(std::span<const UseWindow::Use> uses) {
    wanted_.clear();
    for (const auto& use : uses) wanted_.push_back({use.key, use.weight});
    found_.resize(wanted_.size());
    tier_->routed(kNow, static_cast<int32_t>(wanted_.front().key) / experts_, wanted_, found_);
    carry();
    while (!wanted_.empty()) {
      const auto ready =
          std::ranges::find_if(wanted_, [this](const auto& w) { return tier_->slot_of(w.key).has_value(); });
      MOESTRO_CHECK(ready != wanted_.end(), "a layer waits for a link that takes no time");
      tier_->released(kNow, ready->key);
      wanted_.erase(ready);
      carry();
    }
    return static_cast<uint32_t>(std::ranges::count(found_, Found::kHit));
  }

 private:
  static constexpr Nanos kNow{0};
  void carry() {
    while (const auto chunk = tier_->next_chunk(kNow)) tier_->chunk_done(kNow, *chunk, kNow);
  }
  const int32_t experts_;
  std::optional<DeviceTier> tier_;
  std::vector<DeviceTier::Wanted> wanted_;
  std::vector<Found> found_;
};

/// Hits of the visits that count; nothing: it was stopped.
std::optional<uint32_t> replayed(const UseWindow& window, std::span<const Key> before, const TierOptions& options,
                                 std::unique_ptr<policy::CachePolicy> policy, const std::function<bool()>& go_on) {
  OnDemand device(options, std::move(policy));
  device.begin_step(false);
  for (const Key key : before) {
    const UseWindow::Use use{key};
    device.visit({&use, 1});
  }
  uint32_t hits = 0;
  for (size_t v = 0; v < window.visits.size(); ++v) {
    if (!go_on()) return std::nullopt;
    if (window.visits[v].begins_step) device.begin_step(window.visits[v].scan);
    const uint32_t found = device.visit(uses_of(window, v));
    if (counts(window, v)) hits += found;
  }
  return hits;
}

/// The visits that both replays make, for the oracle.
Visits visits_of(const UseWindow& window, std::span<const Key> before, size_t all_keys) {
  Visits visits(all_keys);
  for (const Key key : before) visits.add({key});
  for (size_t v = 0; v < window.visits.size(); ++v) {
    std::vector<Key> keys;
    for (const auto& use : uses_of(window, v)) keys.push_back(use.key);
    visits.add(std::move(keys));
  }
  return visits;
}

}  // namespace

WindowHits hits_of(const UseWindow& window, const TierOptions& options, const std::function<bool()>& go_on) {
  WindowHits result;
  for (size_t v = 0; v < window.visits.size(); ++v) {
    if (!counts(window, v)) continue;
    for (const auto& use : uses_of(window, v)) ++result.uses, result.hits += use.hit;
  }
  if (result.uses == 0) return {};
  const auto before = held_before(window, static_cast<size_t>(options.slots));
  const auto keys = static_cast<size_t>(options.layers) * static_cast<size_t>(options.experts);
  const auto lru = replayed(window, before, options, std::make_unique<policy::LruPolicy>(), go_on);
  if (!lru) return {};
  const Visits visits = visits_of(window, before, keys);
  const auto belady = replayed(window, before, options, std::make_unique<VisitOracle>(visits), go_on);
  if (!belady) return {};
  result.lru_hits = *lru, result.belady_hits = *belady;
  return result;
}

}  // namespace moestro::tier

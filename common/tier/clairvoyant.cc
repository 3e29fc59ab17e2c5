#include "common/tier/clairvoyant.h"

#include <algorithm>
#include <memory>

#include "common/tier/visit_oracle.h"

namespace moestro::tier {
namespace {

/// Ascending behind the first, which is none.
constexpr int32_t kHorizons[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128};

class Aggressive final : public VisitOracle {
 public:
  /// `limited` becomes true when it would have looked further than the horizon.
  Aggressive(const Visits& visits, const ReplaySetup& setup, int32_t horizon, bool& limited)
      : VisitOracle(visits), slots_(setup.slots), horizon_(static_cast<size_t>(horizon)), limited_(limited) {}

  void removed(uint32_t key) override {
    VisitOracle::removed(key);
    clean_ = std::min(clean_, next(key));
  }

  /// What an idle link carries next: the first missing expert of the visit that runs, or of those to come.
  std::optional<Chunk> next_chunk(DeviceTier& tier) {
    const Visits& all = visits();
    size_t at = begun();  // the visit that runs; while none does, the next one
    if (begun() > 0)
      for (const std::span<const Key> running = all[begun() - 1]; const Key key : running) {
        if (!tier.in_use(key)) continue;
        at = begun() - 1;
        if (!tier.slot_of(key)) return copy(key, at, tier);
      }
    const size_t last = horizon_ == 0 ? all.size() : std::min(all.size(), at + horizon_ + 1);
    for (clean_ = std::max(clean_, begun()); clean_ < last; ++clean_)
      for (const std::span<const Key> later = all[clean_]; const Key key : later)
        if (!tier.slot_of(key)) return copy(key, clean_, tier);
    limited_ = limited_ || last < all.size();
    return std::nullopt;
  }

 private:
  /// Of a member; the visit that runs still needs what is in use.
  size_t next_use(Key key, const DeviceTier& tier) const { return tier.in_use(key) ? begun() - 1 : next(key); }

  std::optional<Chunk> copy(Key key, size_t needed, DeviceTier& tier) const {
    if (tier.resident() < slots_) return tier.begin_copy(key, std::nullopt);
    const Key out = *std::ranges::max_element(members(), {}, [&](Key k) { return next_use(k, tier); });
    if (next_use(out, tier) <= needed) return std::nullopt;
    return tier.begin_copy(key, out);
  }

  const int32_t slots_;
  const size_t horizon_;
  bool& limited_;
  size_t clean_ = 0;  ///< between the visit that runs and this one nothing is missing
};

/// Those of Belady's oracle, where a layer's experts are used at once, those present first.
uint64_t fewest_fetches(const Visits& visits, const ReplaySetup& setup) {
  uint64_t fetches = 0;
  std::vector<Key> resident;
  for (size_t v = 0; v < visits.size(); ++v) {
    std::vector<Key> missing;
    for (const Key key : visits[v])
      if (std::ranges::find(resident, key) == resident.end()) missing.push_back(key);
    fetches += missing.size();
    for (const Key key : missing) {
      if (std::ssize(resident) == setup.slots)
        resident.erase(std::ranges::max_element(resident, {}, [&](Key k) { return visits.next(k, v + 1); }));
      resident.push_back(key);
    }
    if (!setup.keep) resident.clear();
  }
  return fetches;
}

}  // namespace

Clairvoyant clairvoyant(const Routes& routes, std::span<const size_t> requests, const ReplaySetup& setup) {
  const Visits visits = visits_of(routes, plan_steps(routes, requests, setup.batch, setup.chunk));
  ReplaySetup whole = setup;
  whole.chunk_bytes = setup.expert_bytes;  // nothing is ever wanted before what is being copied
  Clairvoyant best;
  for (const int32_t horizon : kHorizons) {
    bool limited = false;
    auto oracle = std::make_unique<Aggressive>(visits, setup, horizon, limited);
    Aggressive& rule = *oracle;
    ReplayReport report = replay(routes, requests, whole, std::move(oracle),
                                 {.fetches = [&rule](DeviceTier& tier) { return rule.next_chunk(tier); }});
    if (horizon == 0) {
      const auto fetches = static_cast<int64_t>(fewest_fetches(visits, setup));
      best.least_time = std::max(report.total_time - report.total_stall, setup.copy_time() * fetches);
    }
    if (horizon == 0 || report.total_time < best.total_time)
      best.total_time = report.total_time, best.horizon = horizon, best.report = std::move(report);
    if (!limited && horizon > 0) break;  // a larger one does not limit it either
    if (best.total_time == best.least_time) break;
  }
  return best;
}

}  // namespace moestro::tier

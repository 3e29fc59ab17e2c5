#include "common/tier/device_tier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/tier/prefetch_rules.h"
#include "common/tier/tier_impl.h"

namespace moestro::tier {
namespace {

constexpr size_t kCandidatesMax = 64;     ///< prefetches that one forecast is good for
constexpr float kNewWant = 0.1F;          ///< weight of the last use in Impl::full_shares

/// Shares of a prompt's tokens that were added one by one are those that were divided.
float rounded(float weight) {
  constexpr float kParts = 4096;
  return std::round(weight * kParts) / kParts;
}

}  // namespace

float waste_limit(const TierOptions& options) {
  if (options.how.waste_max > 0) return options.how.waste_max;
  return waste_share(options.keep ? options.slots : 0, static_cast<double>(options.layers) * options.experts);
}

bool share_room(TierOptions& options, uint64_t room, double share, uint64_t low_bytes) {
  const uint64_t all = options.full_keys();
  const auto fit = [&](uint64_t bytes) {
    return static_cast<int32_t>(std::min(bytes / options.expert_bytes, all));
  };
  options.slots = fit(room), options.low_slots = 0, options.low_bytes = 0;
  if (static_cast<uint64_t>(options.slots) == all) return true;
  const auto low = static_cast<uint64_t>(share * static_cast<double>(room)) / low_bytes;
  options.low_bytes = low_bytes;
  options.low_slots = static_cast<int32_t>(std::clamp<uint64_t>(low, 1, all));
  const uint64_t taken = static_cast<uint64_t>(options.low_slots) * low_bytes;
  options.slots = fit(room - std::min(room, taken));
  if (options.slots == 0) return false;
  const uint64_t left = room - static_cast<uint64_t>(options.slots) * options.expert_bytes;
  options.low_slots = static_cast<int32_t>(std::min(left / low_bytes, all));
  return true;
}

LayerCounters& LayerCounters::operator+=(const LayerCounters& o) {
  hits += o.hits, late += o.late, misses += o.misses, evictions += o.evictions, low += o.low, skipped += o.skipped;
  prefetched += o.prefetched, prefetched_used += o.prefetched_used, prefetched_wasted += o.prefetched_wasted;
  return *this;
}

LayerCounters operator-(const LayerCounters& now, const LayerCounters& before) {
  return {now.hits - before.hits,
          now.late - before.late,
          now.misses - before.misses,
          now.low - before.low,
          now.skipped - before.skipped,
          now.evictions - before.evictions,
          now.prefetched - before.prefetched,
          now.prefetched_used - before.prefetched_used,
          now.prefetched_wasted - before.prefetched_wasted};
}

DeviceTier::Impl::Impl(const TierOptions& given, std::unique_ptr<policy::CachePolicy> chosen,
                       std::unique_ptr<policy::CachePolicy> chosen_for_low)
    : options(given),
      forecast(given.layers, given.experts),
      pace(given.link_bytes_per_s, given.link_latency),
      waste(given.how.floor, waste_limit(given), kWasteWindow * static_cast<double>(given.expert_bytes)) {
  MOESTRO_CHECK(given.layers > 0 && given.experts > 0 && given.slots > 0 && given.expert_bytes > 0 &&
                    given.chunk_bytes > 0 && given.chunks_given > 0,
                "a tier without room");
  MOESTRO_CHECK((given.low_slots > 0) == (chosen_for_low != nullptr) && (given.low_slots > 0) == (given.low_bytes > 0),
                "low copies have slots, a size and a policy");
  const size_t full_keys = given.full_keys();
  entries.resize(given.keys());
  followed.resize(full_keys);
  by_layer.resize(static_cast<size_t>(given.layers));
  saved.resize(static_cast<size_t>(given.layers));
  used.resize(full_keys);
  full_shares.assign(full_keys, 1);
  held_layers.resize(static_cast<size_t>(given.layers));
  const auto full_slots = static_cast<Slot>(given.slots), all_slots = static_cast<Slot>(given.all_slots());
  slots.resize(all_slots);
  pool_of(Copy::kFull) = {.policy = std::move(chosen), .free = {}, .first = 0, .end = full_slots};
  pool_of(Copy::kLow) = {.policy = std::move(chosen_for_low), .free = {}, .first = full_slots, .end = all_slots};
  for (Pool& pool : pools)
    for (Slot slot = pool.end; slot-- > pool.first;) pool.free.push_back(slot);
  candidates.reserve(full_keys);
}

/// How the policy of its pool is told of a key's last use.
policy::Use DeviceTier::Impl::use_of(Key key, const Entry& entry) const {
  return {time, entry.weight, scan && entry.weight < 1,
          options.copy_of(key) == Copy::kLow || entry.want != Want::kFull};
}

Found DeviceTier::Impl::found(Nanos now, const Wanted& wanted) {
  const Key key = wanted.key;
  LayerCounters& count = layer_counters(key);
  if (wanted.skipped) return ++count.skipped, Found::kSkipped;
  Entry& entry = entries[key];
  entry.weight = rounded(wanted.weight);
  entry.want = wanted.want;
  time += entry.weight;
  count.low += options.copy_of(key) == Copy::kLow;
  if (entry.state != State::kWhole) entry.late = why_late(now, key);
  // What called for the full copy is over where a low one serves; a copy that has begun may still come for later uses.
  entries[options.full_of(key)].foreseen_at = kNever;
  if (entry.state == State::kWhole) {
    if (entry.ahead) ++count.prefetched_used;
    entry.ahead = entry.standing = false;
    entry.scanned = entry.scanned && scan;
    pool_of(key).policy->used(options.full_of(key), use_of(key, entry));
    return ++count.hits, Found::kHit;
  }
  const bool begun = entry.state == State::kCopying;
  demand(key);
  return begun ? (++count.late, Found::kLate) : (++count.misses, Found::kMiss);
}

void DeviceTier::Impl::demand(Key key) {
  Entry& entry = entries[key];
  entry.ahead = entry.standing = entry.doomed = false;
  if (std::ranges::find(demands, key) != demands.end()) return;
  entry.order = ++orders;
  demands.push_back(key);
}

void DeviceTier::Impl::drop(Key key, bool was_false) {
  Entry& entry = entries[key];
  if (entry.state != State::kCopying) return;
  if (was_false && !entry.doomed) ++counters.dropped_prefetches;
  if (is_on_link(key)) {
    entry.doomed = true;  // its slot is being written
    return;
  }
  if (entry.ahead) count_waste(entry.sent);
  slots[entry.slot].reset();
  pool_of(key).free.push_back(entry.slot);
  std::erase(copies, key);
  entry.state = State::kAbsent, entry.sent = entry.given = 0;
  entry.ahead = entry.standing = entry.doomed = false;
}

void DeviceTier::Impl::count_waste(uint64_t bytes) {
  counters.wasted_bytes += bytes;
  if (!scan) waste.wasted(bytes);
}

/// `layer` has spoken: what was foreseen of it and not named is false.
void DeviceTier::Impl::pass_by(int32_t layer) {
  const Key first = first_of(layer);
  for (Key key = first; key < first + static_cast<Key>(options.experts); ++key) {
    if (used[key] != 0 || !std::exchange(followed[key], uint8_t{0})) continue;
    Entry& entry = entries[key];
    entry.foreseen_at = kNever;
    if (!std::exchange(entry.standing, false)) continue;
    if (entry.state == State::kCopying) drop(key, true);
    else if (entry.state == State::kWhole) pool_of(key).policy->ruled_out(key);
  }
  std::erase_if(candidates, [&](const Candidate& c) { return layer_of(c.key) == layer; });
}

/// Forecasts that reach the floor only as the predictor gives them. It runs over every cell, so without branches.
uint64_t DeviceTier::Impl::corrected_below_floor(const prediction::Forecast& told) const {
  const float floor = options.how.floor;
  uint64_t below = 0;
  for (int32_t layer = 0; layer < options.layers; ++layer) {
    const auto from = told.row(layer), to = forecast.row(layer);
    for (size_t e = 0; e < from.size(); ++e) below += unsigned{from[e] >= floor} & unsigned{to[e] < floor};
  }
  return below;
}

void DeviceTier::Impl::plan_prefetches(Nanos now) {
  candidates.clear();
  waste.adjust();
  for (int32_t layer = 0; layer < options.layers; ++layer) plan_prefetches_of(layer, now);
  const auto first = [](const Candidate& a, const Candidate& b) {
    return a.priority != b.priority ? a.priority > b.priority : a.key < b.key;
  };
  const size_t kept = std::min(candidates.size(), kCandidatesMax);
  std::ranges::partial_sort(candidates, candidates.begin() + static_cast<std::ptrdiff_t>(kept), first);
  candidates.resize(kept);
}

/// Looks at most keys only to see that nothing is to be done.
void DeviceTier::Impl::plan_prefetches_of(int32_t layer, Nanos now) {
  const int32_t ahead = distance(layer);
  const bool near_enough = options.how.horizon <= 0 || ahead <= options.how.horizon;
  const float near = options.how.proximity ? proximity(ahead, options.layers) : 1;
  const float floor = waste.floor(), least = options.how.floor;
  const auto row = forecast.row(layer);
  for (size_t e = 0; e < row.size(); ++e) {
    const Key key = first_of(layer) + static_cast<Key>(e);
    const float likely = row[e] * miss_cost(key);
    if (likely < least && followed[key] == 0) continue;
    Entry& entry = entries[key];
    const bool likely_enough = likely >= floor && near_enough;
    if (entry.standing && likely < kDropBelow * least) {
      entry.standing = false;
      if (entry.state == State::kCopying) drop(key, true);
    }
    if (likely_enough) follow(now, key);
    else if (!entry.standing) entry.foreseen_at = kNever, followed[key] = 0;
    if (entry.state == State::kWhole || entry.needed > 0) continue;
    counters.throttled += !likely_enough && near_enough && likely >= least;
    if (likely_enough || entry.standing) candidates.push_back({key, likely, likely * near});
  }
}

/// Prompts pass by: whole layers in use order.
void DeviceTier::Impl::plan_scan(Nanos now) {
  candidates.clear();
  for (int32_t ahead = 1; ahead <= kScanLayersAhead && at + ahead < options.layers; ++ahead) {
    const int32_t layer = at + ahead;
    const Key first = first_of(layer);
    for (Key key = first; key < first + static_cast<Key>(options.experts); ++key) {
      const bool likely_enough = !forecast.knows(layer) || forecast.probability(key) >= kScanLikely;
      if (!likely_enough) continue;
      if (options.prefetch) follow(now, key);
      if (entries[key].state != State::kWhole && entries[key].needed == 0) candidates.push_back({key, 1, 1});
    }
  }
}

DeviceTier::DeviceTier(const TierOptions& options, std::unique_ptr<policy::CachePolicy> policy,
                       std::unique_ptr<policy::CachePolicy> low)
    : impl_(std::make_unique<Impl>(options, std::move(policy), std::move(low))) {}
DeviceTier::~DeviceTier() = default;

void DeviceTier::begin_step(Nanos now, bool scan, int32_t layer) {
  Impl& t = *impl_;
  if (t.scan != scan) t.forget_forecast();
  t.scan = scan, t.at = layer, t.goes_on = layer >= 0;
  std::ranges::fill(t.held_layers, uint8_t{0});
  if (scan) t.plan_scan(now);
}

void DeviceTier::sequence_began(int32_t sequences) {
  for (const Impl::Pool& pool : impl_->pools)
    if (pool.policy) pool.policy->sequence_began(sequences);
}

void DeviceTier::routed(Nanos now, int32_t layer, std::span<const Wanted> wanted, std::span<Found> found,
                        bool complete) {
  Impl& t = *impl_;
  MOESTRO_CHECK(layer >= 0 && layer < t.options.layers && found.size() == wanted.size(), "a router of no layer");
  t.free_since = now;
  const bool routes = complete || t.at != layer;  // else only another copy of what they chose is needed
  if (complete) {
    t.pace.routed(now, t.at < 0 || std::exchange(t.goes_on, false) ? 0 : layer - t.at, t.scan);
    t.at = layer;
    t.held_layers[static_cast<size_t>(layer)] = 0;
  }
  for (const Impl::Pool& pool : t.pools)
    if (pool.policy) pool.policy->at_layer(layer);
  for (const Wanted& w : wanted) {
    MOESTRO_CHECK(w.key < t.entries.size() && t.layer_of(w.key) == layer, "an expert of another layer");
    const Key full = t.options.full_of(w.key);
    if (routes) t.used[full] = 1;
    if (routes) t.full_shares[full] += kNewWant * ((w.want == Want::kFull ? 1.0F : 0.0F) - t.full_shares[full]);
    if (!w.skipped) ++t.entries[w.key].needed;
  }
  if (complete) t.pass_by(layer);
  for (size_t i = 0; i < wanted.size(); ++i) found[i] = t.found(now, wanted[i]);
  if (!complete) return;
  const auto experts = static_cast<size_t>(t.options.experts);
  const auto used = std::span(t.used).subspan(static_cast<size_t>(layer) * experts, experts);
  if (t.scan) t.plan_scan(now);
  else t.forecast.routed(layer, used);
  std::ranges::fill(used, uint8_t{0});
}

void DeviceTier::leased(Key key) {
  Impl::Entry& entry = impl_->entries[key];
  MOESTRO_CHECK(entry.needed > 0 && entry.state == Impl::State::kWhole, "what is leased is needed, and there");
  entry.leased = true;
}

void DeviceTier::foresee(Nanos now, int32_t layer, const prediction::Forecast& forecast) {
  Impl& t = *impl_;
  MOESTRO_CHECK(forecast.layers() == t.options.layers && forecast.experts() == t.options.experts && layer >= -1 &&
                    layer < t.options.layers,
                "a forecast of another model");
  t.at = layer;
  t.forecast.foresee(layer, forecast, t.options.how.calibrate && !t.scan);
  if (t.scan) return t.plan_scan(now);
  if (t.options.how.calibrate) t.counters.below_floor += t.corrected_below_floor(forecast);
  if (t.options.prefetch) t.plan_prefetches(now);
}

void DeviceTier::unforeseen() {
  if (!impl_->scan) impl_->forget_forecast();  // a scan has candidates of its own
}

void DeviceTier::released(Nanos now, Key key) {
  Impl& t = *impl_;
  Impl::Entry& entry = t.entries[key];
  if (entry.needed == 0 || --entry.needed > 0) return;
  if (entry.state == Impl::State::kWhole) {
    t.pace.computed(std::max(Nanos{0}, now - std::max(t.free_since, entry.whole_at)));
    t.free_since = now;
  }
  entry.leased = false;
  if (entry.state == Impl::State::kWhole) {
    if (!t.options.keep) t.evict(key);
    return;
  }
  std::erase(t.demands, key);
  t.drop(key, false);
}

void DeviceTier::computed_elsewhere(Key key) {
  Impl& t = *impl_;
  Impl::Entry& entry = t.entries[key];
  MOESTRO_CHECK(entry.needed > 0 && entry.state != Impl::State::kWhole, "what is whole is computed where it is");
  if (--entry.needed > 0) return;
  std::erase(t.demands, key);
}

void DeviceTier::give_up(Key key) {
  const Impl::Entry& entry = impl_->entries[key];
  if (entry.needed == 0 && !entry.ahead) impl_->drop(key, false);
}

void DeviceTier::hold_demands(bool held) { impl_->demands_held = held; }

bool DeviceTier::has_begun(Key key) const { return impl_->entries[key].state == Impl::State::kCopying; }

void DeviceTier::spoiled(Nanos, Key key) {
  if (slot_of(key) && impl_->entries[key].needed == 0) impl_->evict(key);
}

void DeviceTier::abandon(Nanos) {
  Impl& t = *impl_;
  for (std::vector<uint8_t>* flags : {&t.held_layers, &t.used}) std::ranges::fill(*flags, uint8_t{0});
  for (Impl::Entry& entry : t.entries) entry.needed = 0, entry.leased = false;
  for (const Key key : t.demands) t.drop(key, false);
  t.demands.clear();
  t.demands_held = false;
}

void DeviceTier::hold(int32_t layer) { impl_->held_layers[static_cast<size_t>(layer)] = 1; }

std::optional<Slot> DeviceTier::slot_of(Key key) const {
  const Impl::Entry& entry = impl_->entries[key];
  return entry.state == Impl::State::kWhole ? std::optional(entry.slot) : std::nullopt;
}

bool DeviceTier::in_use(Key key) const { return impl_->entries[key].needed > 0; }

TierCounters DeviceTier::counters() const {
  TierCounters sum = impl_->counters;
  for (const LayerCounters& layer : impl_->by_layer) sum += layer;
  return sum;
}
std::span<const LayerCounters> DeviceTier::layer_counters() const { return impl_->by_layer; }
float DeviceTier::floor() const { return impl_->waste.floor(); }
int32_t DeviceTier::resident(Copy copy) const { return impl_->pool_of(copy).whole; }
bool DeviceTier::idle() const { return impl_->on_link.empty(); }
std::string DeviceTier::inconsistency() const { return impl_->check(); }

}  // namespace moestro::tier

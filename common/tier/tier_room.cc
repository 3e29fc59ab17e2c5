// Who gives way. Nothing that a layer needs ever does. A prefetch takes neither what another prefetch has brought and
// its layer has not yet spoken about, nor what is likelier to be used than itself; a demand takes what it must.
//
// The policy says who goes first, unless the forecasts have lately been nearer to the truth than the shares of passes
// that experts were used in; then of those that the policy names the one goes whose next use is furthest away.
//
// Likelier means sooner: of a key with probability q at its next pass, in `d` of `L` layers, and r at each one after
// that, the next use is d / L + (1 - q) / r passes away on average; r lies between q, which knows this token, and the
// key's own rate. Belady's oracle evicts what is used furthest in the future; so does this, with what is known of it.

#include <algorithm>

#include "common/tier/prefetch_rules.h"
#include "common/tier/tier_impl.h"

namespace moestro::tier {
namespace {

constexpr double kOwnRate = 0.5;  ///< share of an expert's own rate in what is expected of its later passes
constexpr size_t kChoicesShare = 4;  ///< of all experts: of what forecasts say little about, the policy knows more
constexpr const uint32_t kGroup = 0;

}  // namespace

float DeviceTier::Impl::worth(Key copy) const {
  const Key key = options.full_of(copy);
  return forecast.leads() && forecast.knows(layer_of(key)) ? forecast.probability(key) : forecast.rate(key);
}

/// A use that a low copy can serve counts as a part of one: a full copy is kept for uses that would wait for it.
double DeviceTier::Impl::passes_until(Key key, float probability) const {
  const double part = options.copy_of(key) == Copy::kFull ? static_cast<double>(miss_cost(key)) : 1;
  const double q = part * std::clamp(static_cast<double>(probability), 0.0, 1.0);
  const double rate = part * static_cast<double>(forecast.rate(options.full_of(key)));
  const double later = kOwnRate * rate + (1 - kOwnRate) * q;
  return tier::passes_until(static_cast<double>(distance(layer_of(key))) / options.layers, q, later);
}

/// The policy names those it would give up first; of them the forecast takes the one whose next use is furthest.
std::optional<Key> DeviceTier::Impl::victim(Copy copy) {
  looked_at.clear();
  const size_t choices = !forecast.leads() || scan ? 1
                         : options.how.choices > 0 ? static_cast<size_t>(options.how.choices)
                                                   : std::max<size_t>(1, options.full_keys() / kChoicesShare);
  pool_of(copy).policy->victim({{&kGroup, 1}, time}, [&](uint32_t full) -> policy::Verdict {
    using Kind = policy::Verdict::Kind;
    const Key key = copy == Copy::kFull ? full : options.low_of(full);
    if (stays(key) || entries[key].standing) return {Kind::kSpared};
    looked_at.push_back(key);
    return {looked_at.size() < choices ? Kind::kSpared : Kind::kTake};
  });
  if (looked_at.empty()) return std::nullopt;
  return *std::ranges::max_element(looked_at, {}, [this](Key key) { return passes_until(key, worth(key)); });
}

/// What a scan has brought and passed is dead; besides it a scan ahead of its demands may hold a few slots, no more.
std::optional<Key> DeviceTier::Impl::scan_victim(Copy copy) {
  size_t held = 0;
  std::optional<Key> passed;
  for (const auto& key : slots_of(copy)) {
    if (!key) continue;
    const Entry& entry = entries[*key];
    held += entry.scanned || entry.state == State::kCopying;
    if (entry.state == State::kWhole && entry.scanned && !stays(*key) && !entry.standing) passed = key;
  }
  if (passed) return passed;
  return held < std::max<size_t>(2, pool_of(copy).slots() / kScanShare) ? victim(copy) : std::nullopt;
}

void DeviceTier::Impl::evict(Key key) {
  Entry& entry = entries[key];
  Pool& pool = pool_of(key);
  pool.policy->removed(options.full_of(key));
  LayerCounters& count = layer_counters(key);
  ++count.evictions;
  --pool.whole;
  if (entry.ahead) {
    ++count.prefetched_wasted;
    count_waste(options.bytes_of(key));
  }
  slots[entry.slot].reset();
  pool.free.push_back(entry.slot);
  entry.state = State::kAbsent, entry.sent = entry.given = 0;
  entry.ahead = entry.standing = entry.scanned = false;
  entry.no_room = true;
}

void DeviceTier::Impl::take_slot(Key key) {
  Entry& entry = entries[key];
  Pool& pool = pool_of(key);
  entry.slot = pool.free.back();
  pool.free.pop_back();
  slots[entry.slot] = key;
  entry.state = State::kCopying, entry.sent = entry.given = 0;
  entry.no_room = false;
  copies.push_back(key);
}

/// A slot for what a layer waits for: a free one, or of what is not needed, or of a prefetch, whole or not; then of a
/// demand whose source is gone, for that one cannot go on; last, of what a later layer needs. None: all hold what is
/// being computed with, or is needed before it.
bool DeviceTier::Impl::room_for_demand(Key key) {
  if (entries[key].state == State::kCopying) return true;
  const Copy copy = options.copy_of(key);
  if (pool_of(copy).free.empty()) {
    std::optional<Key> out = scan ? scan_victim(copy) : std::nullopt;
    if (!out) out = victim(copy);
    if (!out) out = standing_victim(copy);
    if (out) evict(*out);
    else if (const auto begun = unfinished_victim(copy)) drop(*begun, false), entries[*begun].no_room = true;
    else take_from_later(layer_of(key), copy);
  }
  if (pool_of(copy).free.empty()) return false;
  take_slot(key);
  return true;
}

std::optional<Key> DeviceTier::Impl::standing_victim(Copy copy) const {
  std::optional<Key> out;
  for (const auto& key : slots_of(copy)) {
    if (!key || entries[*key].state != State::kWhole || stays(*key)) continue;
    if (!out || passes_until(*key, worth(*key)) > passes_until(*out, worth(*out))) out = key;
  }
  return out;
}

/// Of two layers that are open the earlier one has to end first. The latest layer's expert goes, and is demanded anew.
void DeviceTier::Impl::take_from_later(int32_t layer, Copy copy) {
  std::optional<Key> out;
  for (const auto& key : slots_of(copy)) {
    if (!key || layer_of(*key) <= layer || entries[*key].leased || is_on_link(*key)) continue;
    if (held_layers[static_cast<size_t>(layer_of(*key))] == 0 && (!out || *key > *out)) out = key;
  }
  if (!out) return;
  if (entries[*out].state == State::kCopying) {
    drop(*out, false);
  } else {
    evict(*out);
    demand(*out);
  }
}

std::optional<Key> DeviceTier::Impl::unfinished_victim(Copy copy) const {
  std::optional<Key> out;
  for (const Key key : copies)
    if (options.copy_of(key) == copy && entries[key].needed == 0 &&
        (!out || passes_until(key, worth(key)) > passes_until(*out, worth(*out))))
      out = key;
  if (out) return out;
  for (const Key key : copies)
    if (options.copy_of(key) == copy && !always_ready && !entries[key].source) return key;
  return std::nullopt;
}

}  // namespace moestro::tier

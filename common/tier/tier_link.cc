// What the link carries next: demands, then prefetches by priority.

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "common/tier/prefetch_rules.h"
#include "common/tier/tier_impl.h"

namespace moestro::tier {

Chunk DeviceTier::Impl::chunk_of(Key key, bool is_demand) {
  Entry& entry = entries[key];
  const uint64_t bytes = std::min(options.chunk_bytes, ungiven(key));
  on_link.push_back({key, entry.slot, entry.given, bytes, bytes == ungiven(key), is_demand});
  entry.given += bytes;
  return on_link.back();
}

/// Of the demands that the link has not wholly been given, of the earliest layer: the one that lacks least. Its layer
/// can go on with it soonest, and all of them take equally long.
std::optional<Key> DeviceTier::Impl::next_demand() {
  std::ranges::sort(demands, [this](Key a, Key b) {
    if (layer_of(a) != layer_of(b)) return layer_of(a) < layer_of(b);
    return ungiven(a) != ungiven(b) ? ungiven(a) < ungiven(b) : entries[a].order < entries[b].order;
  });
  for (const Key key : demands) {
    if (demands_held && entries[key].state == State::kAbsent) continue;
    if ((always_ready || entries[key].source) && ungiven(key) > 0 && room_for_demand(key)) return key;
  }
  return std::nullopt;
}

/// A copy that was demanded and has begun, of an expert that has been computed elsewhere since. Its slot has been given
/// up for it.
std::optional<Key> DeviceTier::Impl::next_begun() const {
  for (const Key key : copies) {
    const Entry& entry = entries[key];
    if (entry.needed == 0 && !entry.ahead && !entry.doomed && (always_ready || entry.source) && ungiven(key) > 0)
      return key;
  }
  return std::nullopt;
}

/// Whether the link can bring it, behind what it has to bring first, before its layer needs it.
bool DeviceTier::Impl::in_budget(Nanos now, Key key) const {
  if (!options.how.budget || scan) return true;
  const int32_t ahead = distance(layer_of(key));
  uint64_t bytes = missing(key);
  for (const Key demand : demands) bytes += missing(demand);
  for (const Key copy : copies)
    if (entries[copy].needed == 0 && !entries[copy].doomed && distance(layer_of(copy)) <= ahead)
      bytes += missing(copy);
  return static_cast<double>(bytes) <= pace.room(now, ahead, scan);
}

void DeviceTier::Impl::count_due() {
  due.assign(static_cast<size_t>(options.layers) + 1, 0.0);
  for (const Key demand : demands) due[0] += static_cast<double>(missing(demand));
  for (const Candidate& c : candidates) {
    const Entry& entry = entries[c.key];
    if (entry.state == State::kWhole || entry.needed > 0) continue;
    due[static_cast<size_t>(distance(layer_of(c.key)))] += static_cast<double>(missing(c.key)) * c.probability;
  }
  for (size_t ahead = 1; ahead < due.size(); ++ahead) due[ahead] += due[ahead - 1];
}

/// Whether a layer from now is early enough. The room that a prefetch takes is somebody's who may be used until then,
/// in the extreme by each layer in turn: where a step uses nearly every expert, whoever prefetches as far ahead as the
/// link can reach carries every expert once a step, whatever the slots hold.
bool DeviceTier::Impl::may_wait(Nanos now, Key key) {
  const int32_t ahead = distance(layer_of(key));
  if (!options.how.patience || scan || ahead == 1) return false;
  if (due.empty()) count_due();
  return kEarlyToDevice * due[static_cast<size_t>(ahead)] < pace.room(now, ahead - 1, scan);
}

/// Of the time of one copy, the share that `layer` waits because it uses an expert that is missing. Missing experts
/// come while present ones are computed, so it waits for the copies of those that it uses, less what it computes
/// meanwhile. How many present ones it uses is a sum of independent events; of the missing ones the mean will do.
double DeviceTier::Impl::share_saved(int32_t layer) {
  double& share = saved[static_cast<size_t>(layer)];
  if (share >= 0) return share;
  const auto copy = static_cast<double>(pace.time_of(options.expert_bytes).count());
  const auto expert = static_cast<double>(pace.expert().count());
  if (copy <= 0 || expert <= 0) return share = 1;
  const auto likely = [this](Key key) { return std::clamp(static_cast<double>(worth(key)), 0.0, 1.0); };
  const Key first = first_of(layer), end = first + static_cast<Key>(options.experts);
  double missing = 0;
  for (Key key = first; key < end; ++key)
    if (entries[key].state == State::kAbsent) missing += likely(key);
  const double wait = copy + std::max(0.0, missing - 1) * std::max(0.0, copy - expert);
  // [n]: that it uses n present experts; with more than these it does not wait.
  present.assign(static_cast<size_t>(std::min(std::ceil(wait / expert), static_cast<double>(options.experts) + 1)), 0);
  present.front() = 1;
  for (Key key = first; key < end; ++key) {
    if (entries[key].state == State::kAbsent) continue;
    const double p = likely(key);
    for (size_t n = present.size() - 1; n > 0; --n) present[n] += p * (present[n - 1] - present[n]);
    present.front() -= p * present.front();
  }
  share = 0;
  for (size_t n = 0; n < present.size(); ++n)
    share += present[n] * std::clamp((wait - static_cast<double>(n) * expert) / copy, 0.0, 1.0);
  return share;
}

bool DeviceTier::Impl::saves_enough(const Candidate& candidate) {
  if (!options.how.thrift || scan) return true;
  return candidate.probability * share_saved(layer_of(candidate.key)) >= kLeastSaved;
}

std::optional<Key> DeviceTier::Impl::next_prefetch(Nanos now) {
  std::optional<Key> out;  // who would have to go; the same for all candidates
  bool searched = false;
  due.clear();
  std::ranges::fill(saved, -1.0);
  for (Candidate& candidate : candidates) {
    Entry& entry = entries[candidate.key];
    if (entry.state == State::kWhole || entry.needed > 0 || !(always_ready || entry.source)) continue;
    if (entry.state == State::kCopying) {
      if (entry.doomed || ungiven(candidate.key) == 0) continue;
      return candidate.key;
    }
    if (!in_budget(now, candidate.key)) {
      counters.over_budget += !std::exchange(candidate.over_budget, true);
      continue;
    }
    if (pool_of(Copy::kFull).free.empty()) {
      entry.no_room = true;
      if (!saves_enough(candidate)) {
        counters.needless += !std::exchange(candidate.needless, true);
        continue;
      }
      if (may_wait(now, candidate.key)) {
        counters.early += !std::exchange(candidate.early, true);
        continue;
      }
      if (!std::exchange(searched, true)) out = scan ? scan_victim(Copy::kFull) : victim(Copy::kFull);
      if (!out) return std::nullopt;
      const bool guarded = !scan && options.how.guard &&
                           passes_until(*out, worth(*out)) <= passes_until(candidate.key, worth(candidate.key));
      if (guarded) {
        counters.guarded += !std::exchange(candidate.guarded, true);
        continue;
      }
      evict(*out);
    }
    take_slot(candidate.key);
    entry.ahead = entry.standing = true;
    return candidate.key;
  }
  return std::nullopt;
}

/// Nobody has to give way: what has begun is ended, then the first that is not there.
std::optional<Key> DeviceTier::Impl::next_filling() {
  if (!fills()) return std::nullopt;
  for (const Key key : copies)
    if ((always_ready || entries[key].source) && !entries[key].doomed && ungiven(key) > 0) return key;
  for (Key key = 0; key < entries.size() && !pool_of(Copy::kFull).free.empty(); ++key) {
    Entry& entry = entries[key];
    if (entry.state != State::kAbsent || !(always_ready || entry.source)) continue;
    take_slot(key);
    entry.ahead = true;
    return key;
  }
  return std::nullopt;
}

void DeviceTier::Impl::finished(Nanos now, Key key) {
  Entry& entry = entries[key];
  entry.whole_at = now;
  entry.state = State::kWhole;
  Pool& pool = pool_of(key);
  ++pool.whole;
  std::erase(copies, key);
  std::erase(demands, key);
  entry.scanned = scan;
  if (entry.ahead) {
    ++layer_counters(key).prefetched;
    pool.policy->inserted(options.full_of(key), 0, {time, 1, scan}, true);
  } else {
    pool.policy->inserted(options.full_of(key), 0, use_of(key, entry), false);
  }
}

void DeviceTier::sources_always_ready() { impl_->always_ready = true; }
void DeviceTier::source_ready(Key key, bool ready) { impl_->entries[key].source = ready; }

void DeviceTier::sources_wanted(int32_t prefetches, std::vector<Key>& out) const {
  out.clear();
  if (impl_->always_ready) return;
  for (const Key key : impl_->demands)
    if (!impl_->entries[key].source) out.push_back(key);
  for (const Impl::Candidate& candidate : impl_->candidates) {
    if (prefetches <= 0) return;
    const Impl::Entry& entry = impl_->entries[candidate.key];
    if (entry.source || entry.state == Impl::State::kWhole || entry.needed > 0) continue;
    out.push_back(candidate.key);
    --prefetches;
  }
  if (!impl_->fills()) return;
  for (Key key = 0; key < impl_->entries.size() && prefetches > 0; ++key) {
    const Impl::Entry& entry = impl_->entries[key];
    if (entry.source || entry.state == Impl::State::kWhole || entry.needed > 0 ||
        std::ranges::find(out, key) != out.end())
      continue;
    out.push_back(key);
    --prefetches;
  }
}

std::optional<Chunk> DeviceTier::next_chunk(Nanos now) {
  Impl& t = *impl_;
  if (std::ssize(t.on_link) >= t.options.chunks_given) return std::nullopt;
  if (const auto key = t.next_demand()) return t.chunk_of(*key, true);
  if (const auto key = t.next_begun()) return t.chunk_of(*key, false);
  if (t.options.prefetch)
    if (const auto key = t.next_prefetch(now)) return t.chunk_of(*key, false);
  if (const auto key = t.next_filling()) return t.chunk_of(*key, false);
  return std::nullopt;
}

Chunk DeviceTier::begin_copy(Key key, std::optional<Key> out) {
  Impl& t = *impl_;
  Impl::Entry& entry = t.entries[key];
  if (out) t.evict(*out);
  MOESTRO_CHECK(entry.state == Impl::State::kAbsent && !t.pool_of(key).free.empty(),
                "a copy of an absent key, into a free slot");
  t.take_slot(key);
  entry.ahead = entry.needed == 0;
  return t.chunk_of(key, !entry.ahead);
}

std::optional<int32_t> DeviceTier::waiting_layer() const {
  if (impl_->demands.empty()) return std::nullopt;
  const auto layer_of = [this](Key key) { return impl_->layer_of(key); };
  return layer_of(std::ranges::min(impl_->demands, {}, layer_of));
}

bool DeviceTier::link_wanted() const {
  return !impl_->demands.empty() || impl_->next_begun() ||
         (impl_->options.prefetch && !impl_->candidates.empty()) || impl_->fills();
}

void DeviceTier::chunk_done(Nanos now, const Chunk& chunk, Nanos took) {
  Impl& t = *impl_;
  const auto brought =
      std::ranges::find_if(t.on_link, [&](const Chunk& c) { return c.key == chunk.key && c.offset == chunk.offset; });
  if (brought == t.on_link.end()) return;  // its copy has failed
  t.on_link.erase(brought);
  t.pace.carried(chunk.bytes, took);
  t.counters.moved_bytes += chunk.bytes, t.counters.link_busy += took;
  if (!t.scan) t.waste.moved(chunk.bytes);
  Impl::Entry& entry = t.entries[chunk.key];
  entry.sent += chunk.bytes;
  if (entry.doomed) t.drop(chunk.key, false);
  else if (t.missing(chunk.key) == 0) t.finished(now, chunk.key);
}

void DeviceTier::copy_failed(Nanos, Key key) {
  Impl& t = *impl_;
  std::erase_if(t.on_link, [key](const Chunk& c) { return c.key == key; });
  std::erase(t.demands, key);
  std::erase_if(t.candidates, [key](const Impl::Candidate& c) { return c.key == key; });
  t.drop(key, false);
}

}  // namespace moestro::tier

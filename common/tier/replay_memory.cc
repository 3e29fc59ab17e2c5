#include "common/tier/replay_memory.h"

#include <algorithm>
#include <utility>

namespace moestro::tier {

// --- a device ---

DeviceMemory::DeviceMemory(const TierOptions& options, std::unique_ptr<policy::CachePolicy> policy,
                           std::unique_ptr<policy::CachePolicy> low, const ReplayTimes& times, ReplayHost* host,
                           NextChunk next)
    : options_(options),
      host_(host),
      tier_(options, std::move(policy), std::move(low)),
      link_(tier_, times.link_bytes_per_s, times.link_latency, [this](const Chunk& chunk, Nanos) {
        if (host_ == nullptr || !chunk.last) return;
        tier_.source_ready(chunk.key, false);  // no copy of it begins before it has a source again
        sources_[chunk.key].copied = true;
      }, std::move(next)) {
  if (host == nullptr) tier_.sources_always_ready();
  else sources_.resize(static_cast<size_t>(options.layers) * static_cast<size_t>(options.experts));
}

bool DeviceMemory::fits_all() const {
  return int64_t{options_.slots} >= int64_t{options_.layers} * options_.experts && options_.keep;
}

uint64_t DeviceMemory::begin_step(Nanos now, bool scan) {
  ++steps_;
  tier_.begin_step(now, scan);
  return tier_.counters().moved_bytes;
}

void DeviceMemory::choose(std::span<DeviceTier::Choice> choices) {
  tier_.choose(choices);
  on_cpu_.clear();
  for (const DeviceTier::Choice& choice : choices)
    if (choice.way == Way::kCpu) on_cpu_.push_back(choice.full);
}

bool DeviceMemory::routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted) {
  let_copied_go();
  routed_.clear();
  for (const auto& w : wanted) {
    routed_.push_back(w.key);
    if (host_ == nullptr) continue;
    Source& source = sources_[w.key];
    source.needed = true, source.from_drive = source.asked;
  }
  found_.resize(wanted.size());
  tier_.routed(now, layer, wanted, found_);
  for (const Key key : on_cpu_) tier_.computed_elsewhere(key);
  on_cpu_.clear();
  find_sources(now);
  return std::ranges::all_of(found_, [](Found f) { return f == Found::kHit; });
}

bool DeviceMemory::forecast(Nanos now, int32_t layer, const prediction::Forecast& forecast) {
  let_copied_go();
  tier_.foresee(now, layer, forecast);
  find_sources(now);
  return true;  // what is not likely enough for a copy still says what to keep
}

void DeviceMemory::unforeseen(Nanos now) {
  tier_.unforeseen();
  link_.poke(now);
}

Found DeviceMemory::take(const DeviceTier::Wanted& wanted) {
  return found_[static_cast<size_t>(std::ranges::find(routed_, wanted.key) - routed_.begin())];
}

void DeviceMemory::released(Nanos now, Key key) {
  if (host_ != nullptr) sources_[key].needed = false;
  tier_.released(now, key);
  link_.poke(now);
}

std::optional<Nanos> DeviceMemory::next_event() {
  const auto link = link_.ends(), drive = host_ != nullptr ? host_->next_event() : std::nullopt;
  return link && drive ? std::min(link, drive) : link ? link : drive;
}

/// The worker's thread computes: the link goes on with the sources that it has.
void DeviceMemory::advance(Nanos now) {
  if (host_ != nullptr) host_->advance(now);
  link_.advance(now);
}

void DeviceMemory::look(Nanos now) {
  if (host_ == nullptr) return;
  let_copied_go();
  while (const auto key = host_->take_arrival()) {
    sources_[*key].asked = false, --asked_;
    take_source(*key);
  }
  find_sources(now);
}

void DeviceMemory::take_source(Key key) {
  sources_[key].pinned = true, sources_[key].copied = false;
  pinned_.push_back(key);
  tier_.source_ready(key, true);
}

template <typename MayGo>
void DeviceMemory::let_go(MayGo may_go) {
  std::erase_if(pinned_, [&](Key key) {
    if (!may_go(key)) return false;
    sources_[key].pinned = sources_[key].copied = false;
    host_->unpin(key);
    return true;
  });
}

void DeviceMemory::let_copied_go() {
  let_go([this](Key key) { return sources_[key].copied; });
}

/// As in a worker: nobody who waits for host memory may hold some that he is not using.
void DeviceMemory::drop_sources_nobody_needs() {
  let_go([this](Key key) {
    const auto chunk = link_.chunk();
    if (sources_[key].needed || (chunk && chunk->key == key)) return false;
    tier_.source_ready(key, false);
    return true;
  });
}

void DeviceMemory::find_sources(Nanos now) {
  if (host_ != nullptr) {
    if (asked_ > 0 || pinned_.size() >= 4 * kSourcesAhead) drop_sources_nobody_needs();
    tier_.sources_wanted(asked_ > 0 ? 0 : kSourcesAhead, wanted_sources_);
    for (const Key key : wanted_sources_) {
      Source& source = sources_[key];
      if (source.pinned || source.asked) continue;
      if (host_->try_pin(key, 1) == Found::kHit) {
        take_source(key);
      } else if (source.needed) {
        host_->fetch({&key, 1}, steps_, static_cast<int32_t>(key) / options_.experts);
        source.asked = source.from_drive = true;
        ++asked_;
      }
    }
  }
  link_.poke(now);
}

void DeviceMemory::mark_held(std::span<uint8_t> out) const {
  for (Key key = 0; key < out.size(); ++key) out[key] = holds(key);
}

// --- host memory ---

HostStage::HostStage(ReplayHost& host, const Routes& routes, const DeviceMemory* above)
    : host_(host),
      above_(above),
      maker_(routes.layers, routes.experts),
      held_(above == nullptr ? 0 : static_cast<size_t>(routes.layers) * static_cast<size_t>(routes.experts)) {}

uint64_t HostStage::begin_step(Nanos, bool scan) {
  maker_.begin_step(scan);
  const HostCounters counters = host_.counters();
  return counters.misses + counters.brought;
}

bool HostStage::routed(Nanos now, int32_t layer, std::span<const DeviceTier::Wanted> wanted) {
  const uint64_t misses = host_.counters().misses;
  const bool all_there = std::exchange(misses_, misses) == misses;
  if (foreseen_) maker_.routed(now, layer, wanted);
  return all_there;
}

bool HostStage::forecast(Nanos now, int32_t layer, const prediction::Forecast& forecast) {
  foreseen_ = true;
  if (above_ != nullptr) above_->mark_held(held_);
  maker_.foresee(now, layer, forecast, held_);
  host_.foresee(maker_.experts(), maker_.scan(), maker_.leads());
  return maker_.useful();
}

void HostStage::unforeseen(Nanos) {
  if (!std::exchange(foreseen_, false)) return;
  maker_.clear();
  host_.foresee({}, false, false);
}

Found HostMemory::take(const DeviceTier::Wanted& wanted) {
  const Found found = host_.try_pin(wanted.key, wanted.weight);
  if (found != Found::kHit) missing_.push_back(wanted.key);
  return found;
}

void HostMemory::request_missing(uint64_t step, int32_t layer) {
  if (!missing_.empty()) host_.fetch(missing_, step, layer);
  missing_.clear();
}

bool HostMemory::arrived(Key key) {
  while (const auto other = host_.take_arrival()) arrived_[*other] = 1;
  return std::exchange(arrived_[key], uint8_t{0}) != 0;
}

void HostMemory::released(Nanos, Key key) { host_.unpin(key); }

}  // namespace moestro::tier

#pragma once
// Decides which experts are in a device's memory, and what its link carries next.
//
// A pure state machine: time is passed in, nothing waits, nothing is copied. A live device (services/worker/device) and
// the replay of a trace on a virtual clock (common/tier/replay) use the same object, so a device does what replay says
// about a policy.
//
// The link carries one chunk after another and is given only a few ahead. Whenever it may have another, the tier
// chooses the chunk. An expert that a layer waits for comes before every prefetch. Prefetches are ordered by priority:
// activation probability times proximity. A copy that was overtaken keeps its progress. A copy whose prediction has
// become false is dropped when the link has no more chunks of it.
//
// There may be two copies of each expert, a full and a low one (common/expert_copy.h). Each kind has slots and a policy
// of its own, and the link is shared. A key names a copy. Only full copies are prefetched.
//
// Not thread-safe: a live device calls it under one lock from the engine's thread and the link's.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/expert_copy.h"
#include "common/late_cause.h"
#include "common/policy/cache_policy.h"
#include "common/prediction/forecast.h"
#include "common/tier/calibrated_forecast.h"
#include "common/tier/prefetch_rules.h"
#include "common/tier/serving_plan.h"

namespace moestro::tier {

using Slot = uint32_t;  ///< of `slots` equal ones in device memory

/// Limits that keep prefetching from doing harm. Each can be turned off, so that replay shows what it is worth.
struct PrefetchOptions {
  float floor = kPrefetchFloor;  ///< calibrated probability below which nothing is prefetched
  float waste_max =
      0;  ///< share of the moved bytes that prefetches may waste; above it, the floor rises; 1: any; 0: waste_limit()
  int32_t horizon = 0;    ///< layers ahead that are looked at; 0: all
  bool proximity = true;  ///< priority falls with distance
  bool budget = true;     ///< only what the link can bring before its layer needs it
  bool guard = true;      ///< a prefetch never evicts an expert that is more likely to be used
  bool patience = true;   ///< a prefetch evicts only when it would otherwise come late
  bool thrift = true;     ///< a prefetch evicts only if its layer would otherwise probably wait for it
  bool calibrate = true;  ///< false: a predictor's figures are used unchanged
  int32_t choices = 0;  ///< victims that the policy names, of which the forecast chooses one; 0: a quarter of the
                        ///< experts
};

struct TierOptions;
/// The limit on wasted bytes: what the options say, or waste_share().
float waste_limit(const TierOptions& options);

struct TierOptions {
  int32_t layers = 0, experts = 0;
  int32_t slots = 1;
  uint64_t expert_bytes = 0;
  uint64_t chunk_bytes = uint64_t{1} << 20;
  double link_bytes_per_s =
      0;  ///< the rate that the prefetch budget assumes until copies have been measured; 0: unlimited
  Nanos link_latency{0};         ///< of a copy
  bool prefetch = true;          ///< false: forecasts only protect experts, and nothing is prefetched
  bool fill = false;  ///< while nothing is wanted or foreseen the rest is carried, in order; for a tier with a slot for
                      ///< every key
  bool keep = true;   ///< false: an expert is dropped as soon as it has been computed; slots are only a buffer
  PrefetchOptions how{};
  int32_t chunks_given =
      1;  ///< the most chunks that the link has at a time: 2 leave no gap between them
  int32_t low_slots = 0;   ///< for low copies; 0: there are none
  uint64_t low_bytes = 0;  ///< of a low copy

  /// Keys of full copies; those of low copies follow, in the same order.
  Key full_keys() const { return static_cast<Key>(layers) * static_cast<Key>(experts); }
  Key keys() const { return low_slots > 0 ? 2 * full_keys() : full_keys(); }
  Copy copy_of(Key key) const { return key < full_keys() ? Copy::kFull : Copy::kLow; }
  Key low_of(Key full) const { return full_keys() + full; }
  /// The copy that serves, of the expert whose full one is `full`; nullopt: none.
  std::optional<Key> serving(Key full, Way way) const {
    return way == Way::kSkip ? std::nullopt : std::optional(way == Way::kLow ? low_of(full) : full);
  }
  /// The full copy of the same expert.
  Key full_of(Key key) const { return copy_of(key) == Copy::kFull ? key : key - full_keys(); }
  uint64_t bytes_of(Key key) const { return copy_of(key) == Copy::kFull ? expert_bytes : low_bytes; }
  /// Slots of full copies, and behind them those of low ones.
  int32_t all_slots() const { return slots + low_slots; }
};

/// Of `room` bytes, low copies of `low_bytes` get this share and what no full copy fills, and full ones the rest: at
/// least one of each, unless all full ones fit. False: a full one does not.
bool share_room(TierOptions& options, uint64_t room, double share, uint64_t low_bytes);

/// How a router's choice was found.
enum class Found : uint8_t {
  kHit,   ///< in a slot, whole
  kLate,  ///< being copied: counts as a miss that has begun
  kMiss,
  kSkipped,  ///< no copy of it is needed
};

/// A piece of an expert for the link to carry.
struct Chunk {
  Key key = 0;
  Slot slot = 0;
  uint64_t offset = 0, bytes = 0;
  bool last = false;    ///< the expert is whole with it
  bool demand = false;  ///< a layer waits for it; offset 0 begins a copy, which costs the link's latency
};

/// Counters of the experts of one layer.
struct LayerCounters {
  uint64_t hits = 0, late = 0, misses = 0;
  uint64_t low = 0;      ///< of those: computed with a low copy
  uint64_t skipped = 0;  ///< chosen by a router, and computed with none
  uint64_t evictions = 0;
  uint64_t prefetched = 0;         ///< experts that a prefetch completed
  uint64_t prefetched_used = 0;    ///< of those: used before they were evicted
  uint64_t prefetched_wasted = 0;  ///< of those: evicted unused

  LayerCounters& operator+=(const LayerCounters& other);
  friend LayerCounters operator-(const LayerCounters& now, const LayerCounters& before);
  friend bool operator==(const LayerCounters&, const LayerCounters&) = default;
};

/// The sums over all layers, and what the link did.
struct TierCounters : LayerCounters {
  uint64_t moved_bytes = 0;             ///< all bytes that the link carried
  Nanos link_busy{0};                   ///< time that it took
  uint64_t wasted_bytes = 0;            ///< carried for a prefetch, complete or not, and dropped unused
  uint64_t dropped_prefetches = 0;      ///< begun and dropped, because their prediction had become false
  // Forecasts that were not acted on, each counted once until the next forecast.
  uint64_t below_floor = 0;  ///< the predictor's own figure was above the floor, the calibrated one is not
  uint64_t throttled = 0;       ///< above the configured floor, but not above the floor that waste has raised
  uint64_t over_budget = 0;     ///< the link would not have brought it in time
  uint64_t guarded = 0;         ///< everything in the slots was more likely to be used
  uint64_t needless = 0;      ///< its layer would probably not wait for it
  uint64_t early = 0;           ///< could wait, and so leave its slot to who was in it
};

class DeviceTier {
 public:
  /// `low`: the policy of low copies, where there are some. Its keys are those of the full ones.
  DeviceTier(const TierOptions& options, std::unique_ptr<policy::CachePolicy> policy,
             std::unique_ptr<policy::CachePolicy> low = nullptr);
  ~DeviceTier();

  // The step, by the engine.

  /// `scan`: most of its tokens belong to prompts. Such steps use whole layers, and the experts that they bring are
  /// evicted first. `layer`: it has begun before, and goes on after this one.
  void begin_step(Nanos now, bool scan, int32_t layer = -1);
  /// A new sequence has joined, and `sequences` are running, including it. For policies that count by request.
  void sequence_began(int32_t sequences);
  /// An expert that the routers of a layer have chosen.
  struct Choice {
    Key full = 0;
    Want want = Want::kFull;
    std::optional<Nanos> cpu = std::nullopt;  ///< the CPU's time for it; nullopt: the CPU cannot compute it
    Way way = Way::kFull;                     ///< set by choose()
  };
  /// Chooses how experts of one layer are served, by what is there and what is measured now (serving_plan.h). A full
  /// copy that is there serves every want. The CPU is free.
  void choose(std::span<Choice> choices);
  struct Wanted {
    Key key = 0;
    float weight = 1;  ///< as policy::Use::weight
    Want want = Want::kFull;
    bool skipped = false;  ///< a router has chosen it, but no copy of it is needed: it is not released
  };
  /// Routers of `layer` have chosen these keys, each listed once. They are needed until released() has been called as
  /// often as routed() named them. Missing experts overtake every prefetch: first those of the earliest layer, of those
  /// the ones with the least left to copy, then in the given order. `found`: one per key. `complete`: all micro-batches
  /// of the step have been routed, and forecasts for `layer` that none of them chose are now false. Several layers may
  /// be open at once: what a later one needs gives way to what an earlier one needs, unless it is leased. A layer whose
  /// routers have all run may need another copy instead of one that failed: with `complete` false.
  void routed(Nanos now, int32_t layer, std::span<const Wanted> wanted, std::span<Found> found, bool complete = true);
  /// The device computes with a needed key that is whole: it stays until released().
  void leased(Key key);
  /// Why the last routed() that chose this key did not find it whole.
  LateCause late_cause(Key key) const;
  /// What is likely next, seen from `layer` (-1: before the first). Replaces the previous forecast.
  void foresee(Nanos now, int32_t layer, const prediction::Forecast& forecast);
  /// The forecast is no longer valid, and there is no new one for now.
  void unforeseen();
  /// The device has computed with a key that routed() named, and no longer needs it.
  void released(Nanos now, Key key);
  /// Instead of released(): a key that routed() named is computed without this memory, because it is not whole. A copy
  /// that has begun goes on when nobody waits for another.
  void computed_elsewhere(Key key);
  /// Nobody brings the rest of a copy that has begun and that nobody waits for: its slot is free.
  void give_up(Key key);
  /// While it is to be decided which of the missing experts are computed elsewhere, no copy of them begins.
  void hold_demands(bool held);
  /// The contents of this key's slot are wrong. The slot becomes free unless it is still needed.
  void spoiled(Nanos now, Key key);
  /// The step has failed: nothing is needed any more, queued demands are dropped.
  void abandon(Nanos now);

  /// Complete experts of `layer` stay until its routers have run, or the step has ended or failed, because kernels
  /// queued ahead of them have their addresses.
  void hold(int32_t layer);
  /// The slot of a key that is whole.
  std::optional<Slot> slot_of(Key key) const;
  /// Its copy has begun, and not ended.
  bool has_begun(Key key) const;
  /// routed() has named it, and released() has not been called as often.
  bool in_use(Key key) const;

  // Host memory, called by the code that fills it. A copy starts only when the key's source is ready. If sources are
  // never requested (replay with all experts in host memory), call sources_always_ready() once.

  void sources_always_ready();
  void source_ready(Key key, bool ready);
  /// Keys that need a source and have none, most urgent first: demands, then at most `prefetches` prefetches.
  void sources_wanted(int32_t prefetches, std::vector<Key>& out) const;

  // The link, by its thread.

  /// The chunk to carry next. nullopt: wait for routed(), foresee(), released() or source_ready(), or for chunk_done()
  /// if the link already has TierOptions::chunks_given chunks. chunk_done() must be called for each chunk, in order.
  std::optional<Chunk> next_chunk(Nanos now);
  /// In place of next_chunk(), for callers that choose themselves: begins a copy of `key`, which is absent. `out` gives
  /// up its slot; nullopt: a slot is free.
  Chunk begin_copy(Key key, std::optional<Key> out);
  /// The earliest layer that waits for an expert; nullopt: none.
  std::optional<int32_t> waiting_layer() const;
  /// Whether next_chunk() may have a chunk.
  bool link_wanted() const;
  /// `took`: how long the link was busy with it.
  void chunk_done(Nanos now, const Chunk& chunk, Nanos took);
  /// The source cannot be read, and the link has no chunk of it any more. The copy ends and its slot is free. The
  /// device tells those that wait for it.
  void copy_failed(Nanos now, Key key);

  TierCounters counters() const;
  std::span<const LayerCounters> layer_counters() const;
  float floor() const;       ///< PrefetchOptions::floor, or the value that it has been raised to
  int32_t resident(Copy copy = Copy::kFull) const;  ///< number of complete ones
  bool idle() const;         ///< no chunk is on the link
  /// For tests: the first inconsistency of the bookkeeping; empty if there is none.
  std::string inconsistency() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::tier

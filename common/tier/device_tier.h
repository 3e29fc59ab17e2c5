#pragma once
// Which experts lie in a device's memory, and what its link carries next.
//
// A pure machine: time is passed in, nothing waits, nothing is copied. A live device (services/worker/device) and the
// replay of a trace on a virtual clock (common/tier/replay) drive the same object, so what replay says about a policy
// is what the device does with it.
//
// The link carries one chunk after the other, and is given few ahead. Whenever it may have another the tier says which
// expert's chunk that is: an expert that a layer waits for comes before every prefetch, and of prefetches the one with
// the highest priority, activation probability times proximity, comes first. A copy that was overtaken keeps what it
// has; one whose prediction has become false is dropped once the link has nothing more of it.
//
// Not thread-safe: a live device calls it under one lock from the engine's thread and the link's.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/policy/cache_policy.h"
#include "common/prediction/forecast.h"

namespace moestro::tier {

using Key = uint32_t;   ///< moe_layer * experts + expert
using Slot = uint32_t;  ///< of `slots` equal ones in device memory

/// What keeps prefetching from doing harm. Each can be off, so that replay shows what it is worth.
struct PrefetchOptions {
  float floor = 0.25F;    ///< calibrated probability under which nothing is copied ahead
  float waste_max =
      0;  ///< share of the bytes moved that prefetches may waste: beyond it the floor rises; 1: any; 0: waste_limit()
  int32_t horizon = 0;    ///< layers ahead that are looked at; 0: all
  bool proximity = true;  ///< priority falls with distance
  bool budget = true;     ///< only what the link can bring before its layer needs it
  bool guard = true;      ///< never evicts what is likelier to be used than itself
  bool calibrate = true;  ///< false: a predictor is taken at its word
  int32_t choices = 0;  ///< victims that the policy names, of which the forecast takes one; 0: a quarter of the experts
};

struct TierOptions;
/// Where slots hold a fifth of the experts or more, most of what is wanted is there, and prefetches may waste 15 %;
/// where they hold less prefetching is most of what a link is for, and it may carry 1.4 times what is used.
float waste_limit(const TierOptions& options);

struct TierOptions {
  int32_t layers = 0, experts = 0;
  int32_t slots = 1;
  uint64_t expert_bytes = 0;
  uint64_t chunk_bytes = uint64_t{1} << 20;
  double link_bytes_per_s =
      0;  ///< what the budget of prefetches reckons with until copies have been measured; 0: anything
  Nanos link_latency{0};         ///< of a copy
  bool prefetch = true;          ///< false: forecasts only protect, nothing is copied before it is wanted
  bool fill = false;  ///< while nothing is wanted or foreseen the rest is carried, in order; for a tier with a slot for
                      ///< every key
  bool keep = true;   ///< false: an expert is given up as soon as it was computed with; the slots only buffer
  PrefetchOptions how{};
  int32_t chunks_given =
      1;  ///< chunks that the link has been given and not yet brought, at most: 2 leave no gap between them
};

/// How a router's choice was found.
enum class Found : uint8_t {
  kHit,   ///< in a slot, whole
  kLate,  ///< on its way: counts as a miss that has begun
  kMiss,
};

/// A piece of an expert for the link to carry.
struct Chunk {
  Key key = 0;
  Slot slot = 0;
  uint64_t offset = 0, bytes = 0;
  bool last = false;    ///< the expert is whole with it
  bool demand = false;  ///< a layer waits for it; offset 0 begins a copy, which costs the link's latency
};

/// What came of the experts of one layer.
struct LayerCounters {
  uint64_t hits = 0, late = 0, misses = 0;
  uint64_t evictions = 0;
  uint64_t prefetched = 0;         ///< experts that a prefetch completed
  uint64_t prefetched_used = 0;    ///< of those: used before they were given up
  uint64_t prefetched_wasted = 0;  ///< of those: given up unused

  LayerCounters& operator+=(const LayerCounters& other);
  friend LayerCounters operator-(const LayerCounters& now, const LayerCounters& before);
  friend bool operator==(const LayerCounters&, const LayerCounters&) = default;
};

/// The sums over all layers, and what the link did.
struct TierCounters : LayerCounters {
  uint64_t moved_bytes = 0;             ///< all that the link carried
  Nanos link_busy{0};                   ///< carrying it
  uint64_t wasted_bytes = 0;            ///< carried for a prefetch, whole or not, and given up unused
  uint64_t dropped_prefetches = 0;      ///< begun and let go of: their prediction had become false
  // Forecasts that were not acted on, each counted once until the next forecast.
  uint64_t below_floor = 0;  ///< the predictor's own figure was above the floor, what it is worth by experience is not
  uint64_t throttled = 0;       ///< above the floor, but not above what it has risen to for want of precision
  uint64_t over_budget = 0;     ///< the link would not have brought it in time
  uint64_t guarded = 0;         ///< everything in the slots was likelier to be used
};

class DeviceTier {
 public:
  DeviceTier(const TierOptions& options, std::unique_ptr<policy::CachePolicy> policy);
  ~DeviceTier();

  // The step, by the engine.

  /// `scan`: most of its tokens are of prompts: whole layers pass by, and what they bring is first to go.
  void begin_step(Nanos now, bool scan);
  /// A new sequence has joined and `sequences` are running, it included: for policies that count by request.
  void sequence_began(int32_t sequences);
  struct Wanted {
    Key key = 0;
    float weight = 1;  ///< as policy::Use::weight
  };
  /// The router of `layer` has named these, each key once. They are needed until released(), as often as they were
  /// named; what is missing overtakes every prefetch: what lacks least first, then in the order given. `found`: one per
  /// key. What was foreseen of `layer` and not named has become false.
  void routed(Nanos now, int32_t layer, std::span<const Wanted> wanted, std::span<Found> found);
  /// What is likely next, seen from `layer` (-1: from before the first); replaces what an earlier forecast said.
  void foresee(Nanos now, int32_t layer, const prediction::Forecast& forecast);
  /// What was foreseen holds no more, and nothing takes its place: nobody makes forecasts for now.
  void unforeseen();
  /// The device has computed with a key that routed() named: nobody needs it now.
  void released(Nanos now, Key key);
  /// What lies in the slot of this key is not what it should be: unless somebody needs it still, the slot is free.
  void spoiled(Nanos now, Key key);
  /// The step has failed: nothing is needed any more, queued demands are dropped.
  void abandon(Nanos now);

  /// What of `layer` is whole stays so until its router has spoken, or the step has ended or failed: who computes ahead
  /// of the router was told where it lies. Of one layer at a time.
  void hold(int32_t layer);
  /// The slot of a key that is whole.
  std::optional<Slot> slot_of(Key key) const;

  // Host memory, by whoever fills it. A copy starts only from a key whose source is ready; where sources are never
  // asked for (replay with all experts in host memory), sources_always_ready() says so once.

  void sources_always_ready();
  void source_ready(Key key, bool ready);
  /// Keys that should get a source, first the most urgent: demands, then at most `prefetches` prefetches; without those
  /// that have one.
  void sources_wanted(int32_t prefetches, std::vector<Key>& out) const;

  // The link, by its thread.

  /// What to carry next; nothing: wait for routed(), foresee(), released() or source_ready(), or, where the link has
  /// been given as many as it may (TierOptions::chunks_given), for chunk_done(). Each chunk is followed by
  /// chunk_done(), in the order they were given.
  std::optional<Chunk> next_chunk(Nanos now);
  /// Whether it is worth while to ask for a chunk.
  bool link_wanted() const;
  /// `took`: how long the link was busy with it.
  void chunk_done(Nanos now, const Chunk& chunk, Nanos took);
  /// The source cannot be read, and the link carries nothing of it any more: the copy ends, its slot is free. Who waits
  /// for it is told by the device.
  void copy_failed(Nanos now, Key key);

  TierCounters counters() const;
  std::span<const LayerCounters> layer_counters() const;
  float floor() const;       ///< PrefetchOptions::floor, or what it has risen to
  int32_t resident() const;  ///< keys that are whole
  bool idle() const;         ///< no chunk is on the link
  /// For tests: what is wrong with the bookkeeping; empty if nothing is.
  std::string inconsistency() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::tier

#pragma once
// The state of DeviceTier. Its parts: the step (device_tier.cc), the link (tier_link.cc), eviction (tier_room.cc), why
// experts were late (tier_late.cc), and a check of all invariants (tier_check.cc).

#include <algorithm>
#include <array>

#include "common/tier/calibrated_forecast.h"
#include "common/tier/device_tier.h"
#include "common/tier/link_pace.h"
#include "common/tier/waste_limit.h"

namespace moestro::tier {

struct DeviceTier::Impl {
  enum class State : uint8_t { kAbsent, kCopying, kWhole };
  static constexpr Nanos kNever = Nanos::max();
  struct Entry {
    State state = State::kAbsent;
    bool source = false;
    bool ahead = false;    ///< prefetched, or being prefetched, and not used since
    bool standing = false; ///< of those: its layer's router has not run yet, so it is protected
    bool doomed = false;   ///< dropped while the link still has chunks of it
    bool scanned = false;  ///< brought by a scan, and not used by a decoding step
    bool no_room = false;  ///< of a foreseen key: it found no slot, or lost the one that it had
    LateCause late = LateCause::kNotForeseen;  ///< late_cause()
    bool leased = false;   ///< needed, and computed with
    uint16_t needed = 0;   ///< routed() less released()
    Slot slot = 0;
    uint64_t order = 0;    ///< of demands
    uint64_t sent = 0;
    uint64_t given = 0;    ///< bytes given to the link, of which `sent` have arrived
    Nanos foreseen_at = kNever;  ///< when forecasts began to call for it, since its layer's last pass
    float weight = 1;      ///< of its last use
    Want want = Want::kFull;  ///< of its last use
    Nanos whole_at{0};     ///< when its copy ended
  };
  struct Candidate {
    Key key = 0;
    float probability = 0, priority = 0;
    bool over_budget = false, guarded = false, early = false, needless = false;  ///< counted
  };

  /// What is divided between the copies of one kind.
  struct Pool {
    std::unique_ptr<policy::CachePolicy> policy;  ///< its keys are those of full copies
    std::vector<Slot> free;
    Slot first = 0, end = 0;  ///< its slots
    int32_t whole = 0;        ///< keys

    size_t slots() const { return end - first; }
  };

  Impl(const TierOptions& given, std::unique_ptr<policy::CachePolicy> chosen,
       std::unique_ptr<policy::CachePolicy> chosen_for_low);

  int32_t layer_of(Key key) const { return static_cast<int32_t>(options.full_of(key)) / options.experts; }
  Pool& pool_of(Copy copy) { return pools[static_cast<size_t>(copy)]; }
  const Pool& pool_of(Copy copy) const { return pools[static_cast<size_t>(copy)]; }
  std::span<const std::optional<Key>> slots_of(Copy copy) const {
    return std::span(slots).subspan(pool_of(copy).first, pool_of(copy).slots());
  }
  Pool& pool_of(Key key) { return pool_of(options.copy_of(key)); }
  Key first_of(int32_t layer) const { return static_cast<Key>(layer * options.experts); }
  int32_t distance(int32_t layer) const { return layer > at ? layer - at : layer - at + options.layers; }
  LayerCounters& layer_counters(Key key) { return by_layer[static_cast<size_t>(layer_of(key))]; }
  /// A layer computes with it, or may do so soon.
  bool stays(Key key) const { return entries[key].needed > 0 || held_layers[static_cast<size_t>(layer_of(key))] != 0; }
  uint64_t missing(Key key) const { return options.bytes_of(key) - entries[key].sent; }
  uint64_t ungiven(Key key) const { return options.bytes_of(key) - entries[key].given; }
  bool is_on_link(Key key) const { return std::ranges::find(on_link, key, &Chunk::key) != on_link.end(); }

  // The step.
  void pass_by(int32_t layer);
  uint64_t corrected_below_floor(const prediction::Forecast& told) const;
  Found found(Nanos now, const Wanted& wanted);
  policy::Use use_of(Key key, const Entry& entry) const;
  LateCause why_late(Nanos now, Key key) const;
  void demand(Key key);
  void drop(Key key, bool was_false);
  void count_waste(uint64_t bytes);
  void plan_prefetches(Nanos now);
  void plan_prefetches_of(int32_t layer, Nanos now);
  void plan_scan(Nanos now);
  void follow(Nanos now, Key key);
  void forget_forecast();

  /// What a use of this expert costs on average if its full copy is missing, 1: as much as that copy. Uses that do not
  /// want it full cost a low copy.
  float miss_cost(Key key) const {
    if (options.low_slots == 0) return 1;
    const float low = static_cast<float>(options.low_bytes) / static_cast<float>(options.expert_bytes);
    return low + (1 - low) * full_shares[key];
  }

  // The link.
  Chunk chunk_of(Key key, bool is_demand);
  std::optional<Key> next_demand();
  std::optional<Key> next_begun() const;
  /// Some demand waits for the decision.
  bool holds_demands() const {
    return demands_held &&
           std::ranges::any_of(demands, [this](Key key) { return entries[key].state == State::kAbsent; });
  }
  std::optional<Key> next_prefetch(Nanos now);
  std::optional<Key> next_filling();
  /// Some keys have not been requested yet.
  bool fills() const { return options.fill && pool_of(Copy::kFull).whole < static_cast<int32_t>(entries.size()); }
  bool in_budget(Nanos now, Key key) const;
  bool may_wait(Nanos now, Key key);
  void count_due();
  double share_saved(int32_t layer);
  bool saves_enough(const Candidate& candidate);
  void finished(Nanos now, Key key);

  // What serves.
  Nanos copy_time(uint64_t bytes) const;
  Nanos link_queue(std::span<const Choice> choices) const;

  // Room.
  bool room_for_demand(Key key);
  std::optional<Key> victim(Copy copy);
  std::optional<Key> scan_victim(Copy copy);
  std::optional<Key> standing_victim(Copy copy) const;
  std::optional<Key> unfinished_victim(Copy copy) const;
  void take_from_later(int32_t layer, Copy copy);
  void evict(Key key);
  void take_slot(Key key);
  double passes_until(Key key, float probability) const;
  float worth(Key key) const;

  std::string check() const;

  TierOptions options;
  std::array<Pool, 2> pools;            ///< by Copy
  CalibratedForecast forecast;
  LinkPace pace;
  WasteLimit waste;
  TierCounters counters;                ///< except what is counted by layer
  std::vector<LayerCounters> by_layer;
  std::vector<Entry> entries;
  std::vector<uint8_t> followed;        ///< by key; 0: it neither stands nor is foreseen
  std::vector<std::optional<Key>> slots;  ///< of all pools
  std::vector<Key> demands;             ///< needed and not whole
  bool demands_held = false;            ///< hold_demands()
  std::vector<Key> copies;              ///< kCopying
  std::vector<Key> looked_at;           ///< of one search for a victim
  ServingPlan plan;
  std::vector<Choice*> not_there;       ///< of choose(); scratch
  std::vector<MissingExpert> missing_experts;  ///< the same
  std::vector<Candidate> candidates;    ///< by priority, the highest first
  std::vector<double> due;              ///< [distance]: bytes that are probably to be brought for layers until there;
                                        ///< empty: not counted yet
  std::vector<double> saved;            ///< [layer]: share_saved(); below 0: not known yet
  std::vector<double> present;          ///< scratch of share_saved()
  Nanos free_since{0};                  ///< the device ended an expert, or a router, and has computed none since
  std::vector<float> full_shares;       ///< by key: of the expert's uses, those that wanted it full; old ones fade
  std::vector<uint8_t> used;            ///< [key]: chosen by a router of a layer whose routers have not all run
  std::vector<uint8_t> held_layers;     ///< [layer]: hold()
  std::vector<Chunk> on_link;           ///< in the order in which they were given
  int32_t at = -1;                      ///< the layer that was routed last
  bool goes_on = false;                 ///< the step has been resumed, and none of its routers has chosen since
  bool scan = false;
  bool always_ready = false;
  bool calls_for_some = false;          ///< some foreseen_at are set
  double time = 0;                      ///< uses: one a (step, expert) of decoding
  uint64_t orders = 0;
};

}  // namespace moestro::tier

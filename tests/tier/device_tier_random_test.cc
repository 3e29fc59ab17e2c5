// Any order of calls that a device may make: the bookkeeping holds after each, and every layer gets what it needs.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "common/policy/make_policy.h"
#include "common/tier/device_tier.h"
#include "common/tier/tier_figures.h"

namespace moestro::tier {
namespace {

class Device {
 public:
  /// `given`: chunks that the link may have.
  Device(uint64_t seed, int32_t given) : random_(seed) {
    options_ = {below(6) + 1, below(8) + 1, below(12) + 1, static_cast<uint64_t>(below(500) + 1),
                static_cast<uint64_t>(below(300) + 1)};
    options_.prefetch = chance(0.9);
    options_.keep = chance(0.8);
    options_.how = {.floor = chance(0.5) ? 0.3F : 0.0F,
                    .waste_max = chance(0.5) ? 0.1F : 1.0F,
                    .horizon = below(3),
                    .proximity = chance(0.8),
                    .budget = chance(0.8),
                    .guard = chance(0.8),
                    .patience = chance(0.8),
                    .calibrate = chance(0.8),
                    .choices = below(3)};
    options_.chunks_given = given;
    if (chance(0.5)) {
      options_.low_slots = below(8) + 1;
      options_.low_bytes = static_cast<uint64_t>(below(static_cast<int>(options_.expert_bytes))) + 1;
    }
    if (chance(0.15)) {
      options_.slots = static_cast<int32_t>(options_.full_keys());
      options_.low_slots = 0, options_.low_bytes = 0;
      options_.fill = true;
    }
    const size_t keys = options_.keys();
    auto full = any_policy(), low = options_.low_slots > 0 ? any_policy() : nullptr;
    tier_ = std::make_unique<DeviceTier>(options_, std::move(full), std::move(low));
    forecast_ = prediction::Forecast(options_.layers, options_.experts);
    ready_.assign(keys, false);
    routed_.resize(static_cast<size_t>(options_.layers));
    if ((always_ready_ = chance(0.5))) tier_->sources_always_ready();
  }

  void run(int steps) {
    for (int step = 0; step < steps && !::testing::Test::HasFatalFailure(); ++step) {
      tier_->begin_step(now_, chance(0.2));
      if (chance(0.2)) tier_->sequence_began(below(4) + 1);
      if (chance(0.5)) foresee(-1);
      for (int layer = 0; layer < options_.layers; ++layer) {
        if (chance(0.02)) {
          tier_->abandon(now_), check();
          break;
        }
        std::vector<Open> open{opened(layer)};
        if (layer + 1 < options_.layers && chance(0.3)) open.push_back(opened(++layer));
        const bool done = pass(open);
        if (::testing::Test::HasFatalFailure()) return;
        if (!done) break;
      }
      if (chance(0.5)) take_figures();
    }
    finish_link();
    take_figures();
    const TierCounters counters = tier_->counters();
    EXPECT_EQ(looked_for_, counters.hits + counters.late + counters.misses + counters.skipped);
    EXPECT_LE(counters.wasted_bytes, counters.moved_bytes);
    EXPECT_LE(counters.prefetched_used + counters.prefetched_wasted, counters.prefetched);
    for (size_t l = 0; l < routed_.size(); ++l) {
      const LayerCounters& of = tier_->layer_counters()[l];
      EXPECT_EQ(of.hits, routed_[l].hits);
      EXPECT_EQ(of.late, routed_[l].late);
      EXPECT_EQ(of.misses, routed_[l].misses);
      EXPECT_EQ(of.low, routed_[l].low);
      EXPECT_EQ(of.skipped, routed_[l].skipped);
    }
    EXPECT_TRUE(told_layers_ == static_cast<const LayerCounters&>(counters))
        << "what was told adds up to what there is";
    EXPECT_EQ(told_.moved_bytes, counters.moved_bytes);
    EXPECT_EQ(told_.wasted_bytes, counters.wasted_bytes);
    EXPECT_EQ(told_.link_busy_us, static_cast<uint64_t>(counters.link_busy.count() / 1000));
    EXPECT_EQ(counters.link_busy, link_busy_);
    EXPECT_EQ(told_.resident, static_cast<uint32_t>(tier_->resident()));
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  std::unique_ptr<policy::CachePolicy> any_policy() {
    const auto& names = policy::policy_names();
    return std::move(*policy::make_policy(names[static_cast<size_t>(below(static_cast<int>(names.size())))],
                                          options_.full_keys()));
  }
  void check() { ASSERT_EQ(tier_->inconsistency(), ""); }

  void foresee(int layer) {
    forecast_.clear();
    for (int l = 0; l < options_.layers; ++l)
      for (float& p : forecast_.row(l))
        if (chance(0.4)) p = static_cast<float>(below(101)) / 100;
    tier_->foresee(now_, layer, forecast_), check();
  }
  void sources() {
    if (always_ready_) return;
    std::vector<Key> wanted;
    tier_->sources_wanted(below(4), wanted);
    for (const Key key : wanted)
      if (chance(0.5)) tier_->source_ready(key, ready_[key] = true);
    const auto other = static_cast<Key>(below(static_cast<int>(ready_.size())));
    if (chance(0.2)) tier_->source_ready(other, ready_[other] = !ready_[other]);
    if (chance(0.05)) tier_->give_up(other);
    check();
  }
  void take_figures() {
    since_.take(*tier_, taken_);
    ASSERT_EQ(taken_.layers.size(), routed_.size());
    for (const LayerCounters& layer : taken_.layers) told_layers_ += layer;
    told_.moved_bytes += taken_.moved_bytes, told_.wasted_bytes += taken_.wasted_bytes,
        told_.link_busy_us += taken_.link_busy_us;
    told_.resident = taken_.resident;
  }
  void finish_link() {
    for (; !chunks_.empty(); chunks_.pop_front())
      tier_->chunk_done(now_, chunks_.front(), kChunkTime), link_busy_ += kChunkTime, check();
  }
  void link() {
    now_ += Nanos{below(20)};
    if (chance(0.1)) tier_->hold_demands(false);
    if (!chunks_.empty() && chance(0.03)) {
      const Key key = chunks_.front().key;
      std::erase_if(chunks_, [key](const Chunk& c) { return c.key == key; });
      tier_->copy_failed(now_, key), check();
      failed_.insert(key);
    } else if (!chunks_.empty() && (std::ssize(chunks_) >= options_.chunks_given || chance(0.5))) {
      tier_->chunk_done(now_, chunks_.front(), kChunkTime), link_busy_ += kChunkTime;
      chunks_.pop_front();
      check();
    } else if (const auto chunk = tier_->next_chunk(now_)) {
      ASSERT_TRUE(always_ready_ || ready_[chunk->key]);
      ASSERT_LE(chunk->offset + chunk->bytes, options_.bytes_of(chunk->key));
      ASSERT_LT(chunk->slot, static_cast<Slot>(options_.all_slots()));
      ASSERT_EQ(chunk->slot < static_cast<Slot>(options_.slots), options_.copy_of(chunk->key) == Copy::kFull);
      for (const auto& [key, slot] : computing_) ASSERT_NE(slot, chunk->slot) << "written while it is computed with";
      for (const Chunk& other : chunks_)
        ASSERT_EQ(other.key == chunk->key, other.slot == chunk->slot) << "two experts in one slot";
      chunks_.push_back(*chunk);
      check();
    }
  }

  /// A layer whose routers choose for one micro-batch after another. None names what another has named.
  struct Open {
    int layer = 0;
    std::vector<std::vector<DeviceTier::Wanted>> chosen;  ///< by micro-batch
    size_t routed = 0;
    std::set<Key> left;  ///< named, and not computed with
    bool is_routed() const { return routed == chosen.size(); }
    bool has_ended() const { return is_routed() && left.empty(); }
  };
  Open opened(int layer) {
    Open open{.layer = layer, .chosen = {}, .left = {}};
    open.chosen.resize(chance(0.5) ? 1 : static_cast<size_t>(below(3) + 1));
    for (int e = 0; e < options_.experts; ++e)
      if (chance(0.3))
        open.chosen[static_cast<size_t>(below(static_cast<int>(open.chosen.size())))].push_back(
            {static_cast<Key>(layer * options_.experts + e), chance(0.5) ? 1.0F : 0.1F, static_cast<Want>(below(3))});
    for (auto& wanted : open.chosen) std::shuffle(wanted.begin(), wanted.end(), random_);
    return open;
  }
  void route_next(Open& open) {
    auto& wanted = open.chosen[open.routed++];
    choose_copies(wanted);
    route(open, wanted);
    if (open.is_routed() && chance(0.8)) foresee(open.layer);
  }

  void choose_copies(std::span<DeviceTier::Wanted> wanted) {
    std::vector<DeviceTier::Choice> choices;
    for (const auto& w : wanted) choices.push_back({.full = w.key, .want = w.want});
    tier_->choose(choices);
    for (size_t i = 0; i < wanted.size(); ++i) {
      DeviceTier::Wanted& w = wanted[i];
      const Key full = w.key, low = options_.low_of(full);
      const bool low_there = options_.low_slots > 0 && tier_->slot_of(low);
      const auto key = options_.serving(full, choices[i].way);
      ASSERT_TRUE(key || (w.want == Want::kNone && !low_there));
      w.skipped = !key, w.key = key.value_or(full);
      if (w.want == Want::kFull || options_.low_slots == 0 || tier_->slot_of(full)) ASSERT_EQ(w.key, full);
      ASSERT_TRUE(w.key == full || w.key == low);
    }
  }
  void route(Open& open, std::span<const DeviceTier::Wanted> wanted) {
    std::vector<Found> found(wanted.size());
    if (chance(0.1)) tier_->hold_demands(true);
    tier_->routed(now_, open.layer, wanted, found, open.is_routed() && wanted.data() == open.chosen.back().data());
    check();
    looked_for_ += wanted.size();
    LayerCounters& routed = routed_[static_cast<size_t>(open.layer)];
    for (size_t i = 0; i < wanted.size(); ++i) {
      const Found f = found[i];
      ASSERT_EQ(f == Found::kSkipped, wanted[i].skipped);
      if (f == Found::kSkipped) ++routed.skipped;
      else ++(f == Found::kHit ? routed.hits : f == Found::kLate ? routed.late : routed.misses);
      if (wanted[i].skipped) continue;
      routed.low += options_.copy_of(wanted[i].key) == Copy::kLow;
      open.left.insert(wanted[i].key);
      ASSERT_EQ(f == Found::kHit, tier_->slot_of(wanted[i].key).has_value());
    }
  }
  /// The low copy has failed: the full one is needed instead.
  void take_full_instead(Open& open, Key low) {
    const DeviceTier::Wanted full{options_.full_of(low)};
    route(open, {&full, 1});
  }

  /// One layer, or two that are open at once: the second one's experts are computed with when the first has ended, and
  /// it opens when one of the first one's routers has run. False: the step was given up.
  bool pass(std::vector<Open>& open) {
    failed_.clear();
    const auto ended = [](const Open& o) { return o.has_ended(); };
    const int fails_at = chance(0.05) ? below(60) : -1;
    for (int turns = 0; !std::ranges::all_of(open, ended) || !computing_.empty(); ++turns) {
      EXPECT_LT(turns, 100000) << "nothing moves";
      if (turns == 100000 || ::testing::Test::HasFatalFailure()) return false;
      if (turns == fails_at) {
        tier_->abandon(now_), check();
        computing_.clear();
        return false;
      }
      Open& next = open[open.front().routed == 0 ? 0 : static_cast<size_t>(below(static_cast<int>(open.size())))];
      if (!next.is_routed()) route_next(next);
      sources(), link();
      const auto first = std::ranges::find_if_not(open, ended);
      compute(first == open.end() ? nullptr : &*first);
    }
    return true;
  }
  /// With what is there of the first layer that has not ended.
  void compute(Open* open) {
    if (!computing_.empty() && chance(0.5)) {
      const auto done = computing_.begin();
      ASSERT_EQ(tier_->slot_of(done->first), done->second);
      tier_->released(now_, done->first), check();
      computing_.erase(done);
    }
    if (open == nullptr) return;
    std::vector<Key> failed_low;
    for (auto it = open->left.begin(); it != open->left.end();) {
      const auto slot = tier_->slot_of(*it);
      const bool failed = !slot && failed_.count(*it) > 0, elsewhere = !slot && !failed && chance(0.02);
      if (slot) tier_->leased(*it), computing_.emplace(*it, *slot);
      else if (failed) tier_->released(now_, *it), check();
      else if (elsewhere) tier_->computed_elsewhere(*it), check();
      if (failed && options_.copy_of(*it) == Copy::kLow) failed_low.push_back(*it);
      it = slot || failed || elsewhere ? open->left.erase(it) : std::next(it);
    }
    for (const Key low : failed_low) take_full_instead(*open, low);
  }

  std::mt19937_64 random_;
  TierOptions options_;
  std::unique_ptr<DeviceTier> tier_;
  prediction::Forecast forecast_;
  std::vector<bool> ready_;
  bool always_ready_ = false;
  Nanos now_{0};
  std::deque<Chunk> chunks_;  ///< on the link
  std::map<Key, Slot> computing_;
  std::set<Key> failed_;
  static constexpr Nanos kChunkTime{777};
  uint64_t looked_for_ = 0;
  Nanos link_busy_{0};
  std::vector<LayerCounters> routed_;  ///< by layer, as routed() answered
  FiguresSince since_;
  TierFigures taken_, told_;
  LayerCounters told_layers_;
};

TEST(DeviceTierRandom, HoldsTogetherAndNeverStops) {
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    SCOPED_TRACE(seed);
    const bool one = seed <= 400;
    Device device(one ? seed : seed - 400, one ? 1 : 2 + static_cast<int32_t>(seed % 2));
    device.run(12);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace moestro::tier

// Windows of last uses while a device works: what they come to, when they are begun, and what all of it costs.

#include "services/worker/device/recent_uses.h"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "common/policy/lru_policy.h"

namespace moestro::device {
namespace {

using tier::DeviceTier;
using tier::Found;

Nanos cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + Nanos(now.tv_nsec);
}

/// A device that decodes one sequence on demand: each token prefers what the tokens before it used.
class Decoder {
 public:
  Decoder(const tier::TierOptions& options, int32_t top_k, RecentUses& recent)
      : options_(options), top_k_(top_k), tier_(options, std::make_unique<policy::LruPolicy>()), recent_(recent),
        last_(static_cast<size_t>(options.layers)) {
    tier_.sources_always_ready();
  }

  void token() {
    tier_.begin_step({}, false);
    timed([&] { recent_.begin_step(false); });
    for (int32_t l = 0; l < options_.layers; ++l) layer(l);
  }
  Nanos noting() const { return noting_; }
  uint64_t uses() const { return uses_; }
  uint64_t hits() const { return tier_.counters().hits; }

 private:
  template <typename Call>
  void timed(const Call& call) {
    const Nanos begin = cpu_time();
    call();
    noting_ += cpu_time() - begin;
  }
  void choose(int32_t l) {
    auto& last = last_[static_cast<size_t>(l)];
    wanted_.clear();
    while (wanted_.size() < static_cast<size_t>(top_k_)) {
      const bool again = !last.empty() && random_() % 4 != 0;
      const auto expert = static_cast<uint32_t>(again ? last[random_() % last.size()]
                                                      : random_() % static_cast<uint32_t>(options_.experts));
      const tier::Key key = static_cast<uint32_t>(l * options_.experts) + expert;
      if (std::ranges::find(wanted_, key, &DeviceTier::Wanted::key) != wanted_.end()) continue;
      wanted_.push_back({key, 1});
      if (last.size() < 4 * static_cast<size_t>(top_k_)) last.push_back(expert);
      else last[random_() % last.size()] = expert;
    }
  }
  void layer(int32_t l) {
    choose(l);
    found_.resize(wanted_.size());
    tier_.routed({}, l, wanted_, found_);
    timed([&] { recent_.routed(wanted_, found_); });
    uses_ += wanted_.size();
    while (const auto chunk = tier_.next_chunk({})) tier_.chunk_done({}, *chunk, {});
    for (const auto& w : wanted_) tier_.released({}, w.key);
  }

  const tier::TierOptions options_;
  const int32_t top_k_;
  DeviceTier tier_;
  RecentUses& recent_;
  std::mt19937 random_{7};
  std::vector<std::vector<uint32_t>> last_;
  std::vector<DeviceTier::Wanted> wanted_;
  std::vector<Found> found_;
  Nanos noting_{0};
  uint64_t uses_ = 0;
};

/// The replaying thread has the lowest priority: it may be a while on a busy machine.
tier::WindowHits wait_for(RecentUses& recent) {
  const SteadyClock clock;
  const Nanos until = clock.now() + std::chrono::seconds(60);
  while (clock.now() < until) {
    if (const tier::WindowHits hits = recent.take(); hits.uses > 0) return hits;
    std::this_thread::yield();
  }
  return {};
}

tier::TierOptions small() { return {.layers = 4, .experts = 16, .slots = 16, .expert_bytes = 100, .chunk_bytes = 100}; }

TEST(RecentUses, SaysOfEachWindowWhatCameOfIt) {
  ManualClock clock;
  RecentUses recent(small(), clock, {.uses = 400, .share_max = 0});
  Decoder decoder(small(), 2, recent);
  for (int window = 0; window < 5; ++window) {
    while (decoder.token(), recent.recording()) {}
    const tier::WindowHits hits = wait_for(recent);
    EXPECT_EQ(hits.uses, 300u) << "three quarters of 400";
    EXPECT_NEAR(hits.hits, hits.lru_hits, 3) << "the device is one with LRU and without prefetch";
    EXPECT_GT(hits.belady_hits, hits.lru_hits);
    EXPECT_LT(hits.belady_hits, hits.uses);
    EXPECT_EQ(recent.take().uses, 0u) << "said once";
  }
}

TEST(RecentUses, RestsUntilItsShareOfACoreAllowsTheNext) {
  ManualClock clock;
  RecentUses recent(small(), clock, {.uses = 200, .share_max = 0.01});
  Decoder decoder(small(), 2, recent);
  while (decoder.token(), recent.recording()) {}
  ASSERT_GT(wait_for(recent).uses, 0u);
  const Nanos took = recent.replays_took();
  ASSERT_GT(took, Nanos{0});
  decoder.token();
  EXPECT_FALSE(recent.recording());
  clock.advance(99 * took);
  decoder.token();
  EXPECT_FALSE(recent.recording());
  clock.advance(2 * took);
  decoder.token();
  EXPECT_TRUE(recent.recording());
}

TEST(RecentUses, PromptsAloneSayNothing) {
  ManualClock clock;
  RecentUses recent(small(), clock, {.uses = 8, .share_max = 0});
  const std::vector<DeviceTier::Wanted> wanted = {{0, 0.5F}, {1, 0.5F}};
  const std::vector<Found> found(2, Found::kMiss);
  for (int step = 0; step < 100; ++step) {
    recent.begin_step(true);
    EXPECT_TRUE(recent.recording());
    recent.routed(wanted, found);
  }
  EXPECT_EQ(recent.take().uses, 0u);
  EXPECT_EQ(recent.replays_took(), Nanos{0});
}

TEST(RecentUses, CostsFarLessThanAHundredthOfACore) {
  struct Model {
    const char* name;
    int32_t layers, experts, top_k;
  };
  for (const Model& model : {Model{"the demo model", 8, 16, 2}, Model{"48 layers of 128 experts", 48, 128, 8}}) {
    const tier::TierOptions options{.layers = model.layers,
                                    .experts = model.experts,
                                    .slots = model.layers * model.experts / 4,
                                    .expert_bytes = 100,
                                    .chunk_bytes = 100};
    ManualClock clock;
    RecentUses recent(options, clock);
    Decoder decoder(options, model.top_k, recent);
    while (decoder.token(), recent.recording()) {}
    const tier::WindowHits hits = wait_for(recent);
    ASSERT_GT(hits.uses, 0u);
    const double note_ns = static_cast<double>(decoder.noting().count()) / static_cast<double>(decoder.uses());
    const double replay_ms = 1e-6 * static_cast<double>(recent.replays_took().count());
    std::printf(
        "%s: a use is noted in %.0f ns; a window of %zu uses is replayed in %.1f ms, at most every %.1f s (0.2 %% of a "
        "core)\n",
        model.name, note_ns, recent.window_uses(), replay_ms, replay_ms / 1000 / RecentUsesOptions{}.share_max);
    // Where an expert takes 1 ms, 1,000 ns a use are 0.1 %.
    EXPECT_LT(note_ns, 1000);
    clock.advance(std::chrono::duration_cast<Nanos>(0.9 * recent.replays_took() / RecentUsesOptions{}.share_max));
    decoder.token();
    EXPECT_FALSE(recent.recording());
  }
}

}  // namespace
}  // namespace moestro::device

// Tokens a second on an emulated device that takes 1 ms for an expert, on a clock of its own: auto beside copying on
// demand with LRU, and beside one who knows the future, by replay of the same routes. The first requests are there to
// be learned from. What foresight itself takes is in own_time_test.cc.

#include <gtest/gtest.h>

#include <cstdio>

#include "common/policy/lru_policy.h"
#include "common/tier/clairvoyant.h"
#include "tests/device/demo_steps.h"
#include "tests/device/route_recorder.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;

constexpr Nanos kExpert = std::chrono::milliseconds(1);
constexpr uint32_t kRequests = 4, kJudgedFrom = 2, kPromptTokens = 12;
constexpr int kDecoded = 24;

struct Setting {
  int32_t slots;
  int copy;  ///< times an expert's computing
};

struct Speed {
  double tokens_per_s = 0;  ///< decoded by the requests that are judged
  uint64_t hits = 0, uses = 0;
  tier::Routes routes;
  double hit_percent() const { return 100.0 * static_cast<double>(hits) / static_cast<double>(uses); }
};

class LiveSpeed : public ::testing::TestWithParam<Setting> {
 protected:
  DeviceBenchOptions options(const std::string& cache, const std::string& predictor, VirtualTime& time) const {
    return {.slots = GetParam().slots,
            .cache = cache,
            .predictor = predictor,
            .link_bytes_per_s = bytes_ * 1000 / static_cast<uint64_t>(GetParam().copy),
            .engine = demo_engine(kExpert, true),  // the same text each time
            .time = &time};
  }

  Speed live(const std::string& cache, const std::string& predictor) const {
    VirtualTime time;
    DeviceBench device(demo_model(), options(cache, predictor, time));
    Bench& bench = device.bench();
    const auto& spec = bench.engine().spec();
    Speed speed;
    speed.routes.layers = static_cast<int32_t>(spec.moe_layers()),
    speed.routes.experts = static_cast<int32_t>(spec.moe().experts);
    speed.routes.top_k = static_cast<int32_t>(spec.moe().top_k);
    bench.engine().set_route_observer([&](const engine::RoutedTokens& tokens) { record(tokens, speed.routes); });
    Nanos took{0};
    for (uint32_t request = 0; request < kRequests; ++request) {
      std::vector<TokenId> next = demo_prompt(request, kPromptTokens, spec.vocab);
      for (int i = 0; i <= kDecoded; ++i) {
        bench.add(request + 1, next).sample = true;
        const Nanos begin = time.now();
        const auto outcome = bench.run();
        EXPECT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok());
        next = {outcome->sequences[0].sampled.at(0).id};
        if (request < kJudgedFrom || i == 0) continue;
        took += time.now() - begin;
        speed.hits += outcome->expert_hits, speed.uses += outcome->expert_hits + outcome->expert_misses;
      }
      bench.release(request + 1);
    }
    speed.tokens_per_s = (kRequests - kJudgedFrom) * kDecoded / std::chrono::duration<double>(took).count();
    return speed;
  }

  /// Of the requests that are judged: time on demand with LRU / time of one who knows the future.
  double best_speed_up(const tier::Routes& routes) const {
    const double link = static_cast<double>(bytes_) * 1e3 / GetParam().copy;
    const tier::ReplaySetup setup{.slots = GetParam().slots,
                                  .expert_bytes = bytes_,
                                  .times = {.attention = kExpert, .expert = kExpert, .link_bytes_per_s = link}};
    std::vector<size_t> judged;
    for (size_t r = kJudgedFrom; r < routes.requests.size(); ++r) judged.push_back(r);
    tier::ReplaySetup on_demand = setup;
    on_demand.prefetch = false;
    return tier::replay(routes, judged, on_demand, std::make_unique<policy::LruPolicy>(), {}).time_per_token_s() /
           tier::clairvoyant(routes, judged, setup).report.time_per_token_s();
  }

  const uint64_t bytes_ = demo_expert_bytes();
};

TEST_P(LiveSpeed, AutoIsNeverSlowerThanOnDemand) {
  const Speed on_demand = live("lru", "none"), with = live("auto", "auto");
  const double speed_up = with.tokens_per_s / on_demand.tokens_per_s;
  std::printf(
      "live speed: %d of 128 slots, copy %dx: %.1f tokens/s, on demand + lru %.1f, speed-up %.2f of %.2f possible; "
      "hits %.1f %% and %.1f %%\n",
      GetParam().slots, GetParam().copy, with.tokens_per_s, on_demand.tokens_per_s, speed_up,
      best_speed_up(on_demand.routes), with.hit_percent(), on_demand.hit_percent());
  EXPECT_GE(with.hit_percent(), on_demand.hit_percent() - 2);
  EXPECT_GE(speed_up, 0.98);
}

INSTANTIATE_TEST_SUITE_P(Slots, LiveSpeed,
                         ::testing::Values(Setting{13, 1}, Setting{13, 4}, Setting{32, 1}, Setting{32, 4}));

}  // namespace
}  // namespace moestro::device::testing

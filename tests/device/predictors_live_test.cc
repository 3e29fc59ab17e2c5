// What predictors are worth on a device: the demo model decodes on an emulated one, on a clock of its own where an
// expert, an attention and a copy take 1 ms each. What replay cannot say is here too: what the gate's look-ahead finds.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <thread>

#include "tests/device/demo_decode.h"

namespace moestro::device::testing {
namespace {

constexpr Nanos kExpert = std::chrono::milliseconds(1);
constexpr int kSlots = 32, kTokens = 60;
constexpr size_t kRequests = 4;

struct Live {
  Decoded decoded;
  tier::WindowHits recent;  ///< of windows of last uses
};

Live live(const std::string& predictor, const std::string& cache = "lfru") {
  VirtualTime time;
  const DeviceBenchOptions options{.slots = kSlots,
                                   .cache = cache,
                                   .predictor = predictor,
                                   .link_bytes_per_s = demo_expert_bytes() * 1000,
                                   .engine = {.experts = DType::kBF16,
                                              .dense = DType::kBF16,
                                              .engine = {.model = "m", .kv_tokens = 4096, .compute_floor = kExpert}},
                                   .time = &time};
  DeviceBench device(demo_model(), options);
  Live l;
  tier::TierFigures figures;
  uint64_t id = 1;
  for (const auto& prompt : demo_prompts(kRequests)) {
    const Status status = decode(device.bench(), id++, prompt, kTokens, l.decoded);
    EXPECT_TRUE(status.is_ok()) << status.message();
    while (device.device().replays_uses()) std::this_thread::sleep_for(kExpert);
    device.device().take_figures(figures);
    l.recent.uses += figures.recent.uses, l.recent.hits += figures.recent.hits;
    l.recent.lru_hits += figures.recent.lru_hits, l.recent.belady_hits += figures.recent.belady_hits;
  }
  return l;
}

TEST(PredictorsLive, ADeviceWithLruFindsWhatItsWindowsSayLruFinds) {
  const Live l = live("none", "lru");
  ASSERT_GT(l.recent.uses, 0u);
  std::printf("none, lru: %u of %u uses in windows found, %u by LRU on demand, %u by Belady\n", l.recent.hits,
              l.recent.uses, l.recent.lru_hits, l.recent.belady_hits);
  EXPECT_NEAR(l.recent.hits, l.recent.lru_hits, 0.01 * l.recent.uses);
}

TEST(PredictorsLive, GateAndAutoFindWhatWouldHaveBeenWaitedFor) {
  std::map<std::string, double> found;
  for (const char* predictor : {"none", "correlation", "auto", "gate"}) {
    const Live l = live(predictor);
    const Decoded& d = l.decoded;
    const auto percent = [&](uint32_t hits) { return 100.0 * hits / std::max(1U, l.recent.uses); };
    ASSERT_GT(d.uses, kRequests * kTokens * 8);
    found[predictor] = d.hit_percent();
    std::printf("%-12s %llu of %llu uses found, %.0f %%; stall %.2f s\n", predictor,
                static_cast<unsigned long long>(d.hits), static_cast<unsigned long long>(d.uses), d.hit_percent(),
                d.stall_s);
    std::printf("%-12s   of %u uses in windows %.0f %%; LRU on demand %.0f %%, Belady %.0f %%\n", "", l.recent.uses,
                percent(l.recent.hits), percent(l.recent.lru_hits), percent(l.recent.belady_hits));
    EXPECT_LT(l.recent.lru_hits, l.recent.belady_hits) << predictor;
  }
  EXPECT_GT(found["auto"], found["none"] + 8);
  EXPECT_GT(found["gate"], found["none"] + 8);
  EXPECT_GT(found["correlation"], found["none"]);
}

}  // namespace
}  // namespace moestro::device::testing

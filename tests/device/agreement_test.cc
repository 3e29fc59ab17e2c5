// What replay says is what the device does: the demo model decodes on an emulated device whose only time is that of its
// computing and its link, and its routes, recorded meanwhile, are replayed with the same policy and predictor objects.
// Every count and every nanosecond agrees.

#include <gtest/gtest.h>

#include <numeric>

#include "common/policy/make_policy.h"
#include "common/prediction/make_predictor.h"
#include "common/tier/replay.h"
#include "tests/device/demo_decode.h"
#include "tests/device/route_recorder.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;

constexpr Nanos kExpert = std::chrono::milliseconds(1);
constexpr int kDecoded = 40, kPromptTokens = 12;

/// As `auto`, without what asks the next routers: a trace does not have their input.
constexpr const char* kAllButGates = "request+recent+correlation+signature+signature-3+echo+eamc";

struct Case {
  std::string predictor, cache;
  int32_t slots = 32;
  Nanos copy{0};  ///< of an expert
};

std::vector<std::vector<TokenId>> prompts(int64_t vocab, uint32_t tokens) {
  std::vector<std::vector<TokenId>> all;
  for (uint32_t i = 0; i < 3; ++i) {
    auto& prompt = all.emplace_back();
    for (uint32_t p = 0; p < tokens; ++p)
      prompt.push_back(static_cast<TokenId>((i * 977 + p * 131 + 57) % static_cast<uint32_t>(vocab)));
  }
  return all;
}

/// What the device did, and the routes it took.
struct Live {
  tier::Routes routes;
  Decoded decoded;
  tier::TierCounters counters;
  Nanos elapsed{0};  ///< of everything, prompts too
};

class AgreementTest : public ::testing::TestWithParam<Case> {
 protected:
  uint64_t rate() const {
    return static_cast<uint64_t>(static_cast<double>(bytes_) * 1e9 / static_cast<double>(GetParam().copy.count()));
  }
  Live live() {
    VirtualTime time;
    DeviceBench device(demo_model(), {.slots = GetParam().slots,
                                      .cache = GetParam().cache,
                                      .predictor = GetParam().predictor,
                                      .link_bytes_per_s = rate(),
                                      .engine = {.experts = DType::kBF16,
                                                 .dense = DType::kBF16,
                                                 .engine = {.model = "m", .kv_tokens = 4096,
                                                            .compute_floor = kExpert}},
                                      .time = &time});
    Bench& bench = device.bench();
    Live l;
    const auto& spec = bench.engine().spec();
    l.routes.layers = static_cast<int32_t>(spec.moe_layers()),
    l.routes.experts = static_cast<int32_t>(spec.moe().experts),
    l.routes.top_k = static_cast<int32_t>(spec.moe().top_k);
    bench.engine().set_route_observer([&](const engine::RoutedTokens& tokens) { record(tokens, l.routes); });
    uint64_t id = 1;
    for (const auto& prompt : prompts(spec.vocab, kPromptTokens)) {
      const Status status = decode(bench, id++, prompt, kDecoded, l.decoded);
      EXPECT_TRUE(status.is_ok()) << status.message();
    }
    l.elapsed = time.now();
    l.counters = device.device().tier_counters();
    return l;
  }

  tier::ReplayReport replayed(const Live& l) const {
    const tier::Routes& routes = l.routes;
    std::unique_ptr<prediction::Predictor> foresees;
    if (GetParam().predictor != "none")
      foresees = std::move(*prediction::make_predictor(
          GetParam().predictor,
          {.shape = {.layers = routes.layers, .experts = routes.experts, .top_k = routes.top_k}}));
    std::vector<size_t> requests(routes.requests.size());
    std::iota(requests.begin(), requests.end(), size_t{0});
    const tier::ReplaySetup setup{
        .slots = GetParam().slots,
        .expert_bytes = bytes_,
        .prefetch = GetParam().predictor != "none",
        .times = {.attention = kExpert, .expert = kExpert, .link_bytes_per_s = static_cast<double>(rate())}};
    return tier::replay(routes, requests, setup,
                        std::move(*policy::make_device_policy(
                            GetParam().cache, {routes.layers, routes.experts, GetParam().slots})),
                        {.predictor = foresees.get()});
  }

  const uint64_t bytes_ = demo_expert_bytes();
};

TEST_P(AgreementTest, EveryCountAndEveryNanosecond) {
  const Live l = live();
  const tier::ReplayReport r = replayed(l);
  EXPECT_EQ(r.uses, l.decoded.uses);
  EXPECT_EQ(r.hits, l.decoded.hits);
  EXPECT_GT(r.hits, 0u);
  EXPECT_LT(r.hits, r.uses);
  const tier::TierCounters &live = l.counters, &replay = r.counters;
  EXPECT_EQ(replay.hits, live.hits);
  EXPECT_EQ(replay.late, live.late);
  EXPECT_EQ(replay.misses, live.misses);
  EXPECT_EQ(replay.evictions, live.evictions);
  EXPECT_EQ(replay.prefetched, live.prefetched);
  EXPECT_EQ(replay.prefetched_used, live.prefetched_used);
  EXPECT_EQ(replay.prefetched_wasted, live.prefetched_wasted);
  EXPECT_EQ(replay.moved_bytes, live.moved_bytes);
  EXPECT_EQ(replay.wasted_bytes, live.wasted_bytes);
  EXPECT_EQ(replay.dropped_prefetches, live.dropped_prefetches);
  EXPECT_EQ(replay.link_busy, live.link_busy);
  EXPECT_EQ(r.time + r.prompt_time, l.elapsed);
  // A step's stall is told in whole microseconds.
  EXPECT_NEAR(std::chrono::duration<double>(r.stall).count(), l.decoded.stall_s,
              1e-6 * static_cast<double>(l.decoded.steps));
}

INSTANTIATE_TEST_SUITE_P(
    Device, AgreementTest,
    ::testing::Values(Case{"none", "lru", 32, std::chrono::microseconds(1300)},
                      Case{"none", "interval", 24, std::chrono::microseconds(500)},
                      Case{"popularity", "lfru", 32, std::chrono::microseconds(1300)},
                      Case{"correlation", "lfru", 32, std::chrono::microseconds(1300)},
                      Case{kAllButGates, "auto", 32, std::chrono::microseconds(700)},
                      Case{kAllButGates, "auto", 16, std::chrono::microseconds(2100)}));

}  // namespace
}  // namespace moestro::device::testing

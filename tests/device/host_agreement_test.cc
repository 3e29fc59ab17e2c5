// What replay says of a drive is what a worker does: the demo model decodes on the CPU from a virtual store, with the
// worker's own Foresight and HostOutlook. Its routes, recorded meanwhile, are replayed over a store of the same size.
// Every count and every nanosecond agrees.

#include <gtest/gtest.h>

#include <numeric>

#include "common/policy/make_policy.h"
#include "common/prediction/make_predictor.h"
#include "common/tier/replay.h"
#include "services/worker/device/foresight.h"
#include "services/worker/device/host_outlook.h"
#include "tests/device/demo_decode.h"
#include "tests/device/route_recorder.h"
#include "tests/device/virtual_host.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;

constexpr Nanos kExpert = std::chrono::milliseconds(1);
constexpr int kDecoded = 30;
constexpr uint32_t kLayers = 8, kPerLayer = 16;  ///< of the demo model

struct Case {
  std::string predictor, policy;
  uint32_t held = 32;
  Nanos read{0};  ///< of an expert
};

class HostAgreementTest : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<store::VirtualStore> make_host() const {
    const double rate = static_cast<double>(bytes_) * 1e9 / static_cast<double>(GetParam().read.count());
    const store::VirtualStoreOptions options{.experts = kLayers * kPerLayer, .experts_held = GetParam().held,
                                             .expert_bytes = bytes_, .drive = {rate, std::chrono::microseconds(50)}};
    return std::move(*store::VirtualStore::create(options, *policy::make_policy(GetParam().policy, options.experts)));
  }
  std::unique_ptr<prediction::Predictor> make_predictor() const {
    if (GetParam().predictor == "none") return nullptr;
    return std::move(*prediction::make_predictor(
        GetParam().predictor, {.shape = {.layers = kLayers, .experts = kPerLayer, .top_k = 2}}));
  }
  const uint64_t bytes_ = demo_expert_bytes();
};

TEST_P(HostAgreementTest, EveryCountAndEveryNanosecond) {
  VirtualTime time;
  const auto live_host = make_host();
  tier::Routes routes;
  Decoded decoded;
  {
    const engine::testing::BenchOptions options{
        .experts = DType::kBF16,
        .dense = DType::kBF16,
        .engine = {.model = "m", .kv_tokens = 4096, .compute_floor = kExpert},
        .clock = &time};
    Bench bench(demo_model(), options, [&](std::unique_ptr<store::BlobSource> bytes) {
      return std::make_unique<VirtualHostSource>(std::move(bytes), DType::kBF16, *live_host, time);
    });
    const auto& spec = bench.engine().spec();
    routes.layers = static_cast<int32_t>(spec.moe_layers());
    routes.experts = static_cast<int32_t>(spec.moe().experts);
    routes.top_k = static_cast<int32_t>(spec.moe().top_k);
    ASSERT_EQ(routes.layers, int32_t{kLayers});
    ASSERT_EQ(routes.experts, int32_t{kPerLayer});
    std::unique_ptr<HostOutlook> outlook;
    std::unique_ptr<Foresight> foresight;
    if (auto predictor = make_predictor()) {
      auto made = HostOutlook::create(bench.source(), DType::kBF16, nullptr, time);
      ASSERT_TRUE(made.is_ok()) << made.status().message();
      outlook = std::move(*made);
      foresight = std::make_unique<Foresight>(*outlook, std::move(predictor), routes.top_k);
      bench.engine().set_expert_watch(foresight.get());
    }
    bench.engine().set_route_observer([&](const engine::RoutedTokens& tokens) { record(tokens, routes); });
    uint64_t id = 1;
    for (const auto& prompt : demo_prompts(3)) {
      const Status status = decode(bench, id, prompt, kDecoded, decoded);
      ASSERT_TRUE(status.is_ok()) << status.message();
      if (foresight) foresight->forget(SequenceId(id));
      ++id;
    }
    bench.engine().set_expert_watch(nullptr);
  }

  const auto host = make_host();
  const auto predictor = make_predictor();
  std::vector<size_t> requests(routes.requests.size());
  std::iota(requests.begin(), requests.end(), size_t{0});
  const tier::ReplaySetup setup{.expert_bytes = bytes_, .times = {.attention = kExpert, .expert = kExpert}};
  const tier::ReplayReport r = tier::replay_on_cpu(routes, requests, setup, {.predictor = predictor.get()}, *host);
  EXPECT_EQ(r.uses, decoded.uses);
  EXPECT_EQ(r.hits, decoded.hits);
  EXPECT_GT(r.hits, 0u);
  EXPECT_LT(r.hits, r.uses);
  EXPECT_EQ(host->counters(), live_host->counters());
  const store::StoreMachine::Counters &replayed = host->machine().counters(), &live = live_host->machine().counters();
  EXPECT_EQ(replayed.loads, live.loads);
  EXPECT_EQ(replayed.prefetches, live.prefetches);
  EXPECT_EQ(replayed.prefetches > 0, GetParam().predictor != "none");
  EXPECT_EQ(replayed.early, live.early);
  EXPECT_EQ(replayed.over_budget, live.over_budget);
  EXPECT_EQ(r.time + r.prompt_time, time.now());
}

constexpr const char* kAllButGates = "request+recent+correlation+signature+signature-3+echo+eamc";

INSTANTIATE_TEST_SUITE_P(Cpu, HostAgreementTest,
                         ::testing::Values(Case{"none", "lru", 32, std::chrono::microseconds(1300)},
                                           Case{"none", "interval", 24, std::chrono::microseconds(500)},
                                           Case{"correlation", "lfru", 32, std::chrono::microseconds(1300)},
                                           Case{kAllButGates, "interval", 32, std::chrono::microseconds(700)},
                                           Case{kAllButGates, "interval", 12, std::chrono::microseconds(2100)}));

}  // namespace
}  // namespace moestro::device::testing

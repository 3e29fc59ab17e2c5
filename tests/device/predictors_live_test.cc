// What predictors are worth on a device that works: the demo model decodes on an emulated one where an expert, an attention and a copy take
// 1 ms each. What replay cannot say is here too: what the gate's look-ahead finds.

#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/device/demo_decode.h"

namespace moestro::device::testing {
namespace {

constexpr Nanos kExpert = std::chrono::milliseconds(1);
constexpr int kSlots = 32, kTokens = 60;
constexpr size_t kRequests = 4;

Decoded live(const std::string& predictor) {
  const DeviceBenchOptions options{.slots = kSlots,
                                   .predictor = predictor,
                                   .link_bytes_per_s = demo_expert_bytes() * 1000,
                                   .engine = {.experts = DType::kBF16, .dense = DType::kBF16, .engine = {.model = "m", .kv_tokens = 4096, .compute_floor = kExpert}}};
  DeviceBench device(demo_model(), options);
  Decoded decoded;
  uint64_t id = 1;
  for (const auto& prompt : demo_prompts(kRequests)) {
    const Status status = decode(device.bench(), id++, prompt, kTokens, decoded);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  return decoded;
}

TEST(PredictorsLive, GateAndAutoFindWhatWouldHaveBeenWaitedFor) {
  std::map<std::string, double> found;
  for (const char* predictor : {"none", "correlation", "auto", "gate"}) {
    const Decoded d = live(predictor);
    ASSERT_GT(d.uses, kRequests * kTokens * 8);
    found[predictor] = d.hit_percent();
    std::printf("%-12s %llu of %llu uses found, %.0f %%; stall %.2f s\n", predictor, static_cast<unsigned long long>(d.hits),
                static_cast<unsigned long long>(d.uses), d.hit_percent(), d.stall_s);
  }
  EXPECT_GT(found["auto"], found["none"] + 8);
  EXPECT_GT(found["gate"], found["none"] + 8);
  EXPECT_GT(found["correlation"], found["none"]);
}

}  // namespace
}  // namespace moestro::device::testing

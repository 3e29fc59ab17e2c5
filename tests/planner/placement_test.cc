#include "common/planner/placement.h"

#include <gmock/gmock.h>

#include <random>

namespace moestro::planner {
namespace {

using testing::HasSubstr;
using Device = Memories::Device;

constexpr uint64_t kMiB = 1 << 20;

Needs needs() {
  return {.dense_bytes = 100 * kMiB, .kv_bytes = 50 * kMiB, .workspace_bytes = 20 * kMiB, .process_bytes = 30 * kMiB,
          .expert_bytes = 10 * kMiB, .slot_bytes = 11 * kMiB, .experts = 40};
}

TEST(Placement, OnTheHostExpertsGetWhatIsLeft) {
  const auto placed = place(needs(), {.host_bytes = 305 * kMiB});
  ASSERT_TRUE(placed.is_ok()) << placed.status().message();
  EXPECT_EQ(placed->host_experts, 10);
  EXPECT_EQ(placed->device_experts, 0);
  EXPECT_EQ(placed->arena_bytes, 200 * kMiB);
  EXPECT_DOUBLE_EQ(placed->host_share(), 0.25);
  ASSERT_EQ(placed->tiers.size(), 2u);
  EXPECT_EQ(placed->tiers[0].used_bytes(), 300 * kMiB);
  EXPECT_EQ(placed->tiers[1].used_bytes(), 500 * kMiB) << "the drive has all of it";
}

TEST(Placement, OfAGpu) {
  const auto placed = place(needs(), {Device::kWhole, 170 * kMiB + 3 * 11 * kMiB, 330 * kMiB, {}});
  ASSERT_TRUE(placed.is_ok()) << placed.status().message();
  EXPECT_EQ(placed->device_experts, 3);
  EXPECT_EQ(placed->host_experts, 20) << "KV cache and workspace are on the device";
}

TEST(Placement, AnEmulatedDeviceIsHostMemoryToo) {
  const auto placed = place(needs(), {Device::kExpertsOnly, 55 * kMiB, 355 * kMiB, {}});
  ASSERT_TRUE(placed.is_ok()) << placed.status().message();
  EXPECT_EQ(placed->device_experts, 5);
  EXPECT_EQ(placed->host_experts, 10);
}

TEST(Placement, StatesOfSequencesLieWhereTheGpuComputesElseInHostMemory) {
  Needs with = needs();
  with.state_bytes = 22 * kMiB;
  const auto experts = [](const Needs& n, Device device, bool counts_kv = false) {
    const auto placed = place(n, {device, 500 * kMiB, 900 * kMiB, {}, counts_kv});
    EXPECT_TRUE(placed.is_ok()) << placed.status().message();
    return placed.is_ok() ? std::pair(placed->device_experts, placed->host_experts) : std::pair<int64_t, int64_t>();
  };
  EXPECT_EQ(experts(with, Device::kWhole).first, experts(needs(), Device::kWhole).first - 2);
  for (const bool counted : {false, true}) {
    const auto [device, host] = experts(with, Device::kExpertsOnly, counted);
    EXPECT_EQ(device, experts(needs(), Device::kExpertsOnly, counted).first);
    EXPECT_LT(host, experts(needs(), Device::kExpertsOnly, counted).second) << counted;
  }
}

TEST(Placement, AnArenaIsNotExceeded) {
  const auto placed = place(needs(), {Device::kHost, 0, 10000 * kMiB, 150 * kMiB});
  ASSERT_TRUE(placed.is_ok()) << placed.status().message();
  EXPECT_EQ(placed->host_experts, 5);
}

TEST(Placement, AnEmulatedDevicesKvCacheTakesItsMemoryWhereItCounts) {
  Needs n = needs();
  Memories m{Device::kExpertsOnly, n.kv_bytes + 5 * n.slot_bytes, 10000 * kMiB, {}};
  EXPECT_GT(place(n, m)->device_experts, 5) << "it is free";
  m.counts_kv = true;
  const auto counted = place(n, m);
  ASSERT_TRUE(counted.is_ok()) << counted.status().message();
  EXPECT_EQ(counted->device_experts, 5);
  m.device_bytes = n.kv_bytes;
  EXPECT_THAT(place(n, m).status().message(), testing::HasSubstr("device memory"));
  EXPECT_THAT(place(n, m).status().message(), testing::HasSubstr("KV cache"));
}

TEST(Placement, DenseWeightsOfAnEmulatedDeviceTakeTurnsWhereTheyCountAndDoNotFit) {
  Needs n = needs();
  n.dense_layer_bytes = std::vector<uint64_t>(8, 10 * kMiB);
  Memories m{Device::kExpertsOnly, 100 * kMiB + 5 * n.slot_bytes, 10000 * kMiB, {}};
  EXPECT_EQ(place(n, m)->device_experts, 14) << "they are free";
  m.counts_dense = true;
  const auto all = place(n, m);
  ASSERT_TRUE(all.is_ok()) << all.status().message();
  EXPECT_EQ(all->device_experts, 5);
  EXPECT_EQ(all->streamed_layers, 0u);
  EXPECT_EQ(all->dense_share, 1);
  m.dense_share = 0.5;
  const auto half = place(n, m);
  ASSERT_TRUE(half.is_ok()) << half.status().message();
  EXPECT_EQ(half->streamed_layers, 4u);
  EXPECT_EQ(half->streamed_bytes, 40 * kMiB);
  EXPECT_TRUE(half->streamed_by_link);
  EXPECT_FALSE(half->needs_drive()) << "host memory has all of them";
  EXPECT_EQ(half->dense_share, 0.5);
  EXPECT_EQ(half->device_experts, 6) << "four layers less, and two places";
  EXPECT_EQ(half->host_experts, all->host_experts);
  EXPECT_THAT(half->tiers[0].parts[0].what, HasSubstr("4 of 8 layers stay, each step reads 40.0 MiB of the others"));
  m.dense_share = 1, m.device_bytes = 60 * kMiB;
  EXPECT_GT(place(n, m)->streamed_layers, 0u) << "by itself";
  m.device_bytes = 50 * kMiB;  // 20 of no layer, two places, an expert
  EXPECT_THAT(place(n, m).status().message(), HasSubstr("device memory of 50.0 MiB is too small; the least is 51MiB"));
}

TEST(Placement, DenseWeightsOfAGpuTakeTurnsWhereTheyMayAndDoNotFit) {
  Needs n = needs();
  n.dense_layer_bytes = std::vector<uint64_t>(8, 10 * kMiB);
  Memories m{Device::kWhole, 10000 * kMiB, 10000 * kMiB, {}};
  const auto all = place(n, m);
  ASSERT_TRUE(all.is_ok()) << all.status().message();
  m.counts_dense = true;
  EXPECT_EQ(place(n, m)->device_experts, all->device_experts);
  EXPECT_EQ(place(n, m)->tiers[0].used_bytes(), all->tiers[0].used_bytes()) << "where all fit nothing is different";
  EXPECT_FALSE(place(n, m)->streamed_by_link);
  m.dense_share = 0.5;
  EXPECT_EQ(place(n, m)->streamed_layers, 4u);
  EXPECT_TRUE(place(n, m)->streamed_by_link);
  m.dense_share = 1, m.device_bytes = 180 * kMiB;  // refused without, as below
  const auto some = place(n, m);
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  EXPECT_GT(some->streamed_layers, 0u);
  EXPECT_LE(some->tiers[0].used_bytes(), m.device_bytes);
  m.counts_dense = false;
  EXPECT_THAT(place(n, m).status().message(), HasSubstr("let dense weights take turns (dense=counted in --device)"));
}

TEST(Placement, WhatIsTooSmallIsRefusedWithTheLeastThatWouldDo) {
  struct Case {
    Memories memories;
    const char *memory, *least;
  };
  const Case cases[] = {
      {{.host_bytes = 209 * kMiB}, "host memory", "210MiB"},
      {{Device::kHost, 0, 10000 * kMiB, 109 * kMiB}, "--dram", "110MiB"},
      {{Device::kWhole, 180 * kMiB, 10000 * kMiB, {}}, "device memory", "181MiB"},
      {{Device::kExpertsOnly, 10 * kMiB, 10000 * kMiB, {}}, "device memory", "11MiB"},
  };
  for (const Case& c : cases) {
    const auto refused = place(needs(), c.memories);
    ASSERT_FALSE(refused.is_ok()) << c.memory;
    EXPECT_EQ(refused.status().code(), Code::kExhausted);
    EXPECT_THAT(refused.status().message(), HasSubstr(std::string(c.memory) + " of "));
    EXPECT_THAT(refused.status().message(), HasSubstr("the least is " + std::string(c.least)));
  }
}

TEST(Placement, TheLeastThatIsNamedFits) {
  EXPECT_TRUE(place(needs(), {.host_bytes = 210 * kMiB}).is_ok());
  EXPECT_TRUE(place(needs(), {Device::kHost, 0, 10000 * kMiB, 110 * kMiB}).is_ok());
  EXPECT_TRUE(place(needs(), {Device::kWhole, 181 * kMiB, 10000 * kMiB, {}}).is_ok());
  EXPECT_TRUE(place(needs(), {Device::kExpertsOnly, 11 * kMiB, 10000 * kMiB, {}}).is_ok());
}

TEST(Placement, AnArenaLargerThanTheHost) {
  const auto refused = place(needs(), {Device::kHost, 0, 300 * kMiB, 250 * kMiB});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("at most --dram 200MiB fits"));
}

TEST(Placement, NothingIsTakenTwiceOrBeyondTheMemory) {
  std::mt19937_64 random(5);
  const auto up_to = [&](uint64_t mib) { return random() % (mib * kMiB); };
  int placed_count = 0;
  for (int i = 0; i < 5000; ++i) {
    const Needs n{up_to(200), up_to(200), up_to(50), up_to(50), 1 + up_to(20), 1 + up_to(20),
                  static_cast<int64_t>(1 + random() % 500)};
    Memories m{static_cast<Device>(random() % 3), up_to(2000), up_to(4000), {}};
    if (random() % 2 == 0) m.arena_bytes = up_to(3000);
    const auto placed = place(n, m);
    if (!placed.is_ok()) continue;
    ++placed_count;
    for (const Tier& tier : placed->tiers)
      if (tier.capacity_bytes > 0) EXPECT_LE(tier.used_bytes(), tier.capacity_bytes) << tier.name << ", seed 5, " << i;
    if (m.arena_bytes) EXPECT_LE(placed->arena_bytes, *m.arena_bytes);
    EXPECT_LE(placed->host_share(), 1);
    EXPECT_GE(placed->host_experts, 1);
  }
  EXPECT_GT(placed_count, 1000);
}

}  // namespace
}  // namespace moestro::planner

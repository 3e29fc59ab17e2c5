// A GPU's memory shared out: what experts get, and every refusal.

#include "services/worker/cuda/device_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace moestro::cuda {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

/// mixtral-12gb's proportions.
DeviceNeeds model() {
  return {.dense_bytes = 2 * kGiB,
          .kv_bytes = kGiB,
          .workspace_bytes = 512 * kMiB,
          .expert_bytes = 44 * kMiB,
          .experts = 224,
          .slots_min = 8};
}
DeviceMemory h200(uint64_t free_bytes = 138 * kGiB) { return {"NVIDIA H200", free_bytes, 139 * kGiB, 0}; }

uint64_t ours(const DeviceBudget& budget) {
  return std::accumulate(budget.lines.begin(), budget.lines.end() - 1, uint64_t{0},
                         [](uint64_t sum, const BudgetLine& line) { return sum + line.bytes; });
}

TEST(DeviceBudget, ABigCardHoldsEveryExpert) {
  const auto budget = share_out(model(), h200());
  ASSERT_TRUE(budget.is_ok()) << budget.status().message();
  EXPECT_EQ(budget->slots, 224u);
  EXPECT_TRUE(budget->all_resident);
  EXPECT_EQ(ours(*budget) + budget->lines.back().bytes, 137 * kGiB) << "a margin of 1 GiB is left to the driver";
}

TEST(DeviceBudget, ALimitCountsEverythingOfOurs) {
  DeviceMemory memory = h200();
  memory.vram_bytes = 6 * kGiB;
  const auto budget = share_out(model(), memory);
  ASSERT_TRUE(budget.is_ok()) << budget.status().message();
  EXPECT_EQ(budget->slots, (6 * kGiB - 3584 * kMiB) / (44 * kMiB));
  EXPECT_FALSE(budget->all_resident);
  EXPECT_LE(ours(*budget), 6 * kGiB);
  EXPECT_LT(budget->lines.back().bytes, 44 * kMiB) << "what is left holds no further expert";
}

TEST(DeviceBudget, ALimitAboveWhatIsFreeDoesNotReachIntoTheDriversMargin) {
  DeviceMemory memory = h200(8 * kGiB);
  memory.vram_bytes = 8 * kGiB;
  const auto budget = share_out(model(), memory);
  ASSERT_TRUE(budget.is_ok()) << budget.status().message();
  EXPECT_LE(ours(*budget), 7 * kGiB);
}

TEST(DeviceBudget, WhatJustFitsFitsAndAByteLessDoesNot) {
  const DeviceNeeds needs = model();
  const uint64_t least = 3584 * kMiB + 8 * 44 * kMiB;
  DeviceMemory memory = h200();
  memory.vram_bytes = least;
  ASSERT_TRUE(share_out(needs, memory).is_ok());
  EXPECT_EQ(share_out(needs, memory)->slots, 8u);
  EXPECT_EQ(share_out(needs, memory)->lines.back().bytes, 0u);
  memory.vram_bytes = least - 1;
  EXPECT_FALSE(share_out(needs, memory).is_ok());
  memory.vram_bytes = 0;
  memory.free_bytes = least + driver_margin(memory.total_bytes);
  EXPECT_EQ(share_out(needs, memory)->slots, 8u);
  memory.free_bytes -= 1;
  EXPECT_FALSE(share_out(needs, memory).is_ok());
}

TEST(DeviceBudget, ALimitThatIsTooLowNamesTheLeastThatWouldDo) {
  DeviceMemory memory = h200();
  memory.vram_bytes = 3 * kGiB;
  const Status refused = share_out(model(), memory).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.message(),
            "vram=3936MiB is the least for this model, vram=3GiB is given: dense weights 2.00 GiB, KV cache 1.00 GiB, "
            "workspace 512 MiB and 8 experts 352 MiB; "
            "raise it, or take a pack with --dense int8, or fewer --kv-tokens (or --kv-dtype int8), or a smaller "
            "--step-tokens");
  memory.vram_bytes = 3936 * kMiB;
  EXPECT_TRUE(share_out(model(), memory).is_ok()) << "what it names does";
}

TEST(DeviceBudget, MemoryThatOthersHaveMayComeBack) {
  const Status refused = share_out(model(), h200(2 * kGiB)).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("3.84 GiB of device memory are the least for this model"));
  EXPECT_THAT(refused.message(), HasSubstr("2.00 GiB of the NVIDIA H200's 139 GiB are free"));
  EXPECT_THAT(refused.message(), HasSubstr("other processes have the rest (nvidia-smi names them)"));
  DeviceMemory limited = h200(2 * kGiB);
  limited.vram_bytes = 3 * kGiB;
  EXPECT_EQ(share_out(model(), limited).status().code(), Code::kUnavailable)
      << "raising the limit alone would not help";
}

TEST(DeviceBudget, ACardThatIsTooSmallWillNotGrow) {
  const Status refused = share_out(model(), {"NVIDIA A2000", 3 * kGiB, 4 * kGiB - 100 * kMiB, 0}).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("or a larger card"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("other processes")));
}

TEST(DeviceBudget, WhatIsLargestIsToBeLoweredFirst) {
  DeviceNeeds needs = model();
  needs.kv_bytes = 200 * kGiB;
  needs.workspace_bytes = 0;
  EXPECT_THAT(share_out(needs, h200()).status().message(),
              HasSubstr("take fewer --kv-tokens (or --kv-dtype int8), or a pack with --dense int8, or a larger card"));
  needs = {.expert_bytes = 200 * kGiB, .experts = 1};
  EXPECT_THAT(share_out(needs, h200()).status().message(), HasSubstr("take a pack with --experts int8"));
}

/// Eight layers of 200 MiB in the 2 GiB of dense weights.
DeviceNeeds layered() {
  DeviceNeeds needs = model();
  needs.dense_layers.assign(8, 200 * kMiB);
  needs.experts_at_once = 4;
  return needs;
}

TEST(DeviceBudget, LayersTakeTurnsWhereDenseWeightsDoNotFit) {
  const DeviceNeeds needs = layered();
  DeviceMemory memory = h200();
  memory.dense_in_turn = true;
  const auto all = share_out(needs, memory);
  ASSERT_TRUE(all.is_ok()) << all.status().message();
  EXPECT_FALSE(all->dense.streams()) << "where all fit nothing is different";
  EXPECT_EQ(all->table(), share_out(model(), h200())->table());
  memory.vram_bytes = 3584 * kMiB;  // none of it for experts, if all dense weights stayed
  const auto some = share_out(needs, memory);
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  EXPECT_EQ(some->dense.places, 2u);
  EXPECT_EQ(some->dense.place_bytes, 200 * kMiB);
  EXPECT_EQ(some->lines.front().bytes, 2 * kGiB - some->dense.streamed_bytes + 400 * kMiB);
  EXPECT_EQ(some->lines.front().what,
            "dense weights of " + std::to_string(8 - some->dense.streamed_layers) + "/8 layers");
  EXPECT_GE(some->slots, 8u);
  EXPECT_LE(ours(*some), memory.vram_bytes);
}

TEST(DeviceBudget, AShareOfLayersCanBeAskedFor) {
  const DeviceNeeds needs = layered();
  DeviceMemory memory = h200();
  memory.dense_in_turn = true, memory.dense_share = 0.5;
  const auto half = share_out(needs, memory);
  ASSERT_TRUE(half.is_ok()) << half.status().message();
  EXPECT_EQ(half->dense.streamed_layers, 4u);
  EXPECT_TRUE(half->all_resident);
}

TEST(DeviceBudget, TheLeastInTurnIsNamedAndDoes) {
  DeviceNeeds needs = layered();
  needs.slots_min = 1;
  DeviceMemory memory = h200();
  memory.vram_bytes = 2 * kGiB;
  EXPECT_THAT(share_out(needs, memory).status().message(),
              HasSubstr("or dense=counted in --device, so that layers' dense weights take turns there"));
  memory.dense_in_turn = true;
  const Status refused = share_out(needs, memory).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("vram=2428MiB is the least for this model, vram=2GiB is given: dense "
                                           "weights, whose layers then take turns, 848 MiB, KV cache 1.00 GiB"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("dense=counted")));
  memory.vram_bytes = 2428 * kMiB;
  const auto least = share_out(needs, memory);
  ASSERT_TRUE(least.is_ok()) << least.status().message();
  EXPECT_EQ(least->slots, 1u);
  EXPECT_EQ(least->dense.streamed_layers, 8u);
  needs.slots_min = 8;
  EXPECT_FALSE(share_out(needs, memory).is_ok());
  memory.vram_bytes += 7 * 44 * kMiB;
  ASSERT_TRUE(share_out(needs, memory).is_ok());
  EXPECT_EQ(share_out(needs, memory)->slots, 8u);
}

TEST(DeviceBudget, OddModels) {
  DeviceNeeds needs = model();
  needs.experts = 0, needs.expert_bytes = 0;
  const auto dense = share_out(needs, h200());
  ASSERT_TRUE(dense.is_ok()) << dense.status().message();
  EXPECT_EQ(dense->slots, 0u);
  EXPECT_TRUE(dense->all_resident) << "a model without experts";
  needs = model();
  needs.experts = 3;
  EXPECT_EQ(share_out(needs, h200())->slots, 3u) << "never more slots than experts, also where 8 are the least";
  EXPECT_EQ(share_out({}, {"none", 0, 0, 0})->slots, 0u);
}

TEST(DeviceBudget, NumbersThatOverflowAreRefusedNotWrapped) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  DeviceNeeds needs = model();
  needs.kv_bytes = kMax;
  EXPECT_EQ(share_out(needs, h200()).status().code(), Code::kInvalidArgument);
  needs = model();
  needs.expert_bytes = kMax / 2;
  EXPECT_EQ(share_out(needs, h200()).status().code(), Code::kInvalidArgument);
  needs = model();
  needs.dense_bytes = needs.workspace_bytes = kMax - 1;
  EXPECT_FALSE(share_out(needs, h200()).is_ok());
}

TEST(DeviceBudget, TheMarginIsPartOfTheCardWithinBounds) {
  EXPECT_EQ(driver_margin(0), 128 * kMiB);
  EXPECT_EQ(driver_margin(8 * kGiB), 128 * kMiB);
  EXPECT_EQ(driver_margin(40 * kGiB), 40 * kGiB / 100);
  EXPECT_EQ(driver_margin(139 * kGiB), kGiB);
}

TEST(DeviceBudget, TheTableHasALineEach) {
  DeviceMemory memory = h200();
  memory.vram_bytes = 7 * kGiB;
  const std::vector<std::string> lines = {
      "dense weights                  2.00 GiB  28.6 %", "KV cache                       1.00 GiB  14.3 %",
      "workspace                       512 MiB   7.1 %", "81 of 224 experts              3.48 GiB  49.7 %",
      "left                           20.0 MiB   0.3 %"};
  EXPECT_EQ(share_out(model(), memory)->table(), lines);
}

}  // namespace
}  // namespace moestro::cuda

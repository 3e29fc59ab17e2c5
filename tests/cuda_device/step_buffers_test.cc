// For how many tokens of a step a GPU's worker has buffers: by what they take from its experts.

#include "services/worker/cuda/step_buffers.h"

#include "tests/planner/planned_models.h"

namespace moestro::cuda {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

struct Card {
  uint64_t bytes = 0, row_bytes = 400'000;
  int64_t kv_tokens = 8192;
  config::CudaDeviceSpec spec = {};

  int64_t chosen() const {
    const planner::ModelSizes sizes = planner::mixtral_sizes();
    const auto needs = [&](int64_t tokens) -> Result<DeviceNeeds> {
      return DeviceNeeds{.dense_bytes = sizes.dense_bytes,
                         .dense_layers = sizes.dense_layer_bytes,
                         .kv_bytes = sizes.kv_bytes(1, kv_tokens),
                         .workspace_bytes = row_bytes * static_cast<uint64_t>(tokens),
                         .expert_bytes = sizes.expert_bytes,
                         .experts = static_cast<uint64_t>(sizes.all_experts())};
    };
    const auto size = choose_step_buffers(sizes, kv_tokens, bytes, needs, spec);
    return size.is_ok() ? size->tokens : -1;
  }
};

TEST(StepBuffers, AreLargeWhereFewExpertsFit) {
  EXPECT_GE(Card{.bytes = 24 * kGiB}.chosen(), 2048);
  EXPECT_EQ(Card{.bytes = 140 * kGiB}.chosen(), kUsualStepTokens) << "all of them fit";
}

TEST(StepBuffers, LeaveExpertsTheirRoom) {
  const Card roomy{.bytes = 24 * kGiB};
  const Card wide{.bytes = 24 * kGiB, .row_bytes = 4'000'000};
  EXPECT_LT(wide.chosen(), roomy.chosen()) << "4096 rows would take 16 GB";
}

TEST(StepBuffers, AreChosenWhereDenseWeightsTakeTurns) {
  const planner::ModelSizes sizes = planner::mixtral_sizes();
  Card card{.bytes = sizes.dense_bytes, .row_bytes = 100'000};
  EXPECT_EQ(card.chosen(), -1) << "all of them do not fit";
  card.spec.dense_in_turn = true;
  EXPECT_GE(card.chosen(), kUsualStepTokens);
}

TEST(StepBuffers, AreNoLargerThanTheKvCache) {
  const int64_t chosen = Card{.bytes = 24 * kGiB, .kv_tokens = 1280}.chosen();
  EXPECT_LE(chosen, 1024);
}

TEST(StepBuffers, LeaveALargeKvCacheItsRoom) {
  const planner::ModelSizes sizes = planner::mixtral_sizes();
  Card card{.kv_tokens = 600'000};
  card.bytes = sizes.dense_bytes + sizes.kv_bytes(1, card.kv_tokens) + 512 * card.row_bytes + 3 * sizes.expert_bytes;
  const int64_t chosen = card.chosen();
  ASSERT_GT(chosen, 0);
  EXPECT_LE(static_cast<uint64_t>(chosen - 512) * card.row_bytes, 2 * sizes.expert_bytes) << "an expert needs room";
}

TEST(StepBuffers, WhatDoesNotFitIsSaidByTheDevice) {
  EXPECT_EQ(Card{.bytes = kGiB}.chosen(), -1);
}

}  // namespace
}  // namespace moestro::cuda

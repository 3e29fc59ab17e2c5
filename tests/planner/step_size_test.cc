// How many tokens a step may have: where larger steps pay, and what stands against them.

#include "common/planner/step_size.h"

#include "common/planner/sheet_rates.h"
#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

constexpr double kGB = 1e9;
constexpr uint64_t kRowBytes = 262'144;  ///< of buffers, for each token of a step

struct Box {
  Memories memories;
  Rates rates;
  uint64_t row_bytes = kRowBytes;
  Workload workload{.prompt = 512, .generate = 128, .sequences = 12};

  Result<PlanInput> input(int64_t tokens) const {
    PlanInput in;
    in.sizes = mixtral_sizes(), in.workload = workload, in.memories = memories, in.rates = rates;
    in.workload.step_tokens = tokens, in.workload.steps_grow = false;
    in.needs = {.dense_bytes = in.sizes.dense_bytes,
                .workspace_bytes = row_bytes * static_cast<uint64_t>(tokens),
                .expert_bytes = in.sizes.expert_bytes,
                .slot_bytes = in.sizes.expert_bytes,
                .experts = in.sizes.all_experts()};
    return in;
  }
  StepSize size() const {
    const auto size = choose_step_size([&](int64_t tokens) { return input(tokens); });
    EXPECT_TRUE(size.is_ok()) << size.status().message();
    return size.is_ok() ? *size : StepSize{};
  }
  double step_seconds(int64_t tokens) const {
    const auto option = forecast_arrangement(*input(tokens), {.rows = workload.sequences});
    EXPECT_TRUE(option.is_ok()) << option.status().message();
    return option->prompt.forecast.seconds;
  }
};

/// A card that holds a share of the experts.
Box card(double share, double link_bytes_per_s) {
  const ModelSizes sizes = mixtral_sizes();
  const auto experts = static_cast<uint64_t>(share * static_cast<double>(sizes.experts_bytes()));
  Box box;
  box.memories = {.device = Memories::Device::kWhole,
                  .device_bytes = sizes.dense_bytes + experts + (uint64_t{4} << 30),
                  .host_bytes = uint64_t{1} << 40};
  box.rates = rates_of(2e12, 400e12);
  box.rates.link_bytes_per_s = link_bytes_per_s;
  return box;
}

TEST(StepSize, GrowsWhereEveryStepBringsNearlyAllExperts) {
  const Box box = card(0.25, 50 * kGB);
  const StepSize size = box.size();
  EXPECT_EQ(size.tokens, step_sizes().back());
  EXPECT_GT(size.prompt_tokens_per_s, 4 * size.usual_prompt_tokens_per_s);
  EXPECT_LE(box.step_seconds(size.tokens), 2 * box.step_seconds(step_sizes().front())) << "others wait for a step";
}

TEST(StepSize, GrowsOnACpuWhoseExpertsComeFromADrive) {
  Box box;
  box.memories.host_bytes = uint64_t{64} << 30;
  box.rates = rates_of(80e9, 1.6e12);
  box.rates.drive_bytes_per_s = 1e9;
  EXPECT_GT(box.size().tokens, step_sizes().front());
}

TEST(StepSize, StaysWhereEverythingIsThere) {
  const StepSize size = card(1.01, 50 * kGB).size();
  EXPECT_EQ(size.tokens, step_sizes().front());
  EXPECT_EQ(size.prompt_tokens_per_s, 0) << "nothing had to be forecast";
  Box cpu;
  cpu.memories.host_bytes = uint64_t{256} << 30;
  cpu.rates = rates_of(80e9, 1.6e12);  // and no drive is asked for
  EXPECT_EQ(cpu.size().tokens, step_sizes().front());
}

TEST(StepSize, StaysWhereComputingTakesLongerThanCopies) {
  Box box = card(0.25, 50 * kGB);
  box.rates = rates_of(2e12, 0.5e12);
  box.rates.link_bytes_per_s = 50 * kGB;
  EXPECT_EQ(box.size().tokens, step_sizes().front());
}

/// Each size doubles the buffers, which take slots from experts.
TEST(StepSize, BuffersThatTakeRoomFromExpertsArePaidFor) {
  Box box = card(0.25, 50 * kGB);
  const int64_t cheap = box.size().tokens;
  box.row_bytes = 3 << 20;
  const int64_t dear = box.size().tokens;
  EXPECT_LT(dear, cheap);
  box.memories.device_bytes = mixtral_sizes().dense_bytes + (uint64_t{4} << 30);
  box.row_bytes = 4 << 20;
  EXPECT_EQ(box.size().tokens, step_sizes().front()) << "no larger buffers fit";
}

TEST(StepSize, NoStepIsLargerThanThePromptsThatRunAtOnce) {
  Box box = card(0.25, 50 * kGB);
  box.workload.sequences = 4;
  EXPECT_EQ(box.size().tokens, 2048);
}

TEST(StepSize, WhatDoesNotFitAtAllIsAnError) {
  Box box = card(0.25, 50 * kGB);
  box.memories.device_bytes = 1 << 30;
  const auto size = choose_step_size([&](int64_t tokens) { return box.input(tokens); });
  EXPECT_EQ(size.status().code(), Code::kExhausted);
}

/// What is decided before anything is measured.
TEST(StepSize, TypicalRatesChooseLargerStepsForASmallShareOnly) {
  Box box = card(0.25, 1);
  box.rates = typical_rates(mixtral_sizes(), Memories::Device::kWhole, 1);
  EXPECT_GE(box.size().tokens, 2048);
  box = card(1.01, 1);
  box.rates = typical_rates(mixtral_sizes(), Memories::Device::kWhole, 1);
  EXPECT_EQ(box.size().tokens, step_sizes().front());
}

}  // namespace
}  // namespace moestro::planner

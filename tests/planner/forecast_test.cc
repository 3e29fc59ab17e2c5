// Forecasts of a step against figures computed by hand.

#include "common/planner/forecast.h"

#include <gtest/gtest.h>

#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

constexpr double kBandwidth = 100e9, kOperations = 1e12;
constexpr double kAttention = 4096.0 * 10240, kExpert = 3.0 * 4096 * 14336, kHead = 32000.0 * 4096;

TEST(ForecastStep, OneTokenReadsItsWeights) {
  const Step step{.rows = 1, .logit_rows = 1, .context = 1000};
  const StepForecast f = forecast_step(mixtral_sizes(), rates_of(kBandwidth, kOperations), {}, step);
  EXPECT_DOUBLE_EQ(f.experts_used, 2);
  const double attention = 2 * kAttention / kBandwidth + 1000 * 4096 / kBandwidth + 4 * 8 * 4096 / kBandwidth;
  EXPECT_NEAR(f.attention_seconds, 32 * attention, 1e-9);
  EXPECT_NEAR(f.expert_seconds, 32 * 2 * 2 * kExpert / kBandwidth, 1e-9);
  EXPECT_NEAR(f.head_seconds, 2 * kHead / kBandwidth, 1e-9);
  EXPECT_NEAR(f.seconds, f.attention_seconds + f.expert_seconds + f.head_seconds, 1e-9);
  EXPECT_EQ(f.bound(), Lane::kCompute);
  EXPECT_TRUE(f.reads_bound());
  EXPECT_EQ(f.link_bytes + f.drive_bytes, 0);
}

TEST(ForecastStep, APromptComputes) {
  const Step step{.rows = 512, .logit_rows = 1, .context = 256.5, .prompt = true};
  const StepForecast f = forecast_step(mixtral_sizes(), rates_of(kBandwidth, kOperations), {}, step);
  EXPECT_NEAR(f.experts_used, 8, 1e-9);
  EXPECT_NEAR(f.expert_seconds, 32 * 2 * 512 * 2 * kExpert / kOperations, 1e-4) << "each row has two experts";
  EXPECT_NEAR(f.attention_seconds,
              32 * (2 * 512 * kAttention + 512 * 256.5 * 4 * 4096 + 2 * 512 * 8 * 4096) / kOperations, 1e-4);
  EXPECT_FALSE(f.reads_bound());
}

TEST(ForecastStep, MissingExpertsComeOverTheLink) {
  Rates rates = rates_of(1e15, 1e18);  // computing takes no time
  rates.link_bytes_per_s = 10e9, rates.link_latency_s = 1e-3;
  const Residency at{.device_memory = true, .device_share = 0.25, .prefetch = false};
  const StepForecast f = forecast_step(mixtral_sizes(), rates, at, {.rows = 1, .logit_rows = 1, .context = 1});
  const double each = 2 * kExpert / 10e9 + 1e-3;
  EXPECT_NEAR(f.link_seconds, 32 * 1.5 * each, 1e-6);
  EXPECT_NEAR(f.seconds, f.link_seconds, 1e-3);
  EXPECT_NEAR(f.link_bytes, 32 * 1.5 * 2 * kExpert, 1);
  EXPECT_EQ(f.drive_bytes, 0);
  EXPECT_EQ(f.bound(), Lane::kLink);
  EXPECT_NEAR(f.idle(Lane::kLink), 0, 1e-3);
}

TEST(ForecastStep, WhatHostMemoryLacksComesFromTheDriveFirst) {
  Rates rates = rates_of(1e15, 1e18);
  rates.link_bytes_per_s = 10e9, rates.drive_bytes_per_s = 1e9;
  const Residency at{.device_memory = true, .device_share = 0.5, .host_share = 0.5, .prefetch = false};
  const StepForecast f = forecast_step(mixtral_sizes(), rates, at, {.rows = 1, .logit_rows = 1, .context = 1});
  EXPECT_NEAR(f.link_seconds, 32 * 2 * kExpert / 10e9, 1e-6);
  EXPECT_NEAR(f.drive_seconds, 32 * 0.5 * 2 * kExpert / 1e9, 1e-6);
  EXPECT_EQ(f.bound(), Lane::kDrive);
  EXPECT_NEAR(f.idle(Lane::kLink), 0.8 + 0.2 / 6, 2e-2) << "the drive's last bytes still cross the link";
  EXPECT_GT(f.seconds, f.drive_seconds) << "the last expert crosses the link after the drive has it";
}

TEST(ForecastStep, PrefetchHidesWhatIsForeseen) {
  Rates rates = rates_of(kBandwidth, kOperations);
  rates.link_bytes_per_s = 40e9;
  Residency at{.device_memory = true, .device_share = 0.5, .foreseen = 1.0};
  const Step step{.rows = 1, .logit_rows = 1, .context = 1};
  const auto seconds = [&] { return forecast_step(mixtral_sizes(), rates, at, step).seconds; };
  const StepForecast all = forecast_step(mixtral_sizes(), rates, at, step);
  EXPECT_DOUBLE_EQ(all.seconds, all.least_seconds);
  at.foreseen = 0.0;
  const StepForecast none = forecast_step(mixtral_sizes(), rates, at, step);
  EXPECT_DOUBLE_EQ(none.seconds, none.most_seconds);
  EXPECT_GT(none.seconds, 1.1 * all.seconds);
  at.foreseen = 1.0, at.prefetch = false;
  EXPECT_DOUBLE_EQ(seconds(), none.seconds);
  at.prefetch = true, at.foreseen = {};
  EXPECT_GT(none.seconds, seconds()) << "two of eight are certain";
  EXPECT_GT(seconds(), all.seconds);
}

TEST(ForecastStep, AWindowBoundsWhatIsRead) {
  model::ModelDescription model = mixtral_8x7b();
  for (model::LayerSpec& layer : model.spec.layers) layer.attention.sliding_window = 100;
  const auto windowed = model_sizes(model, {.kv = DType::kBF16});
  ASSERT_TRUE(windowed.is_ok());
  const Rates rates = rates_of(kBandwidth, kOperations);
  const StepForecast at_100 = forecast_step(*windowed, rates, {}, {.context = 100});
  EXPECT_DOUBLE_EQ(forecast_step(*windowed, rates, {}, {.context = 20000}).seconds, at_100.seconds);
  EXPECT_GT(forecast_step(mixtral_sizes(), rates, {}, {.context = 20000}).seconds, at_100.seconds);
}

TEST(ForecastStep, AnEmulatedDeviceTakesAtLeastItsFloor) {
  Rates rates = rates_of(1e15, 1e18);
  rates.floor_s = 1e-3;
  const StepForecast f = forecast_step(mixtral_sizes(), rates, {}, {.rows = 1, .logit_rows = 1, .context = 1});
  EXPECT_NEAR(f.seconds, 32 * 3e-3, 1e-4) << "an attention and two experts in each layer";
}

}  // namespace
}  // namespace moestro::planner

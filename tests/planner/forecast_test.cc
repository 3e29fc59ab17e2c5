// Forecasts of a step against figures computed by hand.

#include "common/planner/forecast.h"

#include <gtest/gtest.h>

#include "common/planner/arrangement.h"
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

/// With a second for each operation of a product and of attention, and for reading nothing.
TEST(ForecastStep, SourcesCrossTheEncoderAndTargetsTheDecoder) {
  const ModelSizes sizes = two_stacks();
  const Rates rates = rates_of(1e30, 1);
  const double projection = 64 * 128, mlp = 2 * 64 * 128, router = 64 * 4, pair = 4 * 128;
  const double others = 2 * mlp + 2 * router + 2 * mlp;  // two dense layers; two with one expert for each row
  const Step source{.rows = 30, .logit_rows = 0, .context = 30, .prompt = true};
  const StepForecast encoded = forecast_step(sizes, rates, {}, source);
  const double memory = 4 * 2 * projection;  // keys and values for each layer of the decoder
  EXPECT_NEAR(encoded.seconds, 2 * 30 * (4 * 4 * projection + others + memory) + 4 * 30 * 30 * pair, 1);
  EXPECT_EQ(encoded.head_seconds, 0);
  EXPECT_NEAR(encoded.seconds, encoded.attention_seconds + encoded.expert_seconds, 1);

  const Step target{.rows = 3, .logit_rows = 3, .context = 5, .memory = 30};
  const StepForecast decoded = forecast_step(sizes, rates, {}, target);
  EXPECT_NEAR(decoded.head_seconds, 2 * 3 * 64 * 1000, 1);
  EXPECT_NEAR(decoded.seconds - decoded.head_seconds,
              2 * 3 * (4 * 6 * projection + others) + 4 * 3 * (5 + 30) * pair, 1);
}

TEST(ForecastStep, ATargetReadsItsOwnKeysAndThoseOfTheMemory) {
  const ModelSizes sizes = two_stacks();
  Rates rates = rates_of(1e30, 1e30);
  rates.kv_bytes_per_s = 1;
  const Step target{.rows = 3, .logit_rows = 3, .context = 5, .memory = 30};
  EXPECT_NEAR(forecast_step(sizes, rates, {}, target).seconds, 3 * (5 + 30) * sizes.kv_bytes_per_token(), 1e-6);
  EXPECT_EQ(sizes.kv_bytes_per_token(), 4 * 2 * 128 * 4) << "an encoder keeps nothing";
}

TEST(ForecastStep, SourcesAreReadAsAWhole) {
  const Workload w{.prompt = 200, .generate = 9, .sequences = 8, .step_tokens = 512, .sources = true};
  EXPECT_EQ(w.kv_positions(), 208 + 1 + 9) << "a memory has blocks of its own";
  const Arrangement all{.rows = 8};
  const PhaseSteps sources = prompt_steps(w, all), targets = decode_steps(w, all);
  EXPECT_EQ(sources.all.rows, 400) << "two of them fit a step";
  EXPECT_EQ(sources.steps, 4);
  EXPECT_EQ(sources.all.context, 200) << "each position sees all others";
  EXPECT_EQ(sources.all.logit_rows, 0);
  EXPECT_EQ(targets.all.context, 5) << "from the start token on";
  EXPECT_EQ(targets.all.memory, 200);
  EXPECT_EQ(targets.steps, 9);
}

}  // namespace
}  // namespace moestro::planner

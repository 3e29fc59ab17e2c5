// What a source of weights is told ahead: which experts, when they are due, and when it is told nothing.

#include "services/worker/device/host_outlook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kernels/cuda/emulated/functions.h"
#include "tests/device/recording_source.h"
#include "tests/device/wait_by_asking.h"

namespace moestro::device::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kLayers = 4, kExperts = 8;

/// Copies to the emulated GPU end only while it is open.
std::atomic<bool> copies_end{true};

class HostOutlookTest : public ::testing::Test {
 protected:
  ~HostOutlookTest() override {
    copies_end = true;
    outlook_.reset(), device_.reset();
    if (compute_ != nullptr) (void)cuda_.end_stream(compute_);
  }
  void open(int32_t layers = kLayers, int32_t experts = kExperts, const DeviceExperts* above = nullptr) {
    source_ = std::make_unique<RecordingSource>(layers, experts);
    auto made = HostOutlook::create(*source_, DType::kF32, above, clock_);
    ASSERT_TRUE(made) << made.status().message();
    outlook_ = std::move(*made);
    forecast_ = prediction::Forecast(layers, experts);
  }
  void routed(uint32_t layer, std::vector<tier::Key> experts) {
    std::vector<tier::DeviceTier::Wanted> wanted;
    for (const tier::Key e : experts) wanted.push_back({layer * static_cast<tier::Key>(outlook_->experts()) + e, 1});
    last_complete_ = outlook_->routed(MoeLayerId(layer), wanted);
  }
  /// The blobs of the last outlook, the most urgent first.
  std::vector<uint32_t> blobs() const {
    std::vector<uint32_t> all;
    for (const store::Foreseen& f : source_->told.back().experts) all.push_back(f.blob);
    return all;
  }
  static MoestroCudaResult query(MoestroCudaEvent event) {
    return copies_end ? kernels::cuda::emulated::functions().query_event(event) : MOESTRO_CUDA_NOT_READY;
  }
  /// A GPU with a slot for every expert. Only GPUs are filled in idle time.
  void make_gpu() {
    cuda_.query_event = query;
    cuda_.wait_event = wait_by_asking<query>;
    ASSERT_EQ(cuda_.make_stream(0, &compute_), 0);
    const CudaSlots slots{&cuda_, 0, compute_, kLayers * kExperts * RecordingSource::kExpertBytes,
                          RecordingSource::kExpertBytes};
    make_device({.cuda = slots, .precision = DType::kF32});
  }
  void make_device(const DeviceExpertsOptions& options) {
    host_ = std::make_unique<RecordingSource>(kLayers, kExperts);
    auto made = DeviceExperts::create(*host_, options, steady_);
    ASSERT_TRUE(made) << made.status().message();
    device_ = std::move(*made);
  }
  uint32_t blob(int32_t layer, int32_t expert) const { return source_->expert(layer, expert); }
  const RecordingSource::Told& told() const { return source_->told.back(); }

  ManualClock clock_;
  const SteadyClock steady_;
  MoestroCudaFunctions cuda_ = kernels::cuda::emulated::functions();
  MoestroCudaStream compute_ = nullptr;
  std::unique_ptr<RecordingSource> host_;  ///< of device_
  std::unique_ptr<DeviceExperts> device_;
  std::unique_ptr<RecordingSource> source_;
  std::unique_ptr<HostOutlook> outlook_;
  prediction::Forecast forecast_;
  bool last_complete_ = true;
};

TEST_F(HostOutlookTest, TheMostUrgentComeFirstByProbabilityTimesProximity) {
  open();
  outlook_->begin_step(PlanId(1), false);
  forecast_.row(3)[1] = 0.9F;  // 0.9 * 1/4
  forecast_.row(0)[2] = 0.4F;  // 0.4 * 1
  forecast_.row(1)[5] = 0.8F;  // 0.8 * 3/4
  outlook_->forecast(-1, forecast_);
  ASSERT_EQ(source_->told.size(), 1u);
  EXPECT_THAT(blobs(), ElementsAre(blob(1, 5), blob(0, 2), blob(3, 1)));
  EXPECT_FLOAT_EQ(told().experts.front().probability, 0.8F) << "the probability itself, whatever the order is by";
  EXPECT_FALSE(told().scan);
}

TEST_F(HostOutlookTest, WhatIsBelowHalfOfTheFloorIsLeftOut) {
  open();
  outlook_->begin_step(PlanId(1), false);
  forecast_.row(0)[0] = 0.13F;
  forecast_.row(0)[1] = 0.12F;
  outlook_->forecast(-1, forecast_);
  EXPECT_THAT(blobs(), ElementsAre(blob(0, 0)));
}

TEST_F(HostOutlookTest, AnOutlookHasTheMostUrgentAndNoMore) {
  open(4, 128);
  outlook_->begin_step(PlanId(1), false);
  for (int32_t layer = 0; layer < 4; ++layer) std::ranges::fill(forecast_.row(layer), 0.5F);
  outlook_->forecast(-1, forecast_);
  ASSERT_EQ(told().experts.size(), tier::OutlookMaker::kExpertsMax);
  for (const store::Foreseen& f : told().experts) EXPECT_LT(f.blob, blob(2, 0)) << "two nearer layers fill it";
}

TEST_F(HostOutlookTest, SomethingIsDueWhenItsRouterHasProbablyRun) {
  open();
  forecast_.row(1)[0] = forecast_.row(3)[0] = 0.9F;
  outlook_->begin_step(PlanId(1), false);
  outlook_->forecast(-1, forecast_);
  EXPECT_EQ(told().experts.front().due, Nanos{0}) << "no layer has been timed";
  for (uint32_t layer = 0; layer < 4; ++layer, clock_.advance(milliseconds(10))) routed(layer, {0});
  outlook_->begin_step(PlanId(2), false);
  clock_.advance(milliseconds(500));  // between two steps: nothing that a layer takes
  outlook_->forecast(-1, forecast_);
  EXPECT_EQ(told().experts[0].due, milliseconds(20));
  EXPECT_EQ(told().experts[1].due, milliseconds(40));
  routed(0, {0});
  clock_.advance(milliseconds(3));
  outlook_->forecast(0, forecast_);
  EXPECT_EQ(told().experts[0].due, milliseconds(7)) << "3 ms of the layer are over";
  EXPECT_EQ(told().experts[1].due, milliseconds(27));
  clock_.advance(milliseconds(100));
  outlook_->forecast(0, forecast_);
  EXPECT_EQ(told().experts[0].due, Nanos{0}) << "late, and not before now";
}

/// The experts of the last layer ran before the step began.
TEST_F(HostOutlookTest, TheFirstRouterOfAStepIsNearerThanALayer) {
  open();
  forecast_.row(0)[0] = forecast_.row(1)[0] = 0.9F;
  for (uint64_t step = 1; step <= 2; ++step) {
    outlook_->begin_step(PlanId(step), false);
    outlook_->forecast(-1, forecast_);
    clock_.advance(milliseconds(2));
    for (uint32_t layer = 0; layer < 4; ++layer, clock_.advance(milliseconds(10))) routed(layer, {0});
    clock_.advance(milliseconds(300));  // until the next step
  }
  outlook_->begin_step(PlanId(3), false);
  outlook_->forecast(-1, forecast_);
  EXPECT_EQ(told().experts[0].due, milliseconds(2));
  EXPECT_EQ(told().experts[1].due, milliseconds(12));
}

TEST_F(HostOutlookTest, WhatWasForeseenForAPassAndIsMissingThereWasForeseenTooLate) {
  open();
  const auto cause = [&](tier::Key key) { return outlook_->why_late(key).cause; };
  forecast_.row(1)[0] = 0.9F;
  outlook_->begin_step(PlanId(1), false);
  outlook_->forecast(-1, forecast_);
  for (uint32_t layer = 0; layer < 2; ++layer) routed(layer, {0, 3});
  outlook_->forecast(1, forecast_);  // of the next pass
  EXPECT_EQ(cause(kExperts), LateCause::kForeseenTooLate);
  EXPECT_EQ(cause(kExperts + 3), LateCause::kNotForeseen);
  EXPECT_TRUE(outlook_->why_late(kExperts).from_drive);
  forecast_.row(1)[0] = 0;
  outlook_->forecast(2, forecast_);
  routed(1, {0});
  routed(1, {0});
  EXPECT_EQ(cause(kExperts), LateCause::kNotForeseen) << "that was for another pass";
  forecast_.row(1)[0] = 0.9F;
  outlook_->forecast(-1, forecast_);
  routed(1, {0});
  outlook_->unforeseen();
  EXPECT_EQ(cause(kExperts), LateCause::kNotForeseen);
}

TEST_F(HostOutlookTest, APredictorThatIsTooSureIsCorrected) {
  open();
  forecast_.row(1)[0] = forecast_.row(1)[1] = 0.9F;
  for (uint64_t step = 0; step < 200; ++step) {
    outlook_->begin_step(PlanId(step + 1), false);
    outlook_->forecast(-1, forecast_);
    for (uint32_t layer = 0; layer < 4; ++layer) {
      routed(layer, {step % 2 == 0 ? 0U : 7U});
      if (layer == 0) outlook_->forecast(0, forecast_);
    }
  }
  outlook_->begin_step(PlanId(1000), false);
  routed(0, {0});
  outlook_->forecast(0, forecast_);
  ASSERT_FALSE(told().experts.empty());
  EXPECT_NEAR(told().experts.front().probability, 0.25F, 0.08F) << "of four such forecasts one came true";
}

TEST_F(HostOutlookTest, ForecastsLeadOnlyWhileTheyAreNearerToTheTruthThanRates) {
  for (const bool right : {true, false}) {
    open();
    for (uint64_t step = 0; step < 100; ++step) {
      outlook_->begin_step(PlanId(step + 1), false);
      for (uint32_t layer = 0; layer < 4; ++layer) {
        const auto used = static_cast<uint32_t>((step * 3 + layer * 5 + step * step) % 8);
        forecast_.clear();
        forecast_.row(static_cast<int32_t>(layer))[right ? used : (used + 1) % 8] = 1;
        outlook_->forecast(static_cast<int32_t>(layer) - 1, forecast_);
        routed(layer, {used});
      }
    }
    forecast_.row(0)[0] = 0.9F;
    outlook_->forecast(3, forecast_);
    EXPECT_EQ(source_->told.back().leads, right);
  }
}

TEST_F(HostOutlookTest, APromptIsToldTheNextTwoLayersInOrder) {
  open();
  outlook_->begin_step(PlanId(1), true);
  outlook_->forecast(-1, forecast_);
  ASSERT_EQ(told().experts.size(), 2u * kExperts);
  EXPECT_TRUE(told().scan);
  for (uint32_t i = 0; i < told().experts.size(); ++i) EXPECT_EQ(blobs()[i], blob(0, 0) + i);
  routed(2, {1});
  outlook_->forecast(2, forecast_);
  ASSERT_EQ(told().experts.size(), static_cast<size_t>(kExperts)) << "there is one layer more";
  EXPECT_EQ(blobs().front(), blob(3, 0));
  routed(3, {1});
  outlook_->forecast(3, forecast_);
  EXPECT_THAT(told().experts, IsEmpty()) << "after the last layer nothing of this step is left";
}

TEST_F(HostOutlookTest, OfAPromptsLayersAForecastRulesOutWhatIsUnlikely) {
  open();
  outlook_->begin_step(PlanId(1), true);
  std::ranges::fill(forecast_.row(0), 0.2F);
  forecast_.row(0)[3] = 0.6F;
  outlook_->forecast(-1, forecast_);
  ASSERT_EQ(told().experts.size(), 1u + kExperts);
  EXPECT_EQ(blobs()[0], blob(0, 3));
  EXPECT_EQ(blobs()[1], blob(1, 0)) << "nothing is known of the second layer";
}

TEST_F(HostOutlookTest, WithoutForecastsTheLastOutlookIsWithdrawnOnce) {
  open();
  outlook_->begin_step(PlanId(1), false);
  outlook_->unforeseen();
  EXPECT_THAT(source_->told, IsEmpty()) << "nothing stands";
  forecast_.row(0)[0] = 0.9F;
  outlook_->forecast(-1, forecast_);
  for (int step = 0; step < 5; ++step) outlook_->unforeseen();
  ASSERT_EQ(source_->told.size(), 2u);
  EXPECT_THAT(told().experts, IsEmpty());
}

TEST_F(HostOutlookTest, AFailedStepWithdrawsItsOutlook) {
  open();
  outlook_->begin_step(PlanId(1), false);
  forecast_.row(0)[0] = 0.9F;
  outlook_->forecast(-1, forecast_);
  outlook_->abandon();
  outlook_->abandon();
  ASSERT_EQ(source_->told.size(), 2u);
  EXPECT_THAT(told().experts, IsEmpty());
}

TEST_F(HostOutlookTest, AnUnlikelyForecastIsNoMessage) {
  open();
  outlook_->begin_step(PlanId(1), false);
  forecast_.row(0)[0] = 0.05F;
  outlook_->forecast(-1, forecast_);
  EXPECT_THAT(source_->told, IsEmpty());
}

TEST_F(HostOutlookTest, AMissIsNoticedAtTheNextRouter) {
  open();
  outlook_->begin_step(PlanId(1), false);
  routed(0, {0});
  EXPECT_TRUE(last_complete_);
  source_->counted.misses += 1;
  routed(1, {0});
  EXPECT_FALSE(last_complete_);
  routed(2, {0});
  EXPECT_TRUE(last_complete_);
}

TEST_F(HostOutlookTest, MissesAndWhatWasReadAheadKeepForecastsOn) {
  open();
  const uint64_t before = outlook_->begin_step(PlanId(1), false);
  EXPECT_EQ(outlook_->begin_step(PlanId(2), false), before) << "a step in which all was there";
  source_->counted.hits += 5;
  EXPECT_EQ(outlook_->begin_step(PlanId(3), false), before) << "and had been there";
  source_->counted.brought += 1;
  EXPECT_GT(outlook_->begin_step(PlanId(4), false), before) << "a hit that forecasts made";
  source_->counted.misses += 1;
  EXPECT_GT(outlook_->begin_step(PlanId(5), false), before + 1);
}

TEST_F(HostOutlookTest, ASourceFitsAllIfItsMemoryHoldsDenseWeightsAndExperts) {
  open();
  EXPECT_TRUE(outlook_->fits_all()) << "no single range: everything is there";
  for (const bool fits : {true, false}) {
    RecordingSource source(kLayers, kExperts);
    source.bytes.resize(source.needed() - (fits ? 0 : 1));
    auto made = HostOutlook::create(source, DType::kF32, nullptr, clock_);
    ASSERT_TRUE(made);
    EXPECT_EQ((*made)->fits_all(), fits);
  }
}

TEST_F(HostOutlookTest, APrecisionThatThePackLacksIsRefused) {
  RecordingSource source(kLayers, kExperts);
  EXPECT_EQ(HostOutlook::create(source, DType::kBF16, nullptr, clock_).status().code(), Code::kInvalidArgument);
}

TEST_F(HostOutlookTest, WhatTheDeviceHoldsIsNotForeseen) {
  make_device({.device = {.vram_bytes = 4 * RecordingSource::kExpertBytes, .link_bytes_per_s = uint64_t{1} << 30},
               .precision = DType::kF32});
  open(kLayers, kExperts, device_.get());
  device_->begin_step(PlanId(1), false);
  const store::Need need{host_->expert(0, 0)};
  device_->need({MoeLayerId(0), {&need, 1}});
  ASSERT_TRUE(device_->fetch(std::vector<uint32_t>{host_->expert(0, 0)}, {PlanId(1), MoeLayerId(0)}));
  ASSERT_TRUE(device_->next_arrival(std::chrono::seconds(60)));
  forecast_.row(0)[0] = forecast_.row(0)[1] = 0.9F;
  outlook_->begin_step(PlanId(1), false);
  outlook_->forecast(-1, forecast_);
  EXPECT_THAT(blobs(), ElementsAre(blob(0, 1)));
}

TEST_F(HostOutlookTest, WhatADeviceIsStillToBeFilledWithPassesBy) {
  make_gpu();
  copies_end = false;
  open(kLayers, kExperts, device_.get());
  outlook_->begin_step(PlanId(1), false);
  clock_.advance(milliseconds(40));
  outlook_->begin_step(PlanId(2), false);
  outlook_->unforeseen();
  ASSERT_EQ(told().experts.size(), static_cast<size_t>(kLayers * kExperts));
  EXPECT_TRUE(told().scan);
  for (uint32_t i = 0; i < told().experts.size(); ++i) EXPECT_EQ(blobs()[i], blob(0, 0) + i) << "in its order";
  EXPECT_EQ(told().experts.front().due, milliseconds(40)) << "a pass";

  forecast_.row(0)[1] = 0.9F;
  outlook_->forecast(-1, forecast_);
  EXPECT_THAT(blobs(), ElementsAre(blob(0, 1))) << "what is likely is more urgent";
  EXPECT_FALSE(told().scan);
  forecast_.clear();
  outlook_->forecast(3, forecast_);
  EXPECT_TRUE(told().scan);
  EXPECT_EQ(told().experts.size(), static_cast<size_t>(kLayers * kExperts));

  copies_end = true;
  for (uint64_t step = 1; !device_->holds_all(); ++step, std::this_thread::yield()) {
    device_->begin_step(PlanId(step), false);
    device_->need({MoeLayerId(0), {}});
  }
  const size_t before = source_->told.size();
  for (int step = 0; step < 3; ++step) outlook_->unforeseen();
  ASSERT_EQ(source_->told.size(), before + 1) << "withdrawn, once";
  EXPECT_THAT(told().experts, IsEmpty());
  EXPECT_THAT(host_->sixteenths, ::testing::Each(1)) << "host memory need not keep what has a slot for good";
}

}  // namespace
}  // namespace moestro::device::testing

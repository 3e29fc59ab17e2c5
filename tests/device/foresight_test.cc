// What of a step a predictor is asked, and which memories are told: of the device's, and of host memory below it.

#include "services/worker/device/foresight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/worker/device/host_outlook.h"
#include "tests/device/recording_source.h"

namespace moestro::device::testing {
namespace {

constexpr int32_t kLayers = 2, kExperts = 4;

/// Is always sure, and counts what it is asked.
class SurePredictor final : public prediction::Predictor {
 public:
  explicit SurePredictor(int& forecasts, int& told) : forecasts_(forecasts), told_(told) {}
  std::string_view name() const override { return "sure"; }
  void begin_iteration(std::span<const prediction::IterationSequence>) override {
    EXPECT_FALSE(std::exchange(open_, true)) << "an iteration within another";
  }
  void routed(int32_t, std::span<const prediction::SequenceRoutes>) override { ++told_; }
  int32_t gate_lookahead() const override { return 1; }
  void forecast(int32_t, prediction::Forecast& out) override {
    ++forecasts_;
    for (int32_t l = 0; l < out.layers(); ++l) std::ranges::fill(out.row(l), 0.9F);
  }
  void end_iteration() override { EXPECT_TRUE(std::exchange(open_, false)); }
  void end_sequence(uint64_t) override {}

 private:
  int &forecasts_, &told_;
  bool open_ = false;
};

/// A memory that says what the test wants.
class FakeTier final : public ExpertTier {
 public:
  explicit FakeTier(bool fits_all) : fits_all_(fits_all) {}
  int32_t layers() const override { return kLayers; }
  int32_t experts() const override { return kExperts; }
  bool fits_all() const override { return fits_all_; }
  uint64_t begin_step(PlanId, bool) override { return brought; }
  void resume_step(PlanId plan, bool scan, int32_t layer) override { resumed = {plan.value, scan, layer}; }
  bool routed(MoeLayerId, std::span<const tier::DeviceTier::Wanted>) override { return ++routed_, complete; }
  bool forecast(int32_t, const prediction::Forecast&) override { return ++foreseen, useful; }
  void unforeseen() override { ++unforeseen_; }
  void abandon() override { ++abandoned; }
  Late why_late(tier::Key) const override { return {}; }

  uint64_t brought = 0;
  bool complete = true, useful = true;
  int routed_ = 0, foreseen = 0, unforeseen_ = 0, abandoned = 0;
  std::tuple<uint64_t, bool, int32_t> resumed{0, false, -2};

 private:
  const bool fits_all_;
};

class ForesightTest : public ::testing::Test {
 protected:
  void make(ExpertTier& tier, ExpertTier* below = nullptr) {
    foresight_ = std::make_unique<Foresight>(tier, std::make_unique<SurePredictor>(forecasts_, told_), 1, below);
  }
  /// A step that decodes one token, which chooses expert 0 everywhere.
  void step() {
    const engine::WatchedSequence sequence{SequenceId(1), true, 0, 1};
    foresight_->begin_step(PlanId(++plan_), {&sequence, 1});
    const std::vector<int32_t> ids{0};
    const std::vector<lanes::RoutedExpert> experts{{0, 1}};
    const std::vector<float> uses(kExperts, 1.0F);
    for (uint32_t layer = 0; layer < kLayers && foresight_->wants_routes(); ++layer) {
      foresight_->routed(MoeLayerId(layer), ids, experts, uses);
      foresight_->foresee(MoeLayerId(layer));
    }
    foresight_->end_step();
  }
  void steps(int count) {
    while (count-- > 0) step();
  }

  int forecasts_ = 0, told_ = 0;
  uint64_t plan_ = 0;
  std::unique_ptr<Foresight> foresight_;
};

TEST_F(ForesightTest, WhereEverythingFitsAndIsThereNothingIsAskedAndNobodyIsTold) {
  RecordingSource source(kLayers, kExperts);
  source.bytes.resize(source.needed());
  const SteadyClock clock;
  auto outlook = HostOutlook::create(source, DType::kF32, nullptr, clock);
  ASSERT_TRUE(outlook);
  make(**outlook);
  EXPECT_EQ(foresight_->gate_lookahead(), 1);
  steps(5);  // until it is known to be calm
  ASSERT_FALSE(source.told.empty());
  EXPECT_TRUE(source.told.back().experts.empty()) << "what stood is withdrawn";
  const size_t messages = source.told.size();
  const int forecasts = forecasts_, told = told_;
  steps(100);
  EXPECT_EQ(source.told.size(), messages);
  EXPECT_EQ(forecasts_, forecasts);
  EXPECT_EQ(told_, told);
  EXPECT_EQ(foresight_->gate_lookahead(), 0);
  source.counted.misses += 1;
  step();
  EXPECT_GT(forecasts_, forecasts) << "something is missing again";
  EXPECT_FALSE(source.told.back().experts.empty());
}

TEST_F(ForesightTest, WhereEverythingFitsAMemoryIsLookedAtOnceAStepUntilSomethingIsBrought) {
  FakeTier host(true);
  make(host);
  steps(5);
  EXPECT_FALSE(foresight_->wants_routes());
  const int routed = host.routed_, forecasts = forecasts_, told = told_;
  steps(100);
  EXPECT_EQ(host.routed_, routed);
  EXPECT_EQ(forecasts_, forecasts);
  EXPECT_EQ(told_, told);
  host.brought += 1;  // an expert was evicted, and missing
  step();
  EXPECT_EQ(host.routed_, routed + kLayers);
  EXPECT_EQ(forecasts_, forecasts + 1 + kLayers);
  EXPECT_EQ(told_, told + kLayers);
}

TEST_F(ForesightTest, AStepThatIsOvertakenGoesOnWhereItWas) {
  FakeTier device(false);
  make(device);
  const engine::WatchedSequence prompt{SequenceId(2), false, 0, 3};
  const std::vector<int32_t> ids{0, 1, 0};
  const std::vector<lanes::RoutedExpert> experts{{0, 2}, {1, 1}};
  const std::vector<float> uses(kExperts, 1.0F);
  foresight_->begin_step(PlanId(70), {&prompt, 1});
  foresight_->routed(MoeLayerId(0), ids, experts, uses);
  foresight_->park();
  step();  // another one, which decodes
  foresight_->resume(0);
  EXPECT_EQ(device.resumed, std::tuple(70u, true, 0)) << "a prompt's again, after its first layer";
  ASSERT_TRUE(foresight_->wants_routes());
  const int told = told_;
  foresight_->routed(MoeLayerId(1), ids, experts, uses);
  EXPECT_EQ(told_, told + 1);
  foresight_->end_step();
  steps(2);
}

TEST_F(ForesightTest, WithoutAPredictorRoutesAreNotReported) {
  FakeTier device(false);
  foresight_ = std::make_unique<Foresight>(device, nullptr, 1);
  steps(3);
  EXPECT_EQ(device.routed_, 0);
  EXPECT_EQ(device.unforeseen_, 0);
}

TEST_F(ForesightTest, HitsThatForecastsMadeKeepThemOn) {
  RecordingSource source(kLayers, kExperts);
  source.bytes.resize(source.needed() / 2);
  const SteadyClock clock;
  auto outlook = HostOutlook::create(source, DType::kF32, nullptr, clock);
  ASSERT_TRUE(outlook);
  make(**outlook);
  for (int i = 0; i < 100; ++i) {
    source.counted.hits += 1, source.counted.brought += 1;
    step();
  }
  EXPECT_EQ(forecasts_, 100 * (1 + kLayers)) << "before the first layer and after each";
}

TEST_F(ForesightTest, WithTwoMemoriesEachIsToldWhileItLacksSomething) {
  FakeTier device(false), host(false);
  make(device, &host);
  for (int i = 0; i < 66; ++i) {
    device.brought += 1;  // copies all the time, and host memory has everything
    step();
  }
  EXPECT_EQ(device.foreseen, 66 * (1 + kLayers));
  EXPECT_LT(host.foreseen, device.foreseen * 2 / 3);
  EXPECT_GT(host.unforeseen_, 16);
  const int before = host.foreseen;
  host.complete = false;
  step();
  EXPECT_EQ(host.foreseen, before + kLayers) << "from the layer on at which something was missing";
}

TEST_F(ForesightTest, RoutingThatCannotBeForeseenIsAskedAboutNowAndThen) {
  FakeTier host(false);
  make(host);
  host.complete = host.useful = false;
  const auto missing_steps = [&](int count) {
    const int before = forecasts_;
    for (int i = 0; i < count; ++i) {
      host.brought += 1;
      step();
    }
    return forecasts_ - before;
  };
  missing_steps(80);  // experts are missing in every step, and no forecast is good for anything
  const int told = told_;
  EXPECT_EQ(missing_steps(160), 10 * (1 + kLayers)) << "one step of sixteen";
  EXPECT_EQ(told_, told + 160 * kLayers) << "predictors go on counting";
  host.useful = true;
  missing_steps(16);
  EXPECT_EQ(missing_steps(160), 160 * (1 + kLayers)) << "it can be foreseen again";
}

TEST_F(ForesightTest, AFailedStepIsToldToBoth) {
  FakeTier device(false), host(true);
  make(device, &host);
  foresight_->abandon();
  EXPECT_EQ(device.abandoned, 1);
  EXPECT_EQ(host.abandoned, 1);
}

}  // namespace
}  // namespace moestro::device::testing

// What foresight costs by itself: the engine's thread's time in predictor, prefetcher and counting, beside the step
// that it serves.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include "common/prediction/make_predictor.h"
#include "services/worker/device/host_outlook.h"
#include "tests/activation/random_requests.h"
#include "tests/device/demo_steps.h"
#include "tests/device/forwarding_watch.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;

constexpr int kAllExperts = 128;
constexpr Nanos kMillisecond = std::chrono::milliseconds(1);

/// Of this thread, waits and other threads' turns left out.
double thread_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

class TimedWatch final : public ForwardingWatch {
 public:
  explicit TimedWatch(engine::ExpertWatch& inner) : ForwardingWatch(inner) {
    for (int i = 0; i < 1000; ++i) timed([] {});
    clock_us_ = take_us() / 1000;
  }
  /// Without what the clock takes itself.
  double take_us() { return std::max(0.0, std::exchange(us_, 0) - clock_us_ * std::exchange(calls_, 0)); }

  void begin_step(PlanId plan, std::span<const engine::WatchedSequence> sequences) override {
    timed([&] { ForwardingWatch::begin_step(plan, sequences); });
  }
  void routed(MoeLayerId layer, std::span<const int32_t> ids, std::span<const lanes::RoutedExpert> experts,
              std::span<const float> uses) override {
    timed([&] { ForwardingWatch::routed(layer, ids, experts, uses); });
  }
  void guessed(MoeLayerId layer, int32_t layers, std::span<const float> logits) override {
    timed([&] { ForwardingWatch::guessed(layer, layers, logits); });
  }
  void foresee(MoeLayerId layer) override {
    timed([&] { ForwardingWatch::foresee(layer); });
  }
  void end_step() override {
    timed([&] { ForwardingWatch::end_step(); });
  }

 private:
  template <typename Do>
  void timed(const Do& act) {
    const double begin = thread_us();
    act();
    us_ += thread_us() - begin;
    ++calls_;
  }
  double us_ = 0, clock_us_ = 0;
  int calls_ = 0;
};

/// Is there in some steps, and in the others it is as if nobody watched.
class SwitchedWatch final : public ForwardingWatch {
 public:
  using ForwardingWatch::ForwardingWatch;
  bool on = true;

  void begin_step(PlanId plan, std::span<const engine::WatchedSequence> sequences) override {
    if (on) ForwardingWatch::begin_step(plan, sequences);
  }
  bool wants_routes() const override { return on && ForwardingWatch::wants_routes(); }
  void end_step() override {
    if (on) ForwardingWatch::end_step();
  }
};

struct OwnTime {
  double own_us = 0, step_us = 0;  ///< medians of steps that decode one token
  double share() const { return own_us / step_us; }
};

/// `prompt` tokens at once, some steps to settle, then those that count.
OwnTime measure(Bench& bench, engine::ExpertWatch& foresight, uint32_t prompt, int settle, int counted) {
  TimedWatch watch(foresight);
  bench.engine().set_expert_watch(&watch);
  SteadyClock clock;
  std::vector<double> own, steps;
  std::vector<TokenId> next = demo_prompt(1, prompt, bench.engine().spec().vocab);
  for (int i = 0; i <= settle + counted; ++i) {
    bench.add(1, next).sample = true;
    watch.take_us();
    const Nanos begin = clock.now();
    const auto outcome = bench.run();
    const Nanos took = clock.now() - begin;
    EXPECT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok());
    if (i > settle)
      own.push_back(watch.take_us()), steps.push_back(std::chrono::duration<double, std::micro>(took).count());
    next = {outcome->sequences[0].sampled.at(0).id};
  }
  bench.engine().set_expert_watch(nullptr);
  return {median(own), median(steps)};
}

/// Steps with foresight and without in turn, so that whatever else the machine does disturbs both alike. What foresight
/// takes is the difference of the medians, with what it drives from the processor's caches.
OwnTime compare(Bench& bench, engine::ExpertWatch& foresight, int requests, int decoded) {
  SwitchedWatch watch(foresight);
  bench.engine().set_expert_watch(&watch);
  SteadyClock clock;
  std::vector<double> with, without;
  for (int request = 1; request <= requests; ++request) {
    const auto id = static_cast<uint64_t>(request);
    std::vector<TokenId> next = demo_prompt(static_cast<uint32_t>(request), 64, bench.engine().spec().vocab);
    for (int i = 0; i <= decoded; ++i) {
      watch.on = (i + request) % 2 == 0;
      bench.add(id, next).sample = true;
      const Nanos begin = clock.now();
      const auto outcome = bench.run();
      const double took = std::chrono::duration<double, std::micro>(clock.now() - begin).count();
      EXPECT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok());
      if (request > 1 && i > 0) (watch.on ? with : without).push_back(took);
      next = {outcome->sequences[0].sampled.at(0).id};
    }
    bench.release(id);
  }
  bench.engine().set_expert_watch(nullptr);
  return {median(with) - median(without), median(without)};
}

OwnTime measure(const DeviceBenchOptions& options, uint32_t prompt, int settle, int counted) {
  DeviceBench device(demo_model(), options);
  return measure(device.bench(), device.foresight(), prompt, settle, counted);
}

OwnTime shown(const char* what, const OwnTime& time) {
  std::printf("own time: %s: %.1f us of a step of %.2f ms, %.2f %%\n", what, time.own_us, 1e-3 * time.step_us,
              100 * time.share());
  return time;
}

DeviceBenchOptions with_room(Nanos floor) {
  return {.slots = kAllExperts, .cache = "auto", .predictor = "auto", .engine = demo_engine(floor)};
}

TEST(OwnTime, IsNothingToSpeakOfWhereEveryExpertFits) {
  EXPECT_LE(shown("every expert fits, 1 ms an expert", measure(with_room(kMillisecond), 256, 30, 30)).share(), 0.01);
  EXPECT_LE(
      shown("every expert fits, as fast as the CPU computes", measure(with_room(Nanos{0}), 256, 100, 200)).share(),
      0.10);
}

TEST(OwnTime, IsNextToNothingOnTheCpuWhereEveryExpertIsInMemory) {
  Bench bench(demo_model(), demo_engine(Nanos{0}));
  const SteadyClock clock;
  auto outlook = HostOutlook::create(bench.source(), DType::kBF16, nullptr, clock);
  ASSERT_TRUE(outlook) << outlook.status().message();
  const auto top_k = static_cast<int32_t>(bench.engine().spec().moe().top_k);
  auto predictor = prediction::make_predictor(
      "auto", {.shape = {.layers = (*outlook)->layers(), .experts = (*outlook)->experts(), .top_k = top_k}});
  ASSERT_TRUE(predictor) << predictor.status().message();
  Foresight foresight(**outlook, std::move(*predictor), top_k);
  EXPECT_LE(shown("on the CPU, every expert is in memory", compare(bench, foresight, 61, 400)).share(), 0.05)
      << "0.3 % where nobody else uses the machine";
}

TEST(OwnTime, WhereAQuarterFitsForecastsCostLittleBesideWhatTheyForesee) {
  const activation::EamcShape shape{8, 16, 2};
  activation::ActivationHistory history(shape, 512);
  activation::RandomRequests requests(shape, 8, 1);
  for (int i = 0; i < 512; ++i) {
    activation::RequestCounts counts(shape);
    counts.prompt = requests.matrix(i % 8, 8), counts.answer = requests.matrix(i % 8, 8);
    history.add(counts);
  }
  DeviceBenchOptions options = with_room(kMillisecond);
  options.slots = kAllExperts / 4, options.history = &history.view(),
  options.link_bytes_per_s = demo_expert_bytes() * 1000;
  EXPECT_LE(shown("a quarter fits, 512 past requests, 1 ms an expert and a copy", measure(options, 32, 30, 60)).share(),
            0.10);
}

}  // namespace
}  // namespace moestro::device::testing

// What a worker on an emulated device tells the orchestrator with its results is what the device has counted.

#include <gtest/gtest.h>

#include <atomic>
#include <string_view>
#include <thread>

#include "services/worker/service/worker_service.h"
#include "tests/device/device_bench.h"
#include "tests/engine/played_orchestrator.h"

namespace moestro::device::testing {
namespace {

using worker::ServiceOptions;
using worker::WorkerService;
using worker::testing::PlayedOrchestrator;

constexpr int32_t kSlots = 5;
constexpr uint64_t kPlansMin = 50, kPlansMax = 100'000;

struct Told {
  tier::LayerCounters all;
  uint64_t moved_bytes = 0, wasted_bytes = 0, link_busy_us = 0;
  uint64_t expert_hits = 0, expert_misses = 0;
  tier::WindowHits recent;

  void add(const wire::StepResult& result, size_t layers) {
    const wire::DeviceFigures& d = *result.device();
    ASSERT_EQ(d.layers()->size(), layers);
    for (const auto* l : *d.layers())
      all += {.hits = l->hits(),
              .late = l->late(),
              .misses = l->misses(),
              .evictions = l->evictions(),
              .prefetched = l->prefetched(),
              .prefetched_used = l->prefetched_used(),
              .prefetched_wasted = l->prefetched_wasted()};
    moved_bytes += d.moved_bytes(), wasted_bytes += d.wasted_bytes(), link_busy_us += d.link_busy_us();
    expert_hits += result.expert_hits(), expert_misses += result.expert_misses();
    EXPECT_GT(d.resident(), 0u);
    EXPECT_LE(d.resident(), static_cast<uint32_t>(kSlots));
    if (d.recent_uses() > 0) recent = {d.recent_uses(), d.recent_hits(), d.recent_lru_hits(), d.recent_belady_hits()};
  }
};

class DeviceFigures : public ::testing::TestWithParam<const char*> {
 protected:
  DeviceFigures()
      : device_(engine::testing::any_fixture(), {.slots = kSlots, .predictor = GetParam()}),
        orchestrator_(dir_.path()) {
    ServiceOptions options;
    options.name = "w", options.device = "emulated", options.orchestrator = orchestrator_.endpoint();
    options.device_slots = static_cast<uint32_t>(device_.device().slots()),
    options.device_slot_bytes = device_.device().slot_bytes();
    options.take_device_figures = [this](tier::TierFigures& out) { device_.device().take_figures(out); };
    auto service = WorkerService::create(options, device_.bench().engine(), [] { return Status::ok(); });
    MOESTRO_CHECK(service.is_ok(), service.status().message());
    service_ = std::move(*service);
    thread_ = std::thread([this] { end_ = service_->run(stop_); });
  }
  ~DeviceFigures() override { stop(); }

  void stop() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
  }

  engine::testing::TempDir dir_;
  DeviceBench device_;
  PlayedOrchestrator orchestrator_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<WorkerService> service_;
  std::thread thread_;
  Status end_;
};

TEST_P(DeviceFigures, OfAllResultsAddUpToWhatTheDeviceHasCounted) {
  const auto* registration = orchestrator_.register_worker();
  EXPECT_EQ(registration->device_slots(), static_cast<uint32_t>(kSlots));
  EXPECT_EQ(registration->device_slot_bytes(), device_.device().slot_bytes());
  Told told;
  // Until the last uses have been replayed beside the work, too.
  for (uint64_t plan = 1; plan <= kPlansMin || (told.recent.uses == 0 && plan < kPlansMax); ++plan) {
    orchestrator_.send_plan(plan, static_cast<int32_t>(plan * 37 % 60), -1, 1 + plan % 16 / 15);
    const auto* m = orchestrator_.next(wire::WorkerBody::StepResult);
    ASSERT_NE(m, nullptr);
    ASSERT_EQ(m->body_as_StepResult()->error_code(), 0u);
    ASSERT_NE(m->body_as_StepResult()->device(), nullptr);
    ASSERT_NO_FATAL_FAILURE(told.add(*m->body_as_StepResult(), static_cast<size_t>(device_.device().layers())));
  }
  stop();
  ASSERT_TRUE(end_.is_ok()) << end_.message();
  const tier::TierCounters counted = device_.device().tier_counters();
  EXPECT_EQ(told.all.hits, counted.hits);
  EXPECT_EQ(told.all.late, counted.late);
  EXPECT_EQ(told.all.misses, counted.misses);
  EXPECT_EQ(told.all.prefetched_used, counted.prefetched_used);
  EXPECT_GT(counted.hits, 0u);
  EXPECT_GT(counted.misses, 0u);
  EXPECT_EQ(told.expert_hits, counted.hits);
  EXPECT_EQ(told.expert_misses, counted.misses + counted.late);
  EXPECT_GT(told.recent.uses, 0u);
  EXPECT_LE(told.recent.hits, told.recent.uses);
  EXPECT_LE(told.recent.lru_hits, told.recent.belady_hits);
  EXPECT_LT(told.recent.belady_hits, told.recent.uses);
  if (std::string_view(GetParam()) != "none") {  // prefetches go on behind the last result
    EXPECT_LE(told.all.prefetched, counted.prefetched);
    EXPECT_LE(told.moved_bytes, counted.moved_bytes);
    return;
  }
  EXPECT_TRUE(told.all == static_cast<const tier::LayerCounters&>(counted));
  EXPECT_EQ(told.moved_bytes, counted.moved_bytes);
  EXPECT_EQ(told.wasted_bytes, counted.wasted_bytes);
  EXPECT_EQ(told.link_busy_us, static_cast<uint64_t>(counted.link_busy.count() / 1000));
}

INSTANTIATE_TEST_SUITE_P(With, DeviceFigures, ::testing::Values("none", "auto"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace moestro::device::testing

// What is counted of workers, of their devices and of the experts they use.

#include "orchestrator/control/worker_figures.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "orchestrator/control/expert_use.h"

namespace moestro::orchestrator {
namespace {

Registration on_cpu() {
  Registration r;
  r.name = "cpu", r.experts = {2, 4, 2};
  return r;
}

Registration on_device() {
  Registration r = on_cpu();
  r.name = "device", r.device_slots = 5, r.device_slot_bytes = 100;
  return r;
}

StepReport report(uint64_t hits, uint64_t misses) {
  StepReport r;
  r.step_us = 1000, r.stall_us = 200, r.expert_hits = hits, r.expert_misses = misses, r.fetched_bytes = 64;
  return r;
}

StepReport device_report() {
  StepReport r = report(7, 3);
  r.device = DeviceStep{.layers = {{.hits = 4,
                                    .misses = 1,
                                    .late = 1,
                                    .evictions = 2,
                                    .prefetched = 3,
                                    .prefetched_used = 2,
                                    .prefetched_wasted = 1},
                                   {.hits = 3, .misses = 2}},
                        .moved_bytes = 500,
                        .wasted_bytes = 100,
                        .staged_bytes = 50,
                        .link_busy_us = 300,
                        .resident = 5,
                        .recent = {.uses = 10, .hits = 7, .lru_hits = 5, .belady_hits = 8},
                        .work = {.host_experts = 4, .host_rows = 9, .rewinds = 2, .kv_in_bytes = 70,
                                 .kv_out_bytes = 7}};
  return r;
}

TEST(WorkerFigures, HitsOfHostMemoryAreThoseOfWorkersThatComputeThere) {
  ControlSnapshot all;
  auto cpu = begin_figures(on_cpu(), all);
  EXPECT_TRUE(all.device_layers.empty());
  auto device = begin_figures(on_device(), all);
  StepReport a = report(10, 2), b = device_report();
  count_step(a, cpu, all);
  count_step(b, device, all);
  EXPECT_EQ(std::tuple(all.expert_hits, all.expert_misses, all.fetched_bytes), std::tuple(17U, 5U, 128U));
  EXPECT_EQ(std::tuple(all.dram_hits, all.dram_misses, all.dram_fetched_bytes), std::tuple(10U, 2U, 64U));
  EXPECT_EQ(std::tuple(all.device.use.hits, all.device.use.misses, all.device.use.late), std::tuple(7U, 3U, 1U));
  EXPECT_EQ(std::tuple(all.device.step_us, all.device.stall_us), std::tuple(1000U, 200U))
      << "the CPU's step is none of a device";
  EXPECT_EQ(std::tuple(all.step_us, all.stall_us), std::tuple(2000U, 400U));
  EXPECT_FALSE(cpu.has_device());
  EXPECT_EQ(cpu.device_totals.step_us, 0U);
}

TEST(WorkerFigures, BreaksInStepsAddUp) {
  ControlSnapshot all;
  auto worker = begin_figures(on_cpu(), all);
  for (const uint64_t parks : {0, 2, 3}) {
    StepReport r = report(1, 0);
    r.parks = parks, r.parked_us = 100 * parks;
    count_step(r, worker, all);
  }
  EXPECT_EQ(std::tuple(all.parks, all.parked_us), std::tuple(5U, 500U));
}

TEST(WorkerFigures, ADevicesFiguresAddUpByLayerByWorkerAndInAll) {
  ControlSnapshot all;
  auto one = begin_figures(on_device(), all), two = begin_figures(on_device(), all);
  for (auto* worker : {&one, &one, &two}) {
    StepReport r = device_report();
    count_step(r, *worker, all);
    EXPECT_TRUE(r.outcome.error.is_ok());
  }
  EXPECT_EQ(one.device_totals.use.hits, 14U);
  EXPECT_EQ(two.device_totals.use.hits, 7U);
  EXPECT_EQ(std::tuple(all.device.moved_bytes, all.device.wasted_bytes, all.device.staged_bytes,
                       all.device.link_busy_us),
            std::tuple(1500U, 300U, 150U, 900U));
  EXPECT_EQ(std::tuple(all.device.use.evictions, all.device.use.prefetched, all.device.use.prefetched_used,
                       all.device.use.prefetched_wasted),
            std::tuple(6U, 9U, 6U, 3U));
  ASSERT_EQ(all.device_layers.size(), 2U);
  EXPECT_EQ(std::tuple(all.device_layers[0].hits, all.device_layers[0].late, all.device_layers[1].hits,
                       all.device_layers[1].misses),
            std::tuple(12U, 3U, 9U, 6U));
  EXPECT_EQ(std::tuple(all.device.work.host_experts, all.device.work.host_rows, all.device.work.rewinds),
            std::tuple(12U, 27U, 6U));
  EXPECT_EQ(one.device_totals.work.host_rows, 18U);
  EXPECT_EQ(one.device_totals.work.kv_in_bytes, 140U);
  EXPECT_EQ(one.device_totals.work.kv_out_bytes, 14U);
  EXPECT_EQ(one.device_resident, 5U);
}

TEST(WorkerFigures, TheRecentWindowStandsUntilThereIsANewOne) {
  ControlSnapshot all;
  auto worker = begin_figures(on_device(), all);
  StepReport r = device_report();
  count_step(r, worker, all);
  StepReport nothing_new = device_report();
  nothing_new.device->recent = {};
  count_step(nothing_new, worker, all);
  EXPECT_EQ(std::tuple(worker.recent.uses, worker.recent.hits, worker.recent.lru_hits, worker.recent.belady_hits),
            std::tuple(10U, 7U, 5U, 8U));
  r = device_report();
  r.device->recent = {.uses = 4, .hits = 1, .lru_hits = 1, .belady_hits = 2};
  count_step(r, worker, all);
  EXPECT_EQ(worker.recent.uses, 4U);
}

TEST(WorkerFigures, WhatADeviceCannotHaveDoneFailsThePlanAndCountsNowhere) {
  using Spoil = std::function<void(DeviceStep&)>;
  const std::vector<std::pair<const char*, Spoil>> wrong{
      {"layers", [](DeviceStep& d) { d.layers.pop_back(); }},
      {"layers", [](DeviceStep& d) { d.layers.resize(1 << 16); }},
      {"layers", [](DeviceStep& d) { d.layers.clear(); }},
      {"slots", [](DeviceStep& d) { d.resident = 6; }},
      {"reaches", [](DeviceStep& d) { d.layers[1].hits = UINT32_MAX; }},
      {"reaches", [](DeviceStep& d) { d.layers[1].prefetched_wasted = UINT32_MAX; }},
      {"reaches", [](DeviceStep& d) { d.moved_bytes = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.wasted_bytes = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.staged_bytes = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.link_busy_us = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.work.host_experts = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.work.host_rows = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.work.kv_in_bytes = UINT64_MAX; }},
      {"reaches", [](DeviceStep& d) { d.work.rewinds = UINT64_MAX; }},
      {"uses", [](DeviceStep& d) { d.recent.hits = 11; }},
      {"uses", [](DeviceStep& d) { d.recent.lru_hits = 11; }},
      {"uses", [](DeviceStep& d) { d.recent.belady_hits = 11; }},
      {"uses", [](DeviceStep& d) { d.recent.uses = UINT32_MAX; }},
  };
  for (const auto& [word, spoil] : wrong) {
    ControlSnapshot all;
    auto worker = begin_figures(on_device(), all);
    StepReport r = device_report();
    spoil(*r.device);
    count_step(r, worker, all);
    EXPECT_EQ(r.outcome.error.code(), Code::kInternal) << word;
    EXPECT_NE(r.outcome.error.message().find(word), std::string::npos) << r.outcome.error.message();
    EXPECT_EQ(all.device.use.hits + all.device.moved_bytes + worker.device_resident + worker.recent.uses, 0U) << word;
  }
}

TEST(WorkerFigures, FiguresOfADeviceThatWasNotRegisteredFailThePlan) {
  ControlSnapshot all;
  auto worker = begin_figures(on_cpu(), all);
  StepReport r = device_report();
  count_step(r, worker, all);
  EXPECT_EQ(r.outcome.error.code(), Code::kInternal);
}

TEST(WorkerFigures, AnotherPackHasItsOwnLayers) {
  ControlSnapshot all;
  auto former = begin_figures(on_device(), all);
  StepReport r = device_report();
  count_step(r, former, all);
  Registration next = on_device();
  next.experts = {3, 4, 2};
  auto worker = begin_figures(next, all);
  ASSERT_EQ(all.device_layers.size(), 3U);
  EXPECT_EQ(all.device_layers[0].hits, 0U);
  StepReport late = device_report();  // of the former, still on its way
  count_step(late, former, all);
  EXPECT_TRUE(late.outcome.error.is_ok());
  EXPECT_EQ(all.device_layers[0].hits, 0U);
  EXPECT_EQ(worker.moe_layers, 3U);
}

using Counts = std::vector<activation::ActivationCount>;

Counts used(uint32_t layer, uint32_t expert, uint32_t tokens) {
  return {{MoeLayerId(layer), ExpertId(expert), tokens}};
}

TEST(WorkerFigures, LowCopiesCountByTierAndLayer) {
  ControlSnapshot all;
  auto cpu = begin_figures(on_cpu(), all), device = begin_figures(on_device(), all);
  StepReport a = report(1, 1), b = device_report();
  a.layer_copies = {{8, 1, 0}, {8, 2, 1}}, b.layer_copies = {{4, 0, 0}, {4, 3, 1}};
  for (int i = 0; i < 2; ++i) count_step(a, cpu, all), count_step(b, device, all);
  EXPECT_TRUE(a.outcome.error.is_ok() && b.outcome.error.is_ok());
  EXPECT_EQ(all.dram_copies, (std::vector<CopyCounts>{{16, 2, 0}, {16, 4, 2}}));
  EXPECT_EQ(all.device_copies, (std::vector<CopyCounts>{{8, 0, 0}, {8, 6, 2}}));
}

TEST(WorkerFigures, CountsOfLowCopiesThatCannotBeFailThePlan) {
  for (const std::vector<CopyCounts>& said : {std::vector<CopyCounts>{{8, 1, 0}},           // a layer is missing
                                              std::vector<CopyCounts>{{8, 9, 0}, {}},       // more than all
                                              std::vector<CopyCounts>{{8, 5, 4}, {}}}) {
    ControlSnapshot all;
    auto cpu = begin_figures(on_cpu(), all);
    StepReport r = report(1, 1);
    r.layer_copies = said;
    count_step(r, cpu, all);
    EXPECT_EQ(r.outcome.error.code(), Code::kInternal);
    EXPECT_TRUE(all.dram_copies.empty());
  }
}

TEST(ExpertUse, SharesAreOfTheLayer) {
  ExpertUse use;
  EXPECT_EQ(use.shares().cells.size(), 0U) << "no worker has come";
  use.begin({2, 4, 1});
  EXPECT_EQ(use.shares().cells, std::vector<float>(8, 0.0F)) << "nothing was used";
  use.count(used(0, 1, 3), Nanos(0));
  use.count(used(0, 2, 1), Nanos(0));
  use.count(used(1, 0, 7), Nanos(0));
  EXPECT_EQ(use.shares().cells, (std::vector<float>{0, 0.75F, 0.25F, 0, 1, 0, 0, 0}));
}

TEST(ExpertUse, WhatWasAHalfLifeAgoCountsHalf) {
  ExpertUse use;
  use.begin({1, 2, 1});
  const Nanos start = std::chrono::hours(1000);  // a machine that has been up for long
  use.count(used(0, 0, 2), start);
  use.count(used(0, 1, 1), start + ExpertUse::kHalfLife);
  EXPECT_FLOAT_EQ(use.shares().cells[0], 0.5F);
  use.count(used(0, 1, 1), start + 2 * ExpertUse::kHalfLife);
  EXPECT_FLOAT_EQ(use.shares().cells[0], 0.25F);
}

TEST(ExpertUse, GoesOnForYears) {
  ExpertUse use;
  use.begin({1, 2, 1});
  for (int hour = 0; hour < 3000; ++hour) use.count(used(0, hour % 2 == 0 ? 0U : 1U, 1), std::chrono::hours(hour));
  EXPECT_FLOAT_EQ(use.shares().cells[1], 1.0F) << "an hour is sixty half-lives";
  use.count(used(0, 0, 1), std::chrono::hours(24 * 365 * 10));
  EXPECT_FLOAT_EQ(use.shares().cells[0], 1.0F);
}

TEST(ExpertUse, WhatThePeerClaimsBeyondTheModelIsLeftOut) {
  ExpertUse use;
  use.count(used(0, 0, 1), Nanos(0));  // before any worker
  use.begin({2, 4, 1});
  for (const auto& [layer, expert] : {std::pair(2U, 0U), std::pair(0U, 4U), std::pair(UINT32_MAX, UINT32_MAX)})
    use.count(used(layer, expert, UINT32_MAX), Nanos(0));
  const ExpertShares shares = use.shares();
  EXPECT_EQ(std::accumulate(shares.cells.begin(), shares.cells.end(), 0.0F), 0.0F);
  use.begin({4096, 1 << 16, 8});
  EXPECT_EQ(use.shares().cells.size(), 0U) << "two GiB for a map that nobody could draw";
  use.begin({2, 2, 1});
  use.count(used(1, 1, 1), Nanos(0));
  EXPECT_EQ(use.shares().cells, (std::vector<float>{0, 0, 0, 1}));
}

}  // namespace
}  // namespace moestro::orchestrator

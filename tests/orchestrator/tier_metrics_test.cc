// The tiers in /metrics and in the status.

#include "orchestrator/api/tier_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace moestro::orchestrator {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ControlSnapshot on_cpus() {
  ControlSnapshot c;
  c.expert_hits = 90, c.expert_misses = 10, c.dram_hits = 90, c.dram_misses = 10, c.dram_fetched_bytes = 640;
  ControlSnapshot::Worker w;
  w.name = "worker-0", w.device = "cpu";
  c.workers.push_back(w);
  return c;
}

/// And two workers on devices.
ControlSnapshot on_devices() {
  ControlSnapshot c = on_cpus();
  c.device_layers = {{.hits = 30,
                      .misses = 10,
                      .late = 4,
                      .evictions = 9,
                      .prefetched = 8,
                      .prefetched_used = 6,
                      .prefetched_wasted = 1},
                     {.hits = 50, .misses = 10}};
  for (const DeviceUse& layer : c.device_layers) c.device.use += layer;
  c.device.moved_bytes = 3000, c.device.wasted_bytes = 100, c.device.staged_bytes = 70,
  c.device.link_busy_us = 2'500'000, c.device.step_us = 8'000'000, c.device.stall_us = 1'000'000;
  c.device.work = {.host_experts = 21, .host_rows = 34, .rewinds = 5, .kv_in_bytes = 8192, .kv_out_bytes = 512};
  for (const char* name : {"gpu-0", "gpu-1"}) {
    ControlSnapshot::Worker w;
    w.name = name, w.device = "emulated", w.device_slots = 10, w.device_slot_bytes = 100, w.device_resident = 4;
    w.device_totals.use = {.hits = 40, .misses = 10};
    w.device_totals.link_busy_us = 1'250'000;
    w.device_totals.work = {.host_experts = 11, .host_rows = 17, .rewinds = 3};
    w.recent = {.uses = 64, .hits = 48, .lru_hits = 32, .belady_hits = 56};
    c.workers.push_back(w);
  }
  return c;
}

StoreFigures store() {
  StoreFigures s;
  s.arena_bytes = 5000, s.used_bytes = 4000, s.resident_bytes = 3000, s.joined = 3, s.evictions = 17,
  s.bytes_read = 777, s.prefetches_dropped = 2;
  s.models.push_back({.name = "m", .pack_bytes = 9000, .used_bytes = 4000, .experts = 64, .resident_experts = 32});
  return s;
}

std::vector<std::string> families(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; (at = text.find("# TYPE ", at)) != std::string::npos; ++at)
    names.push_back(text.substr(at + 7, text.find(' ', at + 7) - at - 7));
  return names;
}

TEST(TierMetrics, OfCpusAloneNameNoDevice) {
  const std::string text = tier_metrics_text("m", on_cpus(), store());
  EXPECT_THAT(text, AllOf(HasSubstr("moestro_tier_hits_total{model=\"m\",tier=\"dram\"} 90\n"),
                          HasSubstr("moestro_tier_late_total{tier=\"dram\"} 3\n"),
                          HasSubstr("moestro_tier_used_bytes{tier=\"nvme\"} 9000\n"),
                          HasSubstr("moestro_tier_experts{model=\"m\",tier=\"dram\"} 32\n"),
                          HasSubstr("moestro_tier_read_bytes_total{tier=\"nvme\"} 777\n"),
                          HasSubstr("moestro_tier_prefetched_dropped_total{tier=\"dram\"} 2\n")));
  EXPECT_THAT(text,
              AllOf(Not(HasSubstr("tier=\"device\"")), Not(HasSubstr("moestro_device")), Not(HasSubstr("recent"))));
}

TEST(TierMetrics, OfDevicesStandBesideThoseOfHostMemory) {
  const std::string text = tier_metrics_text("m", on_devices(), store());
  for (const char* line : {"moestro_tier_hits_total{model=\"m\",tier=\"device\"} 80\n",
                           "moestro_tier_hits_total{model=\"m\",tier=\"dram\"} 90\n",
                           "moestro_tier_misses_total{model=\"m\",tier=\"device\"} 20\n",
                           "moestro_tier_late_total{model=\"m\",tier=\"device\"} 4\n",
                           "moestro_tier_late_total{tier=\"dram\"} 3\n",
                           "moestro_tier_evictions_total{model=\"m\",tier=\"device\"} 9\n",
                           "moestro_tier_prefetched_total{model=\"m\",tier=\"device\"} 8\n",
                           "moestro_tier_prefetched_used_total{model=\"m\",tier=\"device\"} 6\n",
                           "moestro_tier_prefetched_wasted_total{model=\"m\",tier=\"device\"} 1\n",
                           "moestro_tier_prefetched_wasted_bytes_total{model=\"m\",tier=\"device\"} 100\n",
                           "moestro_tier_capacity_bytes{model=\"m\",tier=\"device\"} 2000\n",
                           "moestro_tier_used_bytes{model=\"m\",tier=\"device\"} 800\n",
                           "moestro_tier_experts{model=\"m\",tier=\"device\"} 8\n",
                           "moestro_tier_recent_hit_ratio{model=\"m\",tier=\"device\",policy=\"realised\"} 0.75\n",
                           "moestro_tier_recent_hit_ratio{model=\"m\",tier=\"device\",policy=\"lru\"} 0.5\n",
                           "moestro_tier_recent_hit_ratio{model=\"m\",tier=\"device\",policy=\"belady\"} 0.875\n",
                           "moestro_tier_recent_uses{model=\"m\",tier=\"device\"} 128\n",
                           "moestro_device_link_bytes_total{model=\"m\"} 3000\n",
                           "moestro_device_staged_bytes_total{model=\"m\"} 70\n",
                           "moestro_device_link_busy_seconds_total{model=\"m\"} 2.5",
                           "moestro_device_stall_seconds_total{model=\"m\"} 1\n",
                           "moestro_device_step_seconds_total{model=\"m\"} 8\n",
                           "moestro_device_host_experts_total{model=\"m\"} 21\n",
                           "moestro_device_host_rows_total{model=\"m\"} 34\n",
                           "moestro_device_kv_in_bytes_total{model=\"m\"} 8192\n",
                           "moestro_device_kv_out_bytes_total{model=\"m\"} 512\n",
                           "moestro_device_rewinds_total{model=\"m\"} 5\n",
                           "moestro_worker_device_host_experts_total{model=\"m\",worker=\"gpu-1\"} 11\n",
                           "moestro_worker_device_rewinds_total{model=\"m\",worker=\"gpu-0\"} 3\n",
                           "moestro_worker_device_link_busy_seconds_total{model=\"m\",worker=\"gpu-1\"} 1.25",
                           "moestro_worker_device_slots{model=\"m\",worker=\"gpu-0\"} 10\n",
                           "moestro_device_layer_hits_total{model=\"m\",layer=\"0\"} 30\n",
                           "moestro_device_layer_hits_total{model=\"m\",layer=\"1\"} 50\n",
                           "moestro_device_layer_late_total{model=\"m\",layer=\"0\"} 4\n",
                           "moestro_device_layer_prefetched_wasted_total{model=\"m\",layer=\"0\"} 1\n"})
    EXPECT_THAT(text, HasSubstr(line));
  EXPECT_THAT(text, Not(HasSubstr("worker=\"worker-0\""))) << "a CPU has no device's figures";
}

TEST(TierMetrics, LowCopiesByTierAndLayer) {
  ControlSnapshot c = on_devices();
  EXPECT_THAT(tier_metrics_text("m", c, store()), Not(HasSubstr("moestro_tier_choices_total")));
  c.device_copies = {{10, 3, 1}, {10, 0, 0}}, c.dram_copies = {{20, 5, 0}, {20, 6, 2}};
  c.copies = {60, 14, 3};
  const std::string text = tier_metrics_text("m", c, store());
  for (const char* line :
       {"moestro_tier_choices_total{model=\"m\",tier=\"device\",layer=\"0\",copy=\"full\"} 6\n",
        "moestro_tier_choices_total{model=\"m\",tier=\"device\",layer=\"0\",copy=\"low\"} 3\n",
        "moestro_tier_choices_total{model=\"m\",tier=\"device\",layer=\"0\",copy=\"skipped\"} 1\n",
        "moestro_tier_choices_total{model=\"m\",tier=\"dram\",layer=\"1\",copy=\"full\"} 12\n"})
    EXPECT_THAT(text, HasSubstr(line));
  const auto status = mixed_status(c);
  EXPECT_EQ(status["low"], 14);
  EXPECT_EQ(status["layers"]["device"]["low"], (nlohmann::json{3, 0}));
  EXPECT_EQ(status["layers"]["dram"]["skipped"], (nlohmann::json{0, 2}));
  EXPECT_FALSE(mixed_status(on_devices()).contains("layers"));
}

TEST(TierMetrics, EveryFamilyStandsOnceAndHasItsKind) {
  for (const auto& with : {std::optional(store()), std::optional<StoreFigures>()})
    for (const ControlSnapshot& c : {on_cpus(), on_devices()}) {
      auto names = families(tier_metrics_text("m", c, with));
      const size_t all = names.size();
      std::ranges::sort(names);
      names.erase(std::unique(names.begin(), names.end()), names.end());
      EXPECT_EQ(names.size(), all);
    }
}

TEST(TierMetrics, DevicesAreCountedWhileTheStoreIsAway) {
  const std::string text = tier_metrics_text("m", on_devices(), std::nullopt);
  EXPECT_THAT(text, AllOf(HasSubstr("moestro_tier_late_total{model=\"m\",tier=\"device\"} 4\n"),
                          HasSubstr("moestro_tier_used_bytes{model=\"m\",tier=\"device\"} 800\n"),
                          Not(HasSubstr("tier=\"nvme\""))));
}

TEST(TierMetrics, WithoutAWindowNoRatioIsMadeUp) {
  ControlSnapshot c = on_devices();
  for (auto& w : c.workers) w.recent = {};
  EXPECT_THAT(tier_metrics_text("m", c, store()), Not(HasSubstr("recent")));
  EXPECT_TRUE(tiers_status(c, store())["device"]["recent"].is_null());
}

TEST(TierStatus, HasTheDevicesWhereThereAreSome) {
  EXPECT_FALSE(tiers_status(on_cpus(), store()).contains("device"));
  EXPECT_FALSE(tiers_status(on_cpus(), std::nullopt).contains("nvme"));
  const json tiers = tiers_status(on_devices(), store());
  EXPECT_EQ(tiers["dram"]["hits"], 90);
  EXPECT_EQ(tiers["dram"]["fetched_bytes"], 640);
  const json& d = tiers["device"];
  EXPECT_EQ(std::tuple(d["hits"], d["misses"], d["late"], d["hit_rate"]), std::tuple(80, 20, 4, 0.8));
  EXPECT_EQ(std::tuple(d["workers"], d["slots"], d["experts"], d["capacity_bytes"], d["used_bytes"]),
            std::tuple(2, 20, 8, 2000, 800));
  EXPECT_EQ(std::tuple(d["link_busy_seconds"], d["stall_seconds"], d["step_seconds"], d["moved_bytes"],
                       d["prefetched_wasted_bytes"], d["staged_bytes"]),
            std::tuple(2.5, 1.0, 8.0, 3000, 100, 70));
  EXPECT_EQ(std::tuple(d["host_experts"], d["host_rows"], d["rewinds"]), std::tuple(21, 34, 5));
  EXPECT_EQ(std::tuple(d["kv_in_bytes"], d["kv_out_bytes"]), std::tuple(8192, 512));
  EXPECT_EQ(d["recent"], (json{{"uses", 128}, {"realised", 0.75}, {"lru", 0.5}, {"belady", 0.875}}));
  EXPECT_EQ(d["layers"]["hits"], json::array({30, 50}));
  for (const LayerFigure& figure : kByLayer) EXPECT_EQ(d["layers"][figure.name].size(), 2U) << figure.name;
}

TEST(TierStatus, AWorkerHasItsOwnDevice) {
  const ControlSnapshot c = on_devices();
  EXPECT_TRUE(device_status(c.workers[0]).is_null());
  const json d = device_status(c.workers[1]);
  EXPECT_EQ(std::tuple(d["slots"], d["slot_bytes"], d["experts"], d["hits"], d["hit_rate"]),
            std::tuple(10, 100, 4, 40, 0.8));
  EXPECT_EQ(d["recent"]["belady"], 0.875);
  EXPECT_FALSE(d.contains("layers"));
}

TEST(TierStatus, ExpertsAreRowsOfShortNumbers) {
  EXPECT_EQ(experts_status({2, 3, {0.333333F, 0.666667F, 0, 0, 1, 0}}).dump(),
            R"({"experts":3,"half_life_s":60,"layers":2,"shares":[[0.3333,0.6667,0.0],[0.0,1.0,0.0]]})");
  EXPECT_EQ(experts_status({})["shares"], json::array());
}

}  // namespace
}  // namespace moestro::orchestrator

// What a device's timeline shows: the link's own transfers, each stall with its expert and its reason, and an arrow
// from a copy to the first use.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "kernels/cuda/emulated/functions.h"
#include "tests/device/device_bench.h"
#include "tests/lanes/recorded_timeline.h"

namespace moestro::device::testing {
namespace {

using lanes::Lane;
using lanes::TaskKind;
using nlohmann::json;

constexpr int kTokens = 24;
constexpr uint64_t kSlowLink = uint64_t{64} << 20;

std::vector<int32_t> model_layers(const engine::Engine& engine) {
  std::vector<int32_t> layers;
  for (size_t l = 0; l < engine.spec().layers.size(); ++l)
    if (engine.spec().layers[l].moe_index) layers.push_back(static_cast<int32_t>(l));
  return layers;
}

/// Decodes some tokens with a timeline.
void decode(DeviceBench& device, lanes::Timeline& timeline) {
  engine::Engine& engine = device.bench().engine();
  engine.set_timeline(&timeline);
  device.foresight().set_timeline(&timeline, model_layers(engine));
  const auto prompt = engine::testing::any_fixture().prompts("f32").front().ids;
  EXPECT_EQ(device.bench().greedy(prompt, kTokens).size(), static_cast<size_t>(kTokens));
}

lanes::RecordedTimeline recorded(const DeviceBenchOptions& options) {
  DeviceBench device(engine::testing::any_fixture(), options);
  lanes::RecordedTimeline timeline;
  decode(device, timeline);
  timeline.set_arrivals(nullptr);
  return timeline;
}

void expect_no_overlap(const std::vector<lanes::Transfer>& transfers) {
  Nanos end{0};
  for (const lanes::Transfer& t : transfers) {
    if (t.lane != Lane::kHostToDevice) continue;
    EXPECT_LE(end, t.begin) << "the link carries one thing at a time";
    EXPECT_LE(t.begin, t.end);
    end = t.end;
  }
}

TEST(DeviceTimeline, StallsNameWhatTheyWaitedFor) {
  const auto timeline = recorded({.slots = 3, .link_bytes_per_s = kSlowLink});
  ASSERT_GT(timeline.stalls().size(), 10u);
  for (const lanes::Stall& stall : timeline.stalls()) {
    EXPECT_LE(stall.begin, stall.end);
    EXPECT_EQ(stall.why.from, lanes::Lateness::From::kDram);
    EXPECT_EQ(stall.why.cause, LateCause::kNotForeseen) << "nothing foresees";
    // It ended because the link had brought just this expert.
    EXPECT_TRUE(std::ranges::any_of(timeline.transfers(), [&](const lanes::Transfer& t) {
      return t.copy > 0 && t.demand && t.layer == stall.layer && t.expert == stall.expert && t.end <= stall.end;
    }));
  }
}

TEST(DeviceTimeline, TheLinkDrawsWhatItCarries) {
  for (const char* predictor : {"none", "recent"}) {
    DeviceBench device(engine::testing::any_fixture(),
                       {.slots = 5, .predictor = predictor, .link_bytes_per_s = kSlowLink});
    lanes::RecordedTimeline timeline;
    decode(device, timeline);
    expect_no_overlap(timeline.transfers());
    Nanos busy{0};
    std::map<std::pair<int32_t, int32_t>, uint32_t> copies;
    for (const lanes::Transfer& t : timeline.transfers()) {
      busy += t.end - t.begin;
      if (t.copy > 0) EXPECT_EQ(t.copy, ++copies[std::pair(t.layer, t.expert)]);
    }
    // But for what is on the link at the end.
    const Nanos carried = device.device().tier_counters().link_busy;
    EXPECT_LE(busy, carried + Nanos(timeline.transfers().size() * 100'000));
    EXPECT_GE(busy.count(), carried.count() * 9 / 10);
  }
}

TEST(DeviceTimeline, PrefetchesThatComeLateHaveAReason) {
  const auto timeline = recorded({.slots = 6, .predictor = "next-layer-all", .link_bytes_per_s = kSlowLink / 4});
  std::set<LateCause> causes;
  for (const lanes::Stall& stall : timeline.stalls()) causes.insert(stall.why.cause);
  causes.erase(LateCause::kNotForeseen);
  EXPECT_FALSE(causes.empty()) << "all experts of the next layer are foreseen, and the link is far too slow";
}

TEST(DeviceTimeline, WhatHostMemoryLacksComesFromTheDrive) {
  const auto timeline = recorded({.slots = 3, .late_host = true});
  ASSERT_FALSE(timeline.stalls().empty());
  for (const lanes::Stall& stall : timeline.stalls()) EXPECT_EQ(stall.why.from, lanes::Lateness::From::kDrive);
  EXPECT_TRUE(std::ranges::any_of(timeline.transfers(),
                                  [](const lanes::Transfer& t) { return t.lane == Lane::kStoreRead && t.demand; }));
}

TEST(DeviceTimeline, ArrowsLeadFromACopyToItsFirstUse) {
  const auto path = std::filesystem::temp_directory_path() / ("moestro-arrows-" + std::to_string(::getpid()));
  for (const MoestroCudaFunctions* cuda : {static_cast<const MoestroCudaFunctions*>(nullptr),
                                           &kernels::cuda::emulated::functions()}) {
    {
      DeviceBench device(engine::testing::any_fixture(),
                         {.slots = 5, .predictor = "recent", .link_bytes_per_s = kSlowLink, .cuda = cuda});
      auto trace = lanes::ChromeTrace::create(path, "w");
      ASSERT_TRUE(trace.is_ok());
      decode(device, **trace);
    }
    std::ifstream file(path);
    const json events = json::parse(file, nullptr, false);
    ASSERT_FALSE(events.is_discarded());
    std::map<std::string, double> from, to;
    size_t reads = 0;
    for (const json& e : events) {
      if (e["ph"] == "s") EXPECT_TRUE(from.emplace(e["id"], e["ts"].get<double>()).second) << "one copy, one arrow";
      if (e["ph"] == "f") EXPECT_TRUE(to.emplace(e["id"], e["ts"].get<double>()).second) << "to the first use";
      reads += e["name"] == "read expert";
    }
    EXPECT_GT(to.size(), 10u);
    for (const auto& [id, at] : to) {
      ASSERT_TRUE(from.contains(id)) << "an arrow from nowhere";
      if (cuda == nullptr) EXPECT_LE(from[id], at);
    }
    EXPECT_EQ(reads, 0u) << "host memory has everything: what the engine waited for is the link's";
  }
  std::filesystem::remove(path);
}

TEST(DeviceTimeline, OnAGpuByTheDevicesClock) {
  // One slot for two experts of a token: however fast the link is, one of them is waited for.
  const auto timeline = recorded({.slots = 1, .cuda = &kernels::cuda::emulated::functions()});
  EXPECT_FALSE(timeline.stalls().empty());
  expect_no_overlap(timeline.transfers());
  Nanos end{0};
  std::map<TaskKind, int> kinds;
  for (const lanes::Slice& s : timeline.slices()) {
    if (s.task.lane != Lane::kCompute) continue;
    EXPECT_LE(end, s.begin) << "a stream computes one thing after another";
    EXPECT_LE(s.begin, s.end);
    end = s.end;
    ++kinds[s.task.kind];
  }
  for (const TaskKind kind : {TaskKind::kEmbed, TaskKind::kAttention, TaskKind::kRouter, TaskKind::kExpert,
                              TaskKind::kCombine, TaskKind::kHead})
    EXPECT_GT(kinds[kind], 0) << lanes::task_name(kind);
  // An expert that was waited for is computed after it came.
  for (const lanes::Stall& stall : timeline.stalls())
    EXPECT_TRUE(std::ranges::any_of(timeline.slices(), [&](const lanes::Slice& s) {
      return s.task.kind == TaskKind::kExpert && s.task.layer == stall.layer && s.task.expert == stall.expert;
    }));
}

}  // namespace
}  // namespace moestro::device::testing

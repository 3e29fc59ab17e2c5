// `moestro replay`: what it prints, and what it refuses. And its parts: slots, splits, hardware files.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "common/policy/make_policy.h"
#include "services/cli/replay/hardware.h"
#include "services/cli/replay/replay_options.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

using namespace moestro::cli;
using nlohmann::json;
using testing::HasSubstr;

/// Eight requests of a small model, each with favourites of its own.
const std::string& trace() {
  static TempDir dir;
  static const std::string path = [] {
    std::mt19937_64 random(3);
    std::ofstream out(dir / "routes.jsonl");
    out << R"({"format":"moestro-routes","version":1,"model":"small","layers":4,"experts":8,"top_k":1})" "\n";
    for (uint64_t request = 1; request <= 8; ++request)
      for (int t = 0; t < 40; ++t) {
        json line{{"r", request}, {"ph", t < 8 ? "prefill" : "decode"}, {"t", t}, {"e", json::array()}};
        for (uint64_t layer = 0; layer < 4; ++layer)
          line["e"].push_back({random() % 4 == 0 ? random() % 8 : (request + layer * 3) % 8});
        out << line.dump() << "\n";
      }
    return (dir / "routes.jsonl").string();
  }();
  return path;
}

TEST(Replay, JsonHasTheFiguresAndWhatTheyAreComparedWith) {
  const Ran ran = run_moestro({"replay", trace(), "--slots", "25%", "--copy-ratio", "2", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json row = json::parse(ran.out);
  EXPECT_EQ(row["slots"], 8);
  EXPECT_EQ(row["tokens"], 4 * 32) << "half of the requests are judged";
  EXPECT_EQ(row["uses"], 4 * 32 * 4);
  EXPECT_GT(row["hit_rate"], row["on_demand_lru"]["hit_rate"]);
  EXPECT_LE(row["clairvoyant"]["time_ms_per_token"], row["time_ms_per_token"]);
  EXPECT_LE(row["clairvoyant"]["least_time_ms"], row["clairvoyant"]["total_time_ms"]);
  EXPECT_GE(row["belady"]["hit_rate"], row["on_demand_lru"]["hit_rate"]);
  EXPECT_EQ(row["hit_rate_by_layer"].size(), 4u);
  EXPECT_EQ(row["hit_rate_by_request"].size(), 4u);
}

TEST(Replay, TheSameEachTime) {
  const std::vector<std::string> arguments{"replay", trace(), "--slots", "8", "--json"};
  EXPECT_EQ(run_moestro(arguments).out, run_moestro(arguments).out);
}

TEST(Replay, SweepIsATable) {
  const Ran text = run_moestro({"replay", trace(), "--sweep", "--predict", "none"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 2 + 12);
  EXPECT_THAT(text.out, HasSubstr("| 50 % | 4.0 |"));
}

TEST(Replay, OfHardware) {
  const std::string hardware = source_dir() / "configs/hardware/rtx-3090.yaml";
  const Ran ran = run_moestro({"replay", trace(), "--hardware", hardware,
                               "--expert-bytes", "80MB", "--vram", "1GB", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json row = json::parse(ran.out);
  EXPECT_EQ(row["slots"], 11) << "nine tenths of 1 GB";
  EXPECT_NEAR(row["link_ratio"], (80e6 / 25e9 + 10e-6) / (80e6 / (0.8 * 936e9)), 0.1);
}

TEST(Replay, RefusesByName) {
  const auto err = [](std::vector<std::string> more) {
    std::vector<std::string> all{"replay", trace()};
    all.insert(all.end(), more.begin(), more.end());
    const Ran ran = run_moestro(all);
    EXPECT_EQ(ran.exit_code, 1) << ran.out;
    return ran.err;
  };
  EXPECT_THAT(err({"--cache", "fifo"}), HasSubstr("no device cache policy is called 'fifo'"));
  EXPECT_THAT(err({"--predict", "stars"}), HasSubstr("'stars'"));
  EXPECT_THAT(err({"--slots", "0"}), HasSubstr("--slots 0"));
  EXPECT_THAT(err({"--slots", "120%"}), HasSubstr("--slots 120%"));
  EXPECT_THAT(err({"--slots", "2.5"}), HasSubstr("a whole number"));
  EXPECT_THAT(err({"--vram", "1MB"}), HasSubstr("not one expert"));
  EXPECT_THAT(err({"--hardware", "none.yaml"}), HasSubstr("--expert-bytes"));
  EXPECT_THAT(run_moestro({"replay", "/nowhere.jsonl"}).err, HasSubstr("/nowhere.jsonl"));
  EXPECT_EQ(run_moestro({"replay"}).exit_code, 2);
}

TEST(Replay, EveryHardwareFileIsWhole) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "configs/hardware")) {
    if (entry.path().extension() != ".yaml") continue;
    const auto hardware = read_hardware(entry.path());
    ASSERT_TRUE(hardware.is_ok()) << hardware.status().message();
    EXPECT_GT(hardware->memory_bytes_per_s, hardware->link_bytes_per_s) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 8u);
}

TEST(Replay, HardwareFilesLackNothing) {
  TempDir dir;
  std::ofstream(dir / "x.yaml") << "device:\n  memory: 1GiB\n";
  EXPECT_THAT(read_hardware(dir / "x.yaml").status().message(), HasSubstr("memory_gbps is missing"));
}

TEST(Replay, SplitsEvenlyAndAlwaysAlike) {
  const ReplaySplit half = split_requests(6, 0.5);
  EXPECT_EQ(half.learned, (std::vector<size_t>{1, 3, 5}));
  EXPECT_EQ(half.judged, (std::vector<size_t>{0, 2, 4}));
  EXPECT_TRUE(split_requests(6, 0).learned.empty());
}

TEST(Replay, WeightsAreCalibratedOnOtherRequests) {
  const auto routes = tier::read_routes(trace());
  ASSERT_TRUE(routes.is_ok());
  ReplayOptions options;
  const auto what = read_case(options, *routes);
  ASSERT_TRUE(what.is_ok());
  const ReplaySplit split = split_requests(routes->requests.size(), 0.5);
  const policy::WeightedOptions weights = calibrated_weights(*routes, split, what->setup);
  EXPECT_NEAR(weights.recency + weights.frequency + weights.high_frequency + weights.nearness, 1, 1e-9);
  const auto misses = [&](const policy::WeightedOptions& of) {
    tier::ReplaySetup setup = what->setup;
    setup.prefetch = false;
    const auto report = tier::replay(*routes, split.learned, setup, std::make_unique<policy::WeightedPolicy>(of), {});
    return report.uses - report.hits;
  };
  policy::WeightedOptions nearness{4, 8, 0, 0, 0, 1};
  EXPECT_LE(misses(weights), misses(nearness));
}

}  // namespace
}  // namespace moestro::test

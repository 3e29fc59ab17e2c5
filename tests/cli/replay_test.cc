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

/// The trace with gate weights: the first of two experts has most.
std::string weighted_trace(const TempDir& dir) {
  std::mt19937_64 random(5);
  std::ofstream out(dir / "weighted.jsonl");
  out << R"({"format":"moestro-routes","version":1,"model":"small","layers":4,"experts":8,"top_k":2})" "\n";
  for (uint64_t request = 1; request <= 8; ++request)
    for (int t = 0; t < 40; ++t) {
      json line{{"r", request}, {"ph", t < 8 ? "prefill" : "decode"}, {"t", t}, {"e", json::array()}};
      for (uint64_t layer = 0; layer < 4; ++layer) {
        const uint64_t first = random() % 4 == 0 ? random() % 8 : (request + layer * 3) % 8;
        line["e"].push_back({first, (first + 1 + random() % 7) % 8});
        line["w"].push_back({0.8, 0.2});
      }
      out << line.dump() << "\n";
    }
  return (dir / "weighted.jsonl").string();
}

TEST(Replay, LowCopiesAgainstFullOnesInTheSameMemory) {
  TempDir dir;
  const std::string trace = weighted_trace(dir);
  const Ran ran = run_moestro({"replay", trace, "--slots", "25%", "--copy-ratio", "4", "--mixed", "int4", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json row = json::parse(ran.out), mixed = row["mixed"];
  EXPECT_LT(row["slots"], 8) << "low copies have a part of the memory for 8 full ones";
  EXPECT_GT(mixed["low_slots"], 0);
  EXPECT_DOUBLE_EQ(row["slots_share"], 0.25);
  EXPECT_GT(mixed["low_share"], 0.1);
  EXPECT_EQ(mixed["skipped_share"], 0.0);
  EXPECT_LT(row["time_ms_per_token"], mixed["time_ms_per_token_full_only"]);
  EXPECT_LT(mixed["penalty"], mixed["penalty_full_only"]);
  const Ran text = run_moestro({"replay", trace, "--slots", "25%", "--mixed", "int4,t2=0.7"});
  EXPECT_THAT(text.out, HasSubstr("full copies only"));
  EXPECT_THAT(text.out, HasSubstr("penalty (misses by their bytes)"));
}

TEST(Replay, FullCopiesAloneHaveTheSlotsThatWereGiven) {
  TempDir dir;
  const std::string trace = weighted_trace(dir);
  for (const int slots : {2, 5, 13, 31, 32}) {
    const std::vector<std::string> plain{"replay", trace, "--slots", std::to_string(slots), "--json"};
    std::vector<std::string> with = plain;
    with.insert(with.end(), {"--mixed", "int4"});
    const Ran alone = run_moestro(plain), both = run_moestro(with);
    ASSERT_EQ(both.exit_code, 0) << both.err;
    const json full = json::parse(alone.out), mixed = json::parse(both.out);
    EXPECT_DOUBLE_EQ(mixed["slots_share"], slots / 32.0);
    EXPECT_EQ(mixed["mixed"]["time_ms_per_token_full_only"], full["time_ms_per_token"]) << slots;
    EXPECT_EQ(mixed["belady"], full["belady"]) << slots;
    EXPECT_EQ(mixed["clairvoyant"], full["clairvoyant"]) << slots;
  }
}

TEST(Replay, RefusesLowCopiesByName) {
  TempDir dir;
  const std::string weighted = weighted_trace(dir);
  const auto refusal = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "replay");
    const Ran ran = run_moestro(arguments);
    EXPECT_EQ(ran.exit_code, 1);
    return ran.err;
  };
  EXPECT_THAT(refusal({trace(), "--mixed", "int4"}), HasSubstr("--mixed: the trace lacks gate weights"));
  EXPECT_THAT(refusal({weighted, "--mixed", "mixed"}), HasSubstr("--mixed: mixed has formats"));
  EXPECT_THAT(refusal({weighted, "--mixed", "bf16"}), HasSubstr("--mixed: bf16 is not smaller"));
  EXPECT_THAT(refusal({weighted, "--mixed", "f32"}), HasSubstr("--mixed: f32 is not smaller"));
  EXPECT_THAT(refusal({weighted, "--mixed", "int4", "--slots", "1"}),
              HasSubstr("holds none in addition to the low ones"));
  EXPECT_THAT(refusal({weighted, "--mixed", "int4,t1=0.9,t2=0.5"}), HasSubstr("t1=0.9 is above t2=0.5"));
  EXPECT_THAT(refusal({weighted, "--mixed", "int4", "--cache", "belady"}), HasSubstr("one kind of copies"));
  EXPECT_THAT(refusal({weighted, "--mixed", "int4", "--expert-bytes", "1MiB", "--drive", "1GB/s", "--host", "50%"}),
              HasSubstr("leave out --drive"));
}

TEST(Replay, ACpuComputesMissingExperts) {
  TempDir dir;
  const std::string weighted = weighted_trace(dir);
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"replay", weighted, "--slots", "25%", "--copy-ratio", "4", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run_moestro(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return json::parse(ran.out);
  };
  const json device = run({}), helped = run({"--cpu-ratio", "2"}), both = run({"--cpu-ratio", "2", "--mixed", "int4"});
  EXPECT_FALSE(device.contains("cpu_share"));
  EXPECT_GT(helped["cpu_share"], 0.1);
  EXPECT_LT(helped["time_ms_per_token"], device["time_ms_per_token"]);
  EXPECT_EQ(both["mixed"]["time_ms_per_token_full_only"], helped["time_ms_per_token"]) << "the CPU helps both";
  EXPECT_GT(both["cpu_share"], 0);
  EXPECT_LT(both["mixed"]["low_share"], run({"--mixed", "int4"})["mixed"]["low_share"]);
  EXPECT_EQ(run({"--cpu-ratio", "1000"})["time_ms_per_token"], device["time_ms_per_token"]) << "it is never faster";
  EXPECT_THAT(run_moestro({"replay", weighted, "--cpu-ratio", "2"}).out, HasSubstr("the CPU computed "));
  EXPECT_THAT(run_moestro({"replay", weighted, "--cpu-ratio", "2", "--expert-bytes", "1MiB", "--drive", "1GB/s",
                           "--host", "50%"}).err,
              HasSubstr("--cpu-ratio: the CPU takes experts from host memory that has all of them: leave out --drive"));
}

TEST(Replay, SweepIsATable) {
  const Ran text = run_moestro({"replay", trace(), "--sweep", "--predict", "none"});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_EQ(std::count(text.out.begin(), text.out.end(), '\n'), 2 + 12);
  EXPECT_THAT(text.out, HasSubstr("| 50 % | 4.0 |"));
}

/// The demo model's eight domains, mixed, eight requests at once, a quarter of the experts on the device: as
/// docs/perf/activation.md has it.
TEST(Replay, JoiningByOverlapMovesFewerBytesOfMixedDomains) {
  std::vector<std::string> arguments{"replay"};
  for (const auto& file : std::filesystem::directory_iterator(source_dir() / "models/demo/routes"))
    arguments.push_back(file.path());
  std::ranges::sort(arguments.begin() + 1, arguments.end());
  arguments.insert(arguments.end(), {"--batch", "8", "--slots", "25%", "--json", "--order"});
  const auto row_of = [&](const std::string& order) {
    arguments.push_back(order);
    const Ran ran = run_moestro(arguments);
    arguments.pop_back();
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    return json::parse(ran.out);
  };
  const json first_come = row_of("first-come"), overlap = row_of("overlap");
  EXPECT_EQ(overlap["tokens"], first_come["tokens"]);
  EXPECT_LE(overlap["moved_bytes"].get<double>(), 0.85 * first_come["moved_bytes"].get<double>());
  EXPECT_LE(overlap["first_token_ms"]["p99"].get<double>(), 1.2 * first_come["first_token_ms"]["p99"].get<double>());
}

TEST(Replay, AnOrderThatCannotBe) {
  const auto refusal = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"replay", trace()});
    const Ran ran = run_moestro(more);
    EXPECT_EQ(ran.exit_code, 1);
    return ran.err;
  };
  EXPECT_THAT(refusal({"--order", "overlap", "--batch", "4"}), HasSubstr("no tokens of its prompt (\"x\")"));
  EXPECT_THAT(refusal({"--order", "first-come"}), HasSubstr("--order needs --batch 2 or more"));
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

TEST(Replay, ACpuWithADrive) {
  const Ran ran = run_moestro({"replay", trace(), "--expert-bytes", "4MiB", "--drive", "1GiB/s,latency=100us", "--host",
                               "25%", "--json"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json row = json::parse(ran.out);
  EXPECT_EQ(row["cache"], "interval");
  EXPECT_EQ(row["slots"], 8);
  EXPECT_EQ(row["uses"], 4 * 32 * 4);
  EXPECT_NEAR(row["link_ratio"], 4.0 / 1.024 + 0.1, 1e-3);
  EXPECT_FALSE(row["tiers"].contains("device"));
  const json &dram = row["tiers"]["dram"], &nvme = row["tiers"]["nvme"];
  EXPECT_EQ(dram["experts"], 8);
  EXPECT_EQ(dram["hits"], row["hits"]);
  EXPECT_EQ(dram["hits"].get<int>() + dram["late"].get<int>() + dram["misses"].get<int>(), row["uses"]);
  EXPECT_EQ(dram["stall_ms_per_token"], 0);
  EXPECT_NEAR(nvme["stall_ms_per_token"], row["stall_ms_per_token"], 1e-9);
  EXPECT_EQ(nvme["read_bytes"], row["moved_bytes"]);
  EXPECT_GT(row["hit_rate"], row["on_demand_lru"]["hit_rate"]);
  EXPECT_LE(row["clairvoyant"]["time_ms_per_token"], row["time_ms_per_token"]);
  EXPECT_LE(row["time_ms_per_token"], row["on_demand_lru"]["time_ms_per_token"]);
}

TEST(Replay, ADeviceAboveADrive) {
  const std::vector<std::string> arguments{"replay",  trace(),      "--expert-bytes", "4MiB",   "--slots", "4",
                                           "--drive", "1GiB/s", "--host", "48MiB", "--host-cache", "lfru"};
  const Ran text = run_moestro(arguments);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("host memory (12 experts, lfru)"));
  EXPECT_THAT(text.out, HasSubstr("* as if host memory had every expert"));
  auto with_json = arguments;
  with_json.push_back("--json");
  const json tiers = json::parse(run_moestro(with_json).out)["tiers"];
  const json &device = tiers["device"], &dram = tiers["dram"], &nvme = tiers["nvme"];
  EXPECT_EQ(device["hits"].get<int>() + device["late"].get<int>() + device["misses"].get<int>(), 4 * 32 * 4);
  EXPECT_EQ(dram["experts"], 12);
  EXPECT_GT(dram["hits"], 0);
  EXPECT_GT(nvme["read_bytes"], 0);
  EXPECT_GT(nvme["stall_ms_per_token"], 0);
  EXPECT_EQ(run_moestro(with_json).out, run_moestro(with_json).out) << "the same each time";
}

TEST(Replay, WithoutADriveThereIsOneTier) {
  EXPECT_FALSE(json::parse(run_moestro({"replay", trace(), "--json"}).out).contains("tiers"));
}

TEST(Replay, SweepOfADrive) {
  std::vector<std::string> arguments{"replay", trace(), "--expert-bytes", "4MiB", "--drive", "1GiB/s", "--host", "50%",
                                     "--sweep", "--predict", "none"};
  EXPECT_THAT(run_moestro(arguments).out, HasSubstr("| in memory | read / compute |"));
  arguments.push_back("--json");
  const Ran ran = run_moestro(arguments);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  const json rows = json::parse(ran.out);
  ASSERT_EQ(rows.size(), 12u);
  EXPECT_EQ(rows[0]["tiers"]["dram"]["experts"], 3);
  EXPECT_NEAR(rows[0]["link_ratio"], 0.5, 1e-6);
  EXPECT_EQ(rows[11]["tiers"]["dram"]["experts"], 16);
  EXPECT_NEAR(rows[11]["link_ratio"], 4, 1e-6);
}

TEST(Replay, RefusesADriveByName) {
  const auto err = [](std::vector<std::string> more, const std::string& bytes = "4MiB") {
    std::vector<std::string> all{"replay", trace()};
    if (!bytes.empty()) all.insert(all.end(), {"--expert-bytes", bytes});
    all.insert(all.end(), more.begin(), more.end());
    const Ran ran = run_moestro(all);
    EXPECT_EQ(ran.exit_code, 1) << ran.out;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(err({"--drive", "0", "--host", "50%"}), HasSubstr("--drive 0: a drive of 0 bytes a second"));
  EXPECT_THAT(err({"--drive", "fast", "--host", "50%"}), HasSubstr("'fast' is not a rate"));
  EXPECT_THAT(err({"--drive", "-2GiB/s", "--host", "50%"}), HasSubstr("is not a rate"));
  EXPECT_THAT(err({"--drive", "10", "--host", "50%"}), HasSubstr("more than an hour"));
  EXPECT_THAT(err({"--drive", "2GiB/s,latency=slow", "--host", "50%"}), HasSubstr("'slow' is not a duration"));
  EXPECT_THAT(err({"--drive", "2GiB/s,latency=100", "--host", "50%"}), HasSubstr("'100' is not a duration"));
  EXPECT_THAT(err({"--drive", "2GiB/s,depth=4", "--host", "50%"}), HasSubstr("'depth=4' is not latency=T"));
  EXPECT_THAT(err({"--drive", "2GiB/s,", "--host", "50%"}), HasSubstr("'' is not latency=T"));
  EXPECT_THAT(err({"--drive", "2GiB/s,latency=1us,latency=2us", "--host", "50%"}),
              HasSubstr("latency= is given twice"));
  EXPECT_THAT(err({"--drive", "2GiB/s"}), HasSubstr("--drive has no effect while host memory has every expert"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "100%"}), HasSubstr("room for all 32 experts"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "1GiB"}), HasSubstr("room for all 32 experts"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "1MiB"}), HasSubstr("give it at least 4.00 MiB"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "1%"}), HasSubstr("room for 0 experts"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "120%"}), HasSubstr("--host 120%: a share"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "-5%"}), HasSubstr("--host -5%: a share"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "much"}), HasSubstr("--host much: 'much'"));
  EXPECT_THAT(err({"--host", "50%"}), HasSubstr("--host 50% needs --drive"));
  EXPECT_THAT(err({"--host-cache", "lru"}), HasSubstr("--host-cache lru needs --drive"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "50%", "--host-cache", "auto"}),
              HasSubstr("--host-cache: no cache policy is called 'auto'"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "50%"}, ""), HasSubstr("--drive needs --expert-bytes"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "50%"}, "2TiB"), HasSubstr("at most 1TiB"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "50%", "--slots", "4", "--sweep"}),
              HasSubstr("--sweep has one memory"));
  EXPECT_THAT(err({"--drive", "2GiB/s", "--host", "50%", "--slots", "4", "--cache", "belady"}),
              HasSubstr("--cache belady knows one memory"));
}

TEST(Replay, RefusesFlagsOfADeviceForACpu) {
  for (const std::vector<std::string>& flag :
       std::vector<std::vector<std::string>>{{"--cache", "lru"}, {"--link", "4GB"}, {"--copy-ratio", "2"},
                                             {"--no-keep"}, {"--horizon", "2"}, {"--choices", "3"},
                                             {"--no-proximity"}, {"--no-budget"}, {"--no-guard"},
                                             {"--no-patience"}, {"--no-calibrate"}}) {
    std::vector<std::string> all{"replay", trace(), "--expert-bytes", "4MiB", "--drive", "1GiB/s", "--host", "50%"};
    all.insert(all.end(), flag.begin(), flag.end());
    const Ran ran = run_moestro(all);
    EXPECT_EQ(ran.exit_code, 1) << flag[0];
    EXPECT_THAT(ran.err, HasSubstr(flag[0] + " is of a device: give it --slots or --vram"));
  }
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

// `moestro timeline`: what it prints of a timeline, and what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "common/lanes/timeline.h"
#include "tests/cli/run_moestro.h"
#include "tests/cli/temp_dir.h"

namespace moestro::test {
namespace {

using namespace std::chrono_literals;
using lanes::Lane;
using lanes::TaskKind;
using nlohmann::json;
using testing::HasSubstr;

constexpr Nanos kStart = 1000s;  ///< a machine that runs for a while

/// Every expert is copied, and late for the reason that its number says.
class FourCauses final : public lanes::ExpertArrivals {
 public:
  lanes::Lateness lateness(int32_t, int32_t expert) override {
    return {expert == 3 ? lanes::Lateness::From::kDrive : lanes::Lateness::From::kDram,
            static_cast<LateCause>(expert % 4)};
  }
  uint32_t copy_of(int32_t, int32_t) override { return 1; }
};

/// Two steps of 10 ms, 5 ms apart. Each: 4 ms of attention, 2 ms of waiting, 4 ms of an expert. The link carries from
/// the second millisecond of the first step to the first of the second one.
void write_two_steps(lanes::Timeline& timeline, Nanos from) {
  FourCauses causes;
  timeline.set_arrivals(&causes);
  for (int step = 0; step < 2; ++step) {
    const Nanos at = from + step * 15ms;
    timeline.begin_step(static_cast<uint64_t>(7 + step));
    timeline.slice({{Lane::kCompute, TaskKind::kAttention, 0, -1}, 0, at, at + 4ms});
    timeline.stall({.layer = 0, .expert = 2 + step, .begin = at + 4ms, .end = at + 6ms});
    timeline.slice({{Lane::kCompute, TaskKind::kExpert, 0, 2 + step}, 1, at + 6ms, at + 10ms});
    timeline.end_step();
    if (step == 1)
      timeline.transfer({.layer = 0, .expert = 3, .copy = 1, .begin = from + 2ms, .end = from + 16ms});
  }
  timeline.set_arrivals(nullptr);
}

class TimelineTest : public testing::Test {
 protected:
  std::string record(const std::string& name, const std::string& process, Nanos from = kStart) {
    const auto path = dir_ / name;
    const auto trace = lanes::ChromeTrace::create(path, process);
    EXPECT_TRUE(trace.is_ok());
    write_two_steps(**trace, from);
    return path.string();
  }
  std::string write(const std::string& name, const std::string& text) {
    write_file(dir_ / name, text);
    return (dir_ / name).string();
  }
  static json summary(const std::vector<std::string>& files) {
    std::vector<std::string> arguments{"timeline", "--json"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    const Ran ran = run_moestro(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(ran.err, "");
    return json::parse(ran.out, nullptr, false);
  }
  /// One line, with these words, and nothing on stdout.
  static void expect_error(const std::string& file, const std::string& words) {
    const Ran ran = run_moestro({"timeline", file});
    EXPECT_EQ(ran.exit_code, 1);
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(words));
    EXPECT_THAT(ran.err, HasSubstr(file));
    EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1);
  }
  static const json& lane(const json& process, const std::string& name) {
    for (const json& l : process["lanes"])
      if (l["lane"] == name) return l;
    ADD_FAILURE() << "no lane " << name;
    return process["lanes"][0];
  }

  TempDir dir_;
};

TEST_F(TimelineTest, LanesAreBusyAndIdleWithinSteps) {
  const json process = summary({record("t.json", "worker-0")})["processes"][0];
  EXPECT_EQ(process["name"], "worker-0");
  EXPECT_EQ(process["pid"], ::getpid());
  EXPECT_EQ(process["steps"]["count"], 2);
  EXPECT_EQ(process["steps"]["time_us"], 20'000);
  EXPECT_EQ(process["steps"]["median_us"], 10'000);
  EXPECT_EQ(process["steps"]["p99_us"], 10'000);
  const json& compute = lane(process, "compute");
  EXPECT_DOUBLE_EQ(compute["busy_share"], 0.8);
  EXPECT_DOUBLE_EQ(compute["idle_share"], 0.2);
  EXPECT_EQ(compute["bubbles"], (json{{"count", 2}, {"time_us", 4000.0}, {"longest_us", 2000.0}}));
  const json& link = lane(process, "host to device");
  EXPECT_DOUBLE_EQ(link["busy_share"], 0.45) << "8 ms of the first step and 1 of the second, not what lies between";
  EXPECT_EQ(link["bubbles"], (json{{"count", 2}, {"time_us", 11000.0}, {"longest_us", 9000.0}}));
  EXPECT_EQ(process["lanes"].size(), 2u) << "lanes without a slice are left out";
}

TEST_F(TimelineTest, StallsSayWhatWasWaitedForAndWhy) {
  const json all = summary({record("t.json", "worker-0")});
  const json& stalls = all["processes"][0]["stalls"];
  EXPECT_EQ(stalls["count"], 2);
  EXPECT_DOUBLE_EQ(stalls["share"], 0.2);
  EXPECT_EQ(stalls["by_cause"]["link busy"]["count"], 1);
  EXPECT_EQ(stalls["by_cause"]["no room"]["time_us"], 2000);
  const json& second = all["longest_stalls"][1];
  EXPECT_EQ(second["at_us"], 19'000);
  EXPECT_EQ(second["begin_us"], 1e9 + 19'000);
  EXPECT_EQ(second["length_us"], 2000);
  EXPECT_EQ(second["plan"], 8);
  EXPECT_EQ(second["layer"], 0);
  EXPECT_EQ(second["expert"], 3);
  EXPECT_EQ(second["tier"], "drive");
  EXPECT_EQ(second["cause"], "no room");
  EXPECT_EQ(all["longest_stalls"][0]["tier"], "dram");
}

TEST_F(TimelineTest, TheTenLongestOfAllFiles) {
  std::vector<std::string> files;
  for (int i = 0; i < 3; ++i) {
    const auto path = (dir_ / ("t" + std::to_string(i))).string();
    const auto trace = lanes::ChromeTrace::create(path, "worker-" + std::to_string(i));
    for (int n = 0; n < 8; ++n) {
      (*trace)->begin_step(static_cast<uint64_t>(n));
      (*trace)->stall({n, i, kStart + n * 1s, kStart + n * 1s + (3 * n + i + 1) * 1ms});
      (*trace)->end_step();
    }
    files.push_back(path);
  }
  const json all = summary(files);
  EXPECT_EQ(all["processes"].size(), 3u);
  ASSERT_EQ(all["longest_stalls"].size(), 10u);
  for (int n = 0; n < 10; ++n) {
    EXPECT_EQ(all["longest_stalls"][static_cast<size_t>(n)]["length_us"], 1000.0 * (24 - n));
    EXPECT_EQ(all["longest_stalls"][static_cast<size_t>(n)]["name"], "worker-" + std::to_string((23 - n) % 3));
    EXPECT_EQ(all["longest_stalls"][static_cast<size_t>(n)]["cause"], "not foreseen") << "nobody knows better";
  }
}

TEST_F(TimelineTest, SeveralFilesShareAClock) {
  const json all = summary({record("a.json", "worker-0", kStart + 1s), record("b.json", "worker-1", kStart)});
  ASSERT_EQ(all["processes"].size(), 2u) << "of one process id, as here";
  EXPECT_EQ(all["longest_stalls"][0]["name"], "worker-0");
  EXPECT_EQ(all["longest_stalls"][0]["at_us"], 1'004'000) << "since the first slice of both";
}

TEST_F(TimelineTest, TextHasTheSame) {
  const Ran ran = run_moestro({"timeline", record("t.json", "worker \x1b[31m0")});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("2 steps, 0.020 s, median 10.000 ms, p99 10.000 ms"));
  EXPECT_THAT(ran.out, HasSubstr("compute            80.0 %   20.0 %"));
  EXPECT_THAT(ran.out, HasSubstr("2 stalls, 0.004 s, 20.0 % of the time in steps: link busy 50 %, no room 50 %"));
  EXPECT_THAT(ran.out, HasSubstr("0.019000 s       2.000 ms        0        3   drive   no room"));
  EXPECT_THAT(ran.out, testing::Not(HasSubstr("\x1b"))) << "a file does not control the terminal";
}

TEST_F(TimelineTest, AProcessMayHaveBeenKilledAtAnyByte) {
  const std::string whole = read_file(record("t.json", "worker-0"));
  const json before = summary({(dir_ / "t.json").string()});
  const size_t after_slices = whole.find("{\"name\":\"process_sort_index\"");
  for (const size_t bytes : {whole.size() - 2, after_slices, after_slices + 10}) {
    const json all = summary({write("cut.json", whole.substr(0, bytes))});
    EXPECT_EQ(all["processes"][0]["lanes"], before["processes"][0]["lanes"]) << bytes;
    EXPECT_EQ(all["longest_stalls"].size(), 2u);
  }
  for (size_t bytes = 2; bytes < whole.size(); bytes += 97)
    EXPECT_EQ(run_moestro({"timeline", write("cut.json", whole.substr(0, bytes))}).exit_code, 0) << bytes;
}

TEST_F(TimelineTest, CompressedFiles) {
  const std::string plain = read_file(record("t.json", "worker-0"));
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), plain.data(), plain.size(), 3));
  const json all = summary({write("t.json.zst", packed)});
  EXPECT_EQ(all["processes"][0]["steps"]["count"], 2);
  expect_error(write("cut.json.zst", packed.substr(0, packed.size() / 2)), "cut short");
  expect_error(write("none.json.zst", plain), "not a zstd file");
}

TEST_F(TimelineTest, AWorkerWithoutAStep) {
  const auto path = (dir_ / "t.json").string();
  lanes::ChromeTrace::create(path, "worker-0")->reset();
  const json all = summary({path});
  EXPECT_EQ(all["processes"][0]["steps"]["count"], 0);
  EXPECT_EQ(all["processes"][0]["lanes"], json::array());
  EXPECT_THAT(run_moestro({"timeline", path}).out, HasSubstr("0 steps"));
}

TEST_F(TimelineTest, WhatIsNoTimelineIsRefused) {
  expect_error((dir_ / "none.json").string(), "moestro up --model PACK --timeline");
  expect_error(dir_.path().string(), "is a directory");
  expect_error(write("empty", ""), "is not a timeline");
  expect_error(write("routes", "{\"format\":\"moestro-routes\"}\n"), "is not a timeline");
  expect_error(write("other", "{\"traceEvents\":[\n"), "is not a timeline");
  const std::string lane =
      "[\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"compute\"}},\n";
  const auto slice = [](const std::string& rest) { return "{\"ph\":\"X\",\"pid\":1,\"tid\":0," + rest + "},\n"; };
  expect_error(write("middle", lane + "{\"ph\":\n" + slice("\"ts\":1,\"dur\":1")), "middle:3: not JSON");
  expect_error(write("number", lane + "7,\n]"), "number:3: not an event");
  expect_error(write("no-time", lane + slice("\"dur\":1")), "no-time:3: a slice whose ts");
  expect_error(write("negative", lane + slice("\"ts\":1,\"dur\":-1")), "negative:3: a slice whose dur");
  expect_error(write("endless", lane + slice("\"ts\":1e300,\"dur\":1")), "endless:3: a slice whose ts");
  expect_error(write("nameless", lane + "{\"ph\":\"X\",\"pid\":1,\"tid\":9,\"ts\":1,\"dur\":1},\n"), "track 9");
  expect_error(write("line", "[\n" + std::string(size_t{17} << 20, ' ')), "16 MiB");
  EXPECT_EQ(run_moestro({"timeline"}).exit_code, 2);
}

}  // namespace
}  // namespace moestro::test

// What `moestro top` shows of the orchestrator.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/cli/top/server_look.h"

namespace moestro::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// The texts of the lines.
std::vector<std::string> texts(const std::vector<Line>& lines) {
  std::vector<std::string> all;
  for (const Line& line : lines) all.push_back(line.text());
  return all;
}

std::vector<std::string> shown(const ServerLook& before, const ServerLook& now) {
  return texts(server_lines(before, now));
}

constexpr const char* kStatus = R"({"model": "m", "state": "serving", "uptime_s": 10.5, "requests": {"running": 4},
  "sequences": {"waiting": 9, "waiting_of_batches": 7, "running": 16, "max": 4096}, "tokens": {"prompt": 100, "generated": 1000},
  "problems": [{"severity": "error", "what": "The store does not answer.", "do": "Read its log."}],
  "batches": {"by_status": {}, "stalled": null, "lines": {"in_flight": 64, "retries": 2},
    "under_way": [{"id": "batch_0123456789abcdef01234567", "status": "in_progress", "total": 200, "completed": 95, "failed": 5}]}})";

TEST(TopServer, ShowsQueueByClassAndBatches) {
  const ServerLook now = read_server_status(kStatus);
  ASSERT_EQ(now.trouble, "");
  ServerLook before = now;
  before.uptime_s -= 2, before.generated -= 500, before.prompt -= 40;
  const auto page = shown(before, now);
  EXPECT_THAT(page, ElementsAre("server   serving; 4 requests under way; 250 tokens/s written, 20.0/s read",
                                "      !  The store does not answer. Read its log.",
                                "queue    waiting: interactive 2, batch 7; at workers 16; room for 4096",
                                "batches  1 under way; 64 lines given out, 2 given out again",
                                "         batch_012..f01234567 [#######.......] 95 of 200, 5 failed, in_progress"));
  for (const std::string& line : page) EXPECT_LE(line.size(), 80u) << line;
}

TEST(TopServer, HasNoRatesBeforeThereAreTwoLooks) {
  const ServerLook now = read_server_status(kStatus);
  ServerLook away;
  away.trouble = "no answer";
  EXPECT_THAT(shown(away, now), Contains(HasSubstr("- tokens/s written")));
  EXPECT_THAT(shown(now, now), Contains(HasSubstr("- tokens/s written")));
  ServerLook former = now;
  former.uptime_s = 900, former.generated = 5000;
  EXPECT_THAT(shown(former, now), Contains(HasSubstr("- tokens/s written")))
      << "another process has taken its place";
}

TEST(TopServer, ShowsSharesOfLowCopies) {
  ServerLook now = read_server_status(kStatus);
  EXPECT_THAT(shown(now, now), Not(Contains(HasSubstr("mixed"))));
  now = read_server_status(R"({"sequences": {"waiting": 0}, "mixed": {"choices": 1000, "low": 250, "skipped": 10}})");
  ServerLook before = now;
  before.choices -= 100, before.low -= 50, before.skipped -= 2;
  EXPECT_THAT(shown(before, now), Contains("mixed    low copies served 50 %, none 2 %; since start 25 % and 1 %"));
  EXPECT_THAT(shown(now, now), Contains("mixed    low copies served -, none -; since start 25 % and 1 %"));
  before.choices = 5000;
  EXPECT_THAT(shown(before, now), Contains("mixed    low copies served -, none -; since start 25 % and 1 %"))
      << "another process has taken its place";
}

constexpr const char* kOnDevices =
    R"({"state": "serving", "uptime_s": 10, "sequences": {"waiting": 0}, "tiers": {"dram": {}, "device": {"workers": 2, "slots": 64, "experts": 60,
  "hits": 1000, "misses": 500, "prefetched": 200, "prefetched_used": 160, "prefetched_wasted": 10, "link_busy_seconds": 6.0, "step_seconds": 10.0, "stall_seconds": 2.0,
  "recent": {"uses": 100, "realised": 0.84, "lru": 0.71, "belady": 0.88}}}})";

TEST(TopServer, ShowsDevicesWhereThereAreSome) {
  const ServerLook now = read_server_status(kOnDevices);
  ServerLook before = now;
  before.uptime_s -= 2, before.device.hits -= 83, before.device.misses -= 17, before.device.link_busy_s -= 1,
      before.device.step_s -= 4, before.device.stall_s -= 1;
  const auto page = shown(before, now);
  EXPECT_THAT(page, Contains("device   83 % of 50.0/s were there; of late 84 %, LRU 71 %, Belady 88 %"));
  EXPECT_THAT(page, Contains("         link 25 % busy, stalled 25 %; 60 of 64 slots hold an expert"));
  EXPECT_THAT(page, Contains("         brought ahead since start 200: 80 % used, 5 % wasted"));
  EXPECT_THAT(page, ::testing::Not(Contains(HasSubstr("queued again")))) << "of no device yet";
  ServerLook wrong = now;
  wrong.device.host_experts = 60, wrong.device.host_rows = 90, wrong.device.rewinds = 1;
  const auto more = shown(before, wrong);
  EXPECT_THAT(more, Contains("         on the CPU 30.0 experts/s, 45.0 rows/s; layers queued again 0.50/s"));
  for (const auto* lines : {&page, &more})
    for (const std::string& line : *lines) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(shown(now, now), Contains("device   - of 0.00/s were there; of late 84 %, LRU 71 %, Belady 88 %"));
  const ServerLook cpus = read_server_status(kStatus);
  EXPECT_THAT(shown(cpus, cpus), ::testing::Not(Contains(HasSubstr("device"))));
}

TEST(TopServer, ShowsDenseWeightsThatTakeTurnsOnADevice) {
  std::string status = kOnDevices;
  status.insert(1, R"("steps": {"dense_read_bytes": 8388608, "dense_stall_seconds": 1.5}, )");
  const ServerLook now = read_server_status(status);
  ServerLook before = now;
  before.uptime_s -= 2, before.device.dense_bytes -= 4 << 20;
  before.device.step_s -= 4, before.device.dense_stall_s -= 1;
  EXPECT_THAT(shown(before, now),
              Contains("         dense weights take turns: 2.00 MiB/s over the link, stalled for them 25 %"));
  EXPECT_THAT(shown(now, now), Contains(HasSubstr("0 B/s over the link, stalled for them -")));
}

TEST(TopServer, ADevicesFiguresMayBeAnything) {
  for (const char* tier : {"3", "[]", "null", R"({"workers": "x"})", R"({"workers": 1, "recent": 7})",
                           R"({"workers": 1, "recent": {"lru": "x"}, "link_busy_seconds": null, "hits": -3})"}) {
    const ServerLook look =
        read_server_status(std::string(R"({"sequences": {"waiting": 1}, "tiers": {"device": )") + tier + "}}");
    EXPECT_EQ(look.trouble, "") << tier;
    EXPECT_FALSE(server_lines(look, look).empty()) << tier;
  }
}

TEST(TopServer, WhatAnswersMayBeAnything) {
  for (const char* other : {"", "{", "[]", "null", "{}", R"({"sequences": 3})", "<html>"}) {
    const ServerLook look = read_server_status(other);
    EXPECT_THAT(shown(look, look), ElementsAre("server   what answers is no orchestrator of this version"))
        << other;
  }
  const ServerLook odd = read_server_status(
      R"({"state": 3, "uptime_s": "x", "sequences": {"waiting": 1, "waiting_of_batches": 9}, "problems": {"a": 1}, "batches": {"under_way": [1, null]}})");
  EXPECT_EQ(odd.waiting_of_batches, 1u);
  EXPECT_EQ(odd.batches.size(), 2u);
  EXPECT_FALSE(server_lines(odd, odd).empty());
  const ServerLook harmful = read_server_status(R"({"state": "\u001b[2J\n", "sequences": {"waiting": 1}})");
  for (const std::string& line : shown(harmful, harmful))
    EXPECT_EQ(line.find_first_of("\x1b\n"), std::string::npos);
}

TEST(TopServer, ShowsLatenciesOfLate) {
  const char* told = R"({"state": "serving", "uptime_s": 90, "sequences": {"waiting": 0}, "recent": {"seconds": 30.4,
    "ttft_s": {"p50": 0.249, "p99": 1.2}, "tpot_s": {"p50": 0.0662, "p99": 0.101}, "step_s": null}})";
  const ServerLook now = read_server_status(told);
  EXPECT_THAT(shown(now, now), Contains("latency  first token p50 249 ms, p99 1.20 s; output token p50 66.2 ms, p99 "
                                        "101 ms; step p50 -, p99 - (of the last 30 s)"));
  const ServerLook older = read_server_status(kStatus);
  EXPECT_THAT(shown(older, older), ::testing::Not(Contains(HasSubstr("speed"))));
  EXPECT_THAT(shown(older, older), ::testing::Not(Contains(HasSubstr("latency")))) << "a server that does not say it";
  for (const char* odd :
       {"3", "[]", "null", R"({"seconds": "x"})", R"({"seconds": 3, "ttft_s": 7, "tpot_s": {"p50": {}}})"}) {
    const std::string status = std::string(R"({"sequences": {"waiting": 1}, "recent": )") + odd + "}";
    const ServerLook look = read_server_status(status);
    EXPECT_EQ(look.trouble, "") << odd;
    EXPECT_FALSE(shown(look, look).empty());
  }
}

TEST(TopServer, TonesSayHowBadItIs) {
  ServerLook look = read_server_status(kStatus);
  EXPECT_THAT(server_lines(look, look)[0].drawn(true), HasSubstr("\x1b[1;31mserving"));
  EXPECT_THAT(server_lines(look, look)[1].drawn(true), ::testing::StartsWith("\x1b[1;31m      !"));
  look.problems[0].error = false;
  EXPECT_THAT(server_lines(look, look)[0].drawn(true), HasSubstr("\x1b[33mserving"));
  look.problems.clear();
  EXPECT_THAT(server_lines(look, look)[0].drawn(true), HasSubstr("\x1b[32mserving"));
  look.requests = 1;
  EXPECT_THAT(shown(look, look)[0], HasSubstr("1 request under way"));
}

TEST(TopServer, SpeedStandsBesideItsForecast) {
  const ServerLook both = read_server_status(R"({"sequences": {"waiting": 1},
    "recent": {"prompts": {"tokens_per_s": 15800, "stalled": 0.8}, "decoding": {"tokens_per_s": 30, "stalled": 0.1}},
    "forecast": {"sequences": 12, "prompts": {"tokens_per_s": 16000, "bound": "link"},
                 "decoding": {"tokens_per_s": 40.5, "bound": "compute"}}})");
  EXPECT_THAT(shown(both, both),
              Contains("speed    prompts 15.8k tokens/s, forecast 16.0k (bound by link); stalled 80 %"));
  EXPECT_THAT(
      shown(both, both),
      Contains("         decoding 30.0 tokens/s, forecast 40.5 with 12 at once (bound by compute); stalled 10 %"));
  const ServerLook measured = read_server_status(
      R"({"sequences": {"waiting": 1}, "recent": {"prompts": null, "decoding": {"tokens_per_s": 30, "stalled": 0}}})");
  EXPECT_THAT(shown(measured, measured), Contains("speed    prompts -"));
  EXPECT_THAT(shown(measured, measured), Contains("         decoding 30.0 tokens/s; stalled 0 %"));
}

}  // namespace
}  // namespace moestro::cli

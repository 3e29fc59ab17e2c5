// The samples of the last five minutes, and what is read from them.

#include "orchestrator/api/status_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "orchestrator/api/status_report.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;

constexpr int kGenerated = 1, kDeviceHits = 7, kStoreReads = 9, kSteps = 14;  ///< places in kMembers

/// A real status at `uptime_s`, with so many steps of 0.7 and of 40 ms behind it.
json status_at(double uptime_s, int quick = 0, int slow = 0) {
  static const RequestMetrics requests("m");
  StatusSources now;
  now.model = "m", now.uptime_s = uptime_s;
  now.control.sampled_tokens = static_cast<uint64_t>(uptime_s * 10);
  for (int i = 0; i < quick; ++i) now.control.steps.add(0.0007);
  for (int i = 0; i < slow; ++i) now.control.steps.add(0.04);
  return status_report(now, requests, json::object());
}

TEST(StatusHistory, KeepsWhatThePageDrawsAndNoMore) {
  StatusHistory history;
  json status = status_at(1, 3, 2);
  history.add(status);
  status["tiers"]["device"]["hits"] = 5, status["store"]["read_bytes"] = 77, status["uptime_s"] = 2;
  history.add(status);
  const json report = history.report();
  EXPECT_EQ(report["members"], json(StatusHistory::kMembers));
  ASSERT_EQ(report["samples"].size(), 2u);
  const json &first = report["samples"][0], &second = report["samples"][1];
  EXPECT_EQ(first.size(), StatusHistory::kMembers.size());
  EXPECT_EQ(first[0], 1);
  EXPECT_EQ(first[kGenerated], 10);
  EXPECT_EQ(first[kSteps], status["steps"]["duration_s"]["counts"]);
  EXPECT_TRUE(first[kDeviceHits].is_null() && first[kStoreReads].is_null()) << "no device, and no store";
  EXPECT_EQ(second[kDeviceHits], 5);
  EXPECT_EQ(second[kStoreReads], 77);
}

TEST(StatusHistory, EveryMemberIsOneOfAStatus) {
  StatusHistory history;
  StatusSources now;
  now.store.emplace();
  now.control.device_layers.resize(1);
  history.add(status_report(now, RequestMetrics("m"), json::object()));
  const json report = history.report();
  for (const json& value : report["samples"][0]) EXPECT_FALSE(value.is_null());
}

TEST(StatusHistory, FiveMinutesTakeABoundedNumberOfBytes) {
  StatusHistory history;
  json status = status_at(0);
  for (const char* histogram : {"/latency/ttft_s/counts", "/latency/tpot_s/counts", "/steps/duration_s/counts"})
    for (json& count : status[json::json_pointer(histogram)]) count = UINT64_MAX;
  for (size_t second = 0; second < 2 * StatusHistory::kSamplesMax; ++second)
    status["uptime_s"] = second, history.add(status);
  const json report = history.report();
  EXPECT_EQ(report["samples"].size(), StatusHistory::kSamplesMax);
  EXPECT_EQ(report["samples"].front()[0], StatusHistory::kSamplesMax);
  EXPECT_EQ(report["samples"].back()[0], 2 * StatusHistory::kSamplesMax - 1);
  EXPECT_LT(report.dump().size(), 512u << 10) << "at the largest counts there are";
}

TEST(StatusHistory, RecentLatenciesAreThoseOfTheWindow) {
  StatusHistory history;
  for (int second = 1; second <= 60; ++second) history.add(status_at(second, 1000));
  const json recent = history.recent(status_at(60.5, 1000, 100));
  EXPECT_DOUBLE_EQ(recent["seconds"], 30.5);
  EXPECT_TRUE(recent["ttft_s"].is_null() && recent["tpot_s"].is_null()) << "nothing was counted";
  EXPECT_DOUBLE_EQ(recent["step_s"]["p50"], 0.0375) << "half way from 0.025 to 0.05: the quick steps are older";
  EXPECT_DOUBLE_EQ(recent["step_s"]["p99"], 0.025 + 0.025 * 0.99);
}

TEST(StatusHistory, ShortlyAfterTheStartTheyAreThoseSinceTheStart) {
  StatusHistory history;
  const json at_once = history.recent(status_at(0.5));
  EXPECT_EQ(at_once, json({{"seconds", 0.5},
                           {"ttft_s", nullptr},
                           {"tpot_s", nullptr},
                           {"step_s", nullptr},
                           {"prompts", nullptr},
                           {"decoding", nullptr}}));
  history.add(status_at(1, 50));
  const json recent = history.recent(status_at(20, 99, 1));
  EXPECT_DOUBLE_EQ(recent["seconds"], 20);
  EXPECT_LT(recent["step_s"]["p50"], 0.001);
  EXPECT_DOUBLE_EQ(recent["step_s"]["p99"], 0.001) << "99 of 100 are in that bucket";
}

TEST(Quantile, IsSpreadWithinItsBucket) {
  const std::vector<double> bounds{1, 2, 4};
  EXPECT_DOUBLE_EQ(quantile(bounds, {10, 0, 0, 0}, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(quantile(bounds, {0, 0, 10, 0}, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(bounds, {5, 0, 5, 0}, 0.5), 1);
  EXPECT_DOUBLE_EQ(quantile(bounds, {5, 0, 5, 0}, 0.75), 3);
  EXPECT_DOUBLE_EQ(quantile(bounds, {0, 0, 0, 3}, 0.5), 4) << "beyond all bounds";
  EXPECT_DOUBLE_EQ(quantile(bounds, {1, 0, 0, 9}, 0.99), 4);
}

}  // namespace
}  // namespace moestro::orchestrator

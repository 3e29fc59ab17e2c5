// The forecast of `moestro up`, as it is left for the orchestrator and shown beside what is measured.

#include "orchestrator/api/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "orchestrator/api/status_history.h"
#include "orchestrator/api/status_report.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Forecast forecast() {
  return {.schedule = "layerwise",
          .step_tokens = 4096,
          .prompt = 512,
          .generate = 128,
          .sequences = 12,
          .prompts = {16000, "link"},
          .decoding = {40.5, "compute"}};
}

class ForecastFile : public testing::Test {
 protected:
  ForecastFile() {
    std::string name = (std::filesystem::temp_directory_path() / "moestro-forecast-XXXXXX").string();
    dir_ = ::mkdtemp(name.data());
  }
  ~ForecastFile() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

TEST_F(ForecastFile, IsReadAsItWasWritten) {
  EXPECT_EQ(read_forecast(dir_).status().code(), Code::kNotFound);
  ASSERT_TRUE(write_forecast(dir_, forecast()).is_ok());
  const auto read = read_forecast(dir_);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(forecast_json(*read), forecast_json(forecast()));
  remove_forecast(dir_);
  EXPECT_EQ(read_forecast(dir_).status().code(), Code::kNotFound) << "that of an earlier start is nobody's";
}

TEST_F(ForecastFile, WhatIsNoForecastIsSaidToBeNone) {
  for (const char* text : {"", "{", "[]", "{}", R"({"schedule": 3})"}) {
    std::ofstream(dir_ / "forecast.json") << text;
    const auto read = read_forecast(dir_);
    EXPECT_EQ(read.status().code(), Code::kCorrupt) << text;
    EXPECT_THAT(read.status().message(), HasSubstr("forecast.json is no forecast"));
  }
}

json speeds_at(double uptime_s, uint64_t steps, bool forecast_there = true) {
  static const RequestMetrics requests("m");
  StatusSources now;
  now.model = "m", now.uptime_s = uptime_s;
  if (forecast_there) now.forecast = forecast();
  now.control.prompt_steps = {steps, steps * 4000, steps * 250'000, steps * 200'000};
  now.control.decoding_steps = {2 * steps, 2 * steps * 3, 2 * steps * 100'000, 2 * steps * 10'000};
  return status_report(now, requests, json::object());
}

TEST(Speed, StandsBesideItsForecast) {
  StatusHistory history;
  const json status = speeds_at(10, 4), recent = history.recent(status);
  EXPECT_EQ(status["forecast"]["prompts"], (json{{"tokens_per_s", 16000.0}, {"bound", "link"}}));
  EXPECT_EQ(status["forecast"]["sequences"], 12);
  EXPECT_DOUBLE_EQ(recent["prompts"]["tokens_per_s"], 16000) << "4000 in 250 ms";
  EXPECT_EQ(recent["prompts"]["step_tokens"], 4000);
  EXPECT_DOUBLE_EQ(recent["prompts"]["stalled"], 0.8);
  EXPECT_EQ(recent["prompts"]["bound"], "experts");
  EXPECT_DOUBLE_EQ(recent["decoding"]["tokens_per_s"], 30) << "3 in 100 ms";
  EXPECT_EQ(recent["decoding"]["bound"], "compute");
  EXPECT_TRUE(speeds_at(10, 4, false)["forecast"].is_null());
}

TEST(Speed, IsBoundByWhatStepsWaitedForMost) {
  static const RequestMetrics requests("m");
  const auto bound = [](uint64_t stall_us, uint64_t dense_us, uint64_t kv_us) -> std::string {
    StatusSources now;
    now.model = "m", now.uptime_s = 10;
    now.control.decoding_steps = {.steps = 1, .tokens = 1, .step_us = 100, .stall_us = stall_us,
                                  .dense_stall_us = dense_us, .kv_stall_us = kv_us};
    return StatusHistory().recent(status_report(now, requests, json::object()))["decoding"]["bound"];
  };
  EXPECT_EQ(bound(50, 50, 0), "compute");
  EXPECT_EQ(bound(90, 0, 0), "experts");
  EXPECT_EQ(bound(90, 45, 0), "experts") << "as much as for dense weights";
  EXPECT_EQ(bound(90, 60, 10), "dense weights");
  EXPECT_EQ(bound(90, 20, 50), "kv");
  EXPECT_EQ(bound(90, 35, 30), "dense weights") << "25 are for experts";
}

TEST(Speed, IsOfTheLastHalfMinute) {
  StatusHistory history;
  EXPECT_TRUE(history.recent(speeds_at(1, 0))["prompts"].is_null()) << "no step yet";
  history.add(speeds_at(10, 4));
  const json quiet = history.recent(speeds_at(50, 4));
  EXPECT_TRUE(quiet["prompts"].is_null() && quiet["decoding"].is_null()) << "none since";
  json faster = speeds_at(50, 4);
  faster["steps"]["prompts"]["count"] = 5, faster["steps"]["prompts"]["tokens"] = 5 * 4000;
  faster["steps"]["prompts"]["seconds"] = 4 * 0.25 + 0.125;
  EXPECT_DOUBLE_EQ(history.recent(faster)["prompts"]["tokens_per_s"], 32000) << "of that one step";
}

}  // namespace
}  // namespace moestro::orchestrator

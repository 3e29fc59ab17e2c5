// What the status says, and what it says is wrong.

#include "orchestrator/api/status_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "orchestrator/api/metric_text.h"
#include "orchestrator/page/status_page.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

StatusSources serving() {
  StatusSources s;
  s.model = "m", s.uptime_s = 7, s.had_worker = true, s.queue_max = 100, s.has_store = true;
  s.store.emplace().arena_bytes = 1000;
  ControlSnapshot::Worker w;
  w.name = "w", w.device = "cpu", w.age_s = 0.2, w.plans = 4, w.step_us = 2'000'000, w.last_step_us = 250'000;
  s.control.workers = {w};
  return s;
}

std::vector<std::string> words(const json& problems, const char* severity) {
  std::vector<std::string> all;
  for (const json& p : problems)
    if (p["severity"] == severity) all.push_back(p["what"].get<std::string>());
  return all;
}

TEST(StatusReport, OfAClusterThatServesNothingIsWrong) {
  const RequestMetrics requests("m");
  const json r = status_report(serving(), requests, json::object());
  EXPECT_EQ(r["state"], "serving");
  EXPECT_EQ(r["problems"], json::array());
  EXPECT_EQ(r["workers"][0]["state"], "idle");
  EXPECT_EQ(r["workers"][0]["last_step_s"], 0.25);
  EXPECT_TRUE(r["tiers"]["dram"]["hit_rate"].is_null()) << "nothing has been wanted yet";
  EXPECT_EQ(r["tiers"]["dram"]["capacity_bytes"], 1000);
}

TEST(StatusReport, HasHistogramsBucketByBucket) {
  RequestMetrics requests("m");
  for (const double s : {0.002, 0.002, 0.3, 1000.0}) requests.first_token(std::chrono::duration<double>(s));
  StatusSources now = serving();
  for (const double s : {0.0004, 0.0007, 90.0}) now.control.steps.add(s);
  const json r = status_report(now, requests, json::object());
  const json ttft = r["latency"]["ttft_s"], steps = r["steps"]["duration_s"];
  for (const json& h : {ttft, steps}) EXPECT_EQ(h["counts"].size(), h["bounds"].size() + 1);
  EXPECT_EQ(ttft["counts"][1], 2) << "0.001 to 0.0025";
  EXPECT_EQ(ttft["counts"].back(), 1) << "longer than all bounds";
  EXPECT_EQ(ttft["count"], 4);
  EXPECT_EQ(steps["counts"][0], 1);
  EXPECT_EQ(steps["counts"][1], 1);
  EXPECT_EQ(steps["counts"].back(), 1);
}

TEST(StatusReport, SaysWhenTheKvCacheIsWhatRequestsWaitFor) {
  StatusSources now = serving();
  now.control.waiting = 5, now.control.waiting_of_batches = 2, now.control.kv_blocks_used = 80,
  now.control.kv_blocks_total = 100;
  EXPECT_THAT(words(problems_of(now, json::object()), "warning"),
              ::testing::ElementsAre(AllOf(HasSubstr("3 sequences cannot start"), HasSubstr("80 of 100 blocks"))));
  now.control.waiting = 3;
  EXPECT_THAT(words(problems_of(now, json::object()), "warning"),
              ::testing::ElementsAre(HasSubstr("1 sequence cannot start")));
  now.control.waiting = 2;
  EXPECT_THAT(problems_of(now, json::object()), ::testing::IsEmpty()) << "lines of batches wait as they should";
  now.control.waiting = 5, now.control.kv_blocks_used = 60;
  EXPECT_THAT(problems_of(now, json::object()), ::testing::IsEmpty());
}

TEST(StatusReport, EachStateHasItsName) {
  const RequestMetrics requests("m");
  StatusSources now = serving();
  now.control.workers.clear();
  EXPECT_EQ(status_report(now, requests, json::object())["state"], "no_worker");
  EXPECT_THAT(words(problems_of(now, json::object()), "error"), ::testing::ElementsAre(HasSubstr("No worker")));
  now.had_worker = false;
  EXPECT_EQ(status_report(now, requests, json::object())["state"], "starting");
  EXPECT_THAT(words(problems_of(now, json::object()), "warning"), ::testing::ElementsAre(HasSubstr("being loaded")));
  now.draining = true;
  EXPECT_EQ(status_report(now, requests, json::object())["state"], "draining");
}

TEST(Problems, TheWorstStandFirst) {
  StatusSources now = serving();
  now.control.workers[0].age_s = 1.5;
  now.control.workers[0].name = "lazy";
  now.control.waiting = 60, now.control.running = 30;
  now.store->unreadable = 2, now.store->scrub_mismatches = 1, now.store->memory_changed_s = 90;
  const json more{{"batches", {{"stalled", "no space left on device"}}}};
  const json problems = problems_of(now, more);
  EXPECT_THAT(words(problems, "error"),
              ::testing::ElementsAre(HasSubstr("2 blobs cannot be read: requests that need them fail"),
                                     HasSubstr("no space left")));
  EXPECT_THAT(words(problems, "warning"),
              ::testing::ElementsAre(AllOf(HasSubstr("lazy"), HasSubstr("1 s")), HasSubstr("90 of 100"),
                                     HasSubstr("1 blob changed in memory and had to be read again, the last one "
                                               "90 s ago.")));
  EXPECT_EQ(problems[0]["severity"], "error");
  EXPECT_EQ(problems[1]["severity"], "error");
  for (const json& p : problems) EXPECT_FALSE(p["do"].get<std::string>().empty());
}

TEST(Problems, BlobsThatHaveBeenRepairedAreNone) {
  StatusSources now = serving();
  now.store->bad_blobs = 5;
  EXPECT_EQ(problems_of(now, json::object()), json::array());
  EXPECT_EQ(health_report(now), json({{"status", "ok"}}));
  now.store->unreadable = 1;
  EXPECT_EQ(health_report(now)["status"], "degraded");
  EXPECT_THAT(words(problems_of(now, json::object()), "error"),
              ::testing::ElementsAre("1 blob cannot be read: requests that need it fail."));
}

TEST(Problems, MemoryThatChangedIsOneForADay) {
  StatusSources now = serving();
  now.store->scrub_mismatches = 2;
  const auto warnings = [&](double seconds) {
    now.store->memory_changed_s = seconds;
    return words(problems_of(now, json::object()), "warning");
  };
  EXPECT_THAT(warnings(3599), ::testing::ElementsAre(HasSubstr("2 blobs changed in memory and had to be read again, "
                                                               "the last one 59 min ago.")));
  EXPECT_THAT(warnings(23.5 * 3600), ::testing::ElementsAre(HasSubstr("23 h ago")));
  EXPECT_THAT(warnings(24 * 3600), ::testing::IsEmpty());
}

TEST(Problems, AStoreThatIsAwayIsOneUnlessThereIsNone) {
  StatusSources now = serving();
  now.store.reset();
  EXPECT_THAT(words(problems_of(now, json::object()), "error"),
              ::testing::ElementsAre(HasSubstr("store does not answer")));
  now.has_store = false;
  EXPECT_EQ(problems_of(now, json::object()), json::array());
}

TEST(Problems, AWorkerThatIsStuckInAStepIsOne) {
  StatusSources now = serving();
  ControlSnapshot::Worker& w = now.control.workers[0];
  w.plans_in_flight = 1, w.step_age_s = 29;
  EXPECT_EQ(problems_of(now, json::object()), json::array());
  w.step_age_s = 34.5;
  EXPECT_THAT(words(problems_of(now, json::object()), "error"),
              ::testing::ElementsAre(AllOf(HasSubstr("Worker w "), HasSubstr("one step for 34 s"))));
  w.last_step_us = 7'000'000;
  EXPECT_EQ(problems_of(now, json::object()), json::array()) << "its steps are that slow";
  w.last_step_us = 6'000'000;
  EXPECT_EQ(problems_of(now, json::object()).size(), 1u);
}

TEST(Problems, AWorkerWithTheVersionBeforeIsOne) {
  StatusSources now = serving();
  now.control.workers[0].outdated = true;
  EXPECT_THAT(words(problems_of(now, json::object()), "warning"),
              ::testing::ElementsAre(AllOf(HasSubstr("pack was replaced"), HasSubstr("worker w "))));
}

TEST(Health, NamesTheErrorsOfAClusterThatAnswers) {
  StatusSources now = serving();
  now.control.workers[0].age_s = 1.5;  // a warning
  EXPECT_EQ(health_report(now), json({{"status", "ok"}}));
  now.store.reset();
  const json degraded = health_report(now);
  EXPECT_EQ(degraded["status"], "degraded");
  ASSERT_EQ(degraded["problems"].size(), 1u);
  EXPECT_THAT(degraded["problems"][0].get<std::string>(), HasSubstr("store does not answer"));
}

TEST(MetricText, LeavesOutFamiliesWithoutSamples) {
  MetricText text;
  text.gauge("moestro_a", "None.").counter("moestro_b_total", "One.").sample(3, {{"l", "a\"b\\c\nd"}});
  text.gauge("moestro_c", "None either.");
  EXPECT_EQ(text.text(),
            "# HELP moestro_b_total One.\n# TYPE moestro_b_total counter\nmoestro_b_total{l=\"a\\\"b\\\\c\\nd\"} 3\n");
}

TEST(StatusPage, LetsItsOwnScriptRunAndNothingElse) {
  const StatusPage& page = status_page();
  const auto policy = page.headers.at(0);
  EXPECT_EQ(policy.first, "Content-Security-Policy");
  EXPECT_THAT(policy.second, AllOf(HasSubstr("default-src 'none'"), HasSubstr("script-src 'sha256-"),
                                   HasSubstr("style-src 'sha256-"), HasSubstr("connect-src 'self'"),
                                   HasSubstr("frame-ancestors 'none'"), ::testing::Not(HasSubstr("unsafe"))));
  EXPECT_THAT(page.html, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("</html>")));
  for (const char* outside : {"http://127", "https://", "innerHTML", "insertAdjacent", "document.write", "eval(",
                              "localStorage", " style=", " onclick"})
    EXPECT_EQ(page.html.find(outside), std::string::npos) << outside;
}

TEST(StatusPage, HashesWhatABrowserHashes) {
  // echo -n "alert(1)" | openssl dgst -sha256 -binary | base64
  EXPECT_EQ(inline_hash("<p><script>alert(1)</script>", "script"),
            "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='");
  EXPECT_EQ(inline_hash("<p>", "script"), "");
  EXPECT_EQ(inline_hash("<script>never closed", "script"), "");
}

}  // namespace
}  // namespace moestro::orchestrator

// Batches in a Redis whose other hosts serve another version of the model under one name.

#include "orchestrator/state/redis_store.h"
#include "tests/batch/batch_api_fixture.h"

namespace moestro::orchestrator {
namespace {

class SharedNamesTest : public BatchApiTest {
 protected:
  void SetUp() override {
    BatchApiTest::SetUp();
    if (!IsSkipped()) box_->set_lease(std::chrono::hours(4));
  }
  void serve(const std::string& version) { version_ = std::make_shared<const std::string>(version); }
  std::unique_ptr<RedisStore> other() {
    return std::make_unique<RedisStore>(
        RedisOptions{*parse_redis_url(box_->redis().url()), "other", std::chrono::hours(4)});
  }
  json batches() { return ask("GET", "/v1/moestro/status")["batches"]; }
  bool leaves_lines() { return !batches()["left_to_others"].empty(); }
  uint64_t completed(const std::string& id) { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"]; }
  /// Until the runner has looked at the batches, and again.
  void look_twice() {
    RedisLink link(*parse_redis_url(box_->redis().url()), {});
    const std::string alive = "moestro:host:" + box_->host();
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(link.call({"DEL", alive}).is_ok());
      run_until([&] { return (*link.call({"EXISTS", alive}))->integer() == 1; });
    }
  }
};

TEST_P(SharedNamesTest, LinesWaitWhileAnotherHostServesAnotherVersionAndGoOnWhenItLeaves) {
  const auto host = other();
  stop();
  ASSERT_TRUE(host->beat({"2", {"m"}}).is_ok());
  start();
  join();
  const std::string id = create(upload(lines(8)));
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress" && leaves_lines(); });
  look_twice();
  EXPECT_EQ(completed(id), 0u);
  const json status = batches();
  EXPECT_EQ(status["version"], "1");
  EXPECT_EQ(status["left_to_others"], (json{{{"model", "m"}, {"version", "2"}, {"hosts", {"other"}}}}));
  EXPECT_EQ(status["under_way"][0]["waits_for_version"], "2");
  EXPECT_THAT(ask("GET", "/v1/moestro/status")["problems"].dump(), HasSubstr("another version of m"));
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("moestro_batch_names_left{model=\"m\"} 1\n"));
  EXPECT_EQ(ask("POST", "/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}})["object"], "text_completion");
  EXPECT_EQ(host->take(id, 3)->size(), 3u) << "they are its";

  ASSERT_TRUE(host->hold_only(id, {}).is_ok() && host->leave().is_ok());
  EXPECT_EQ(wait_for(id, "completed")["request_counts"]["completed"], 8);
  EXPECT_FALSE(leaves_lines());
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("moestro_batch_names_left{model=\"m\"} 0\n"));
}

TEST_P(SharedNamesTest, OneThatChangesGivesTheLinesItHasBackToTheOthers) {
  const auto host = other();
  ASSERT_TRUE(host->beat({"1", {"m"}}).is_ok());
  const std::string id = create(upload(lines(8)));
  run_until([&] { return batches()["lines"]["in_flight"] == 4; });  // no worker: they wait
  serve("2");
  run_until([&] { return leaves_lines() && batches()["lines"]["in_flight"] == 0; });
  look_twice();
  join();
  std::vector<LineResult> results;
  const auto taken = host->take(id, 9);
  for (const QueuedLine& line : *taken) results.push_back({line.number, true, "{}"});
  EXPECT_EQ(results.size(), 8u);
  const auto kept = host->put_results(id, results);
  ASSERT_TRUE(kept.is_ok()) << kept.status().message();
  EXPECT_EQ(wait_for(id, "completed")["request_counts"]["completed"], 8) << "files are written by whoever leads";
  EXPECT_THAT(send("GET", "/metrics")->body, HasSubstr("lines_total{model=\"m\",result=\"ok\"} 0\n"));
}

TEST_P(SharedNamesTest, TheLastThatChangesTakesTheNameWithIt) {
  const auto host = other();
  ASSERT_TRUE(host->beat({"1", {"m"}}).is_ok());
  join();
  EXPECT_EQ(wait_for(create(upload(lines(4))), "completed")["request_counts"]["completed"], 4);
  serve("2");
  run_until([&] { return leaves_lines(); });
  ASSERT_TRUE(host->beat({"2", {"m"}}).is_ok());
  EXPECT_EQ(wait_for(create(upload(lines(4))), "completed")["request_counts"]["completed"], 4);
}

TEST_P(SharedNamesTest, WithoutAVersionNoLineIsTaken) {
  stop();
  serve("");
  start();
  join();
  const std::string id = create(upload(lines(4)));
  run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
  look_twice();
  EXPECT_EQ(completed(id), 0u);
  EXPECT_TRUE(batches()["version"].is_null());
  serve("1");
  EXPECT_EQ(wait_for(id, "completed")["request_counts"]["completed"], 4);
}

INSTANTIATE_TEST_SUITE_P(One, SharedNamesTest, ::testing::Values(test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator

// Batches whose disk is full, whose input is harmed, or whose state goes away.

#include <time.h>

#include <fstream>
#include <future>

#include "tests/batch/batch_api_fixture.h"

namespace moestro::orchestrator {
namespace {

class SqliteBatchApiTest : public BatchApiTest {};
class RedisBatchApiTest : public BatchApiTest {};

TEST_P(SqliteBatchApiTest, AFullDiskStopsABatchAndLosesNothing) {
  join();
  const std::string file = upload(lines(20));
  ASSERT_FALSE(file.empty());
  std::atomic<bool> limited{false};
  const std::string id = create(file);
  runner_->ask([&] { limited = sqlite().limit_pages(1).is_ok(); });
  run_until([&] { return limited.load(); });
  json order{{"input_file_id", file},
             {"endpoint", "/v1/completions"},
             {"completion_window", "24h"},
             {"metadata", json::object()}};
  for (int i = 0; i < 16; ++i) order["metadata"][std::to_string(i)] = std::string(512, 'x');  // more than a page
  EXPECT_EQ(ask("POST", "/v1/batches", order, 507)["error"]["type"], "insufficient_storage_error");
  EXPECT_EQ(ask("GET", "/v1/batches")["data"].size(), 1u);
  run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
  runner_->ask([&] { limited = !sqlite().limit_pages(1'000'000).is_ok(); });
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"]["completed"], 20);
  EXPECT_EQ(custom_ids(content(batch["output_file_id"])).size(), 20u);
  EXPECT_TRUE(ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_null());
}

TEST_P(SqliteBatchApiTest, ResultsCanBeDroppedWhileTheDiskIsFull) {
  join();
  const std::string id = create(upload(lines(200)));
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  std::atomic<bool> limited{false};
  runner_->ask([&] { limited = sqlite().limit_pages(1).is_ok(); });
  run_until([&] { return limited && ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
  EXPECT_EQ(ask("POST", "/v1/batches/" + id + "/cancel")["status"], "cancelling");
  ask("POST", "/v1/batches/" + id + "/cancel", {{"drop_results", true}});
  const json batch = wait_for(id, "cancelled");
  EXPECT_EQ(batch["errors"]["data"][0]["code"], "results_dropped") << batch;
  EXPECT_TRUE(batch["output_file_id"].is_null() && batch["error_file_id"].is_null());
}

/// Lines that are to be tried again while nothing may begin.
class LinesToTryAgain : public BatchApiTest {
 protected:
  void SetUp() override {
    BatchApiTest::SetUp();
    stop();
    limits_.lines_in_flight = [] { return size_t{100}; };  // more than the queue takes
    limits_.retry_max = std::chrono::milliseconds(10);
    limits_.stalled = std::chrono::hours(1);
    start();
    create(upload(lines(100)));  // no worker yet: they stay in the queue
    run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["lines"]["retries"] > 20; });
  }
  /// What the runner's thread computes within a fifth of a second.
  std::chrono::milliseconds cpu_time() {
    const auto spent_until_now = [&] {
      std::promise<std::chrono::nanoseconds> spent;
      runner_->ask([&] {
        timespec t{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        spent.set_value(std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec));
      });
      return spent.get_future().get();
    };
    const auto before = spent_until_now();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    run_until([&] { return std::chrono::steady_clock::now() > end; });
    return std::chrono::duration_cast<std::chrono::milliseconds>(spent_until_now() - before);
  }
};

TEST_P(LinesToTryAgain, CostNothingWhileTheStateIsFull) {
  std::atomic<bool> limited{false};
  runner_->ask([&] { limited = sqlite().limit_pages(1).is_ok(); });
  run_until([&] { return limited.load(); });
  join();  // the results of the others are not kept
  run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
  EXPECT_LT(cpu_time(), std::chrono::milliseconds(20));
}

TEST_P(LinesToTryAgain, CostNothingWhileTheOrchestratorEnds) {
  runner_->stop_starting();
  EXPECT_LT(cpu_time(), std::chrono::milliseconds(20));
}

/// A batch under way whose input is harmed while nothing runs, beside one whose input is as it was.
class HarmedInput : public BatchApiTest {
 protected:
  void harm(const std::function<void(const std::filesystem::path&)>& do_it) {
    const std::string file = upload(lines(60));
    harmed_ = create(file), whole_ = create(upload(lines(30)));  // no worker: their lines wait
    for (const std::string& id : {harmed_, whole_})
      run_until([&] { return ask("GET", "/v1/batches/" + id)["status"] == "in_progress"; });
    stop();
    do_it(box_->database().string() + ".files/" + file);
    start();
    join();
  }
  void expect_failed(const std::string& code) {
    const json harmed = wait_for(harmed_, "failed");
    EXPECT_EQ(harmed["errors"]["data"][0]["code"], code) << harmed;
    EXPECT_TRUE(harmed["output_file_id"].is_null());
    const json whole = wait_for(whole_, "completed");
    EXPECT_EQ(whole["request_counts"]["completed"], 30) << "others go on";
    EXPECT_TRUE(ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_null());
  }
  std::string harmed_, whole_;
};

TEST_P(HarmedInput, ThatIsGoneFailsItsBatch) {
  harm([](const auto& file) { std::filesystem::remove(file); });
  expect_failed("input_file_missing");
}

TEST_P(HarmedInput, ThatIsCutShortFailsItsBatch) {
  harm([](const auto& file) { std::filesystem::resize_file(file, std::filesystem::file_size(file) / 3); });
  expect_failed("input_file_damaged");
}

TEST_P(HarmedInput, WithOneOtherByteFailsItsBatch) {
  harm([](const auto& file) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file) / 2));
    stream << '!';
  });
  expect_failed("input_file_damaged");
}

TEST_P(HarmedInput, WhileItsLinesRunFailsItsBatchAtItsEnd) {
  join();
  const std::string file = upload(lines(3000));
  const std::string id = create(file);
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  const std::filesystem::path path = box_->database().string() + ".files/" + file;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_EQ(wait_for(id, "failed")["errors"]["data"][0]["code"], "input_file_damaged");
}

TEST_P(HarmedInput, AFolderThatIsAwayIsWaitedFor) {
  const std::string folder = box_->database().string() + ".files";
  harm([&](const auto&) { std::filesystem::rename(folder, folder + ".away"); });
  run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
  std::filesystem::rename(folder + ".away", folder);
  EXPECT_EQ(wait_for(harmed_, "completed")["request_counts"]["completed"], 60);
}

TEST_P(RedisBatchApiTest, AStateThatGoesAwayIsWaitedFor) {
  join();
  const std::string file = upload(lines(60));
  const std::string id = create(file);
  run_until([&] { return ask("GET", "/v1/batches/" + id)["request_counts"]["completed"].get<int>() >= 5; });
  for (int kill = 0; kill < 3; ++kill) {
    box_->redis().kill();
    const auto refused = send("GET", "/v1/batches/" + id);
    finish(*refused);
    EXPECT_EQ(refused->status, 503) << refused->body;
    EXPECT_THAT(refused->json()["error"]["message"].get<std::string>(), HasSubstr("is away"));
    EXPECT_EQ(refused->header("Retry-After"), "1");
    EXPECT_EQ(upload_form(form_of("abc"))->status, 503);
    const auto interactive = send("POST", "/v1/completions", R"({"prompt": "a", "max_tokens": 2})");
    finish(*interactive);
    EXPECT_EQ(interactive->status, 200) << "serving does not need the state";
    run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_string(); });
    box_->redis().start();
    run_until([&] { return ask("GET", "/v1/moestro/status")["batches"]["stalled"].is_null(); });
  }
  const json batch = wait_for(id, "completed");
  EXPECT_EQ(batch["request_counts"], (json{{"total", 60}, {"completed", 60}, {"failed", 0}}));
  const auto done = custom_ids(content(batch["output_file_id"]));
  EXPECT_EQ(done.size(), 60u);
  EXPECT_EQ(std::set<std::string>(done.begin(), done.end()).size(), 60u);
}

INSTANTIATE_TEST_SUITE_P(One, SqliteBatchApiTest, ::testing::Values(test::Backend::kSqlite),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(One, LinesToTryAgain, ::testing::Values(test::Backend::kSqlite),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(One, HarmedInput, ::testing::Values(test::Backend::kSqlite),
                         [](const auto& each) { return test::backend_name(each.param); });
INSTANTIATE_TEST_SUITE_P(One, RedisBatchApiTest, ::testing::Values(test::Backend::kRedis),
                         [](const auto& each) { return test::backend_name(each.param); });

}  // namespace
}  // namespace moestro::orchestrator

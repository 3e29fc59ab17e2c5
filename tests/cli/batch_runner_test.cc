#include "services/cli/batch/batch_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/temp_dir.h"
#include "tests/cli/tiny_server.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using test::TinyReply;
using test::TinyRequest;
using test::TinyServer;
using testing::HasSubstr;

/// A server that counts how often each prompt comes, and a batch of `lines` prompts "p0", "p1", ...
class BatchRunnerTest : public testing::Test {
 protected:
  using Answer = std::function<TinyReply(const std::string& prompt, int times)>;

  void serve(Answer answer) {
    server_ = std::make_unique<TinyServer>([this, answer](const TinyRequest& request) {
      const std::string prompt = json::parse(request.body)["prompt"];
      int times = 0;
      {
        const std::lock_guard lock(mutex_);
        times = ++seen_[prompt];
      }
      return answer(prompt, times);
    });
    options_.url = *parse_url(server_->url());
  }

  void write_input(int lines) {
    std::string text;
    for (int i = 0; i < lines; ++i)
      text += json{{"custom_id", "id" + std::to_string(i)},
                   {"method", "POST"},
                   {"url", "/v1/completions"},
                   {"body", {{"prompt", "p" + std::to_string(i)}}}}
                  .dump() +
              "\n";
    test::write_file(options_.input, text);
  }

  Status run() {
    return run_batch(
        options_, stop_, [](const BatchReport&) {}, report_);
  }

  std::multiset<std::string> ids_written() {
    std::multiset<std::string> ids;
    std::istringstream lines(test::read_file(options_.output));
    for (std::string line; std::getline(lines, line);)
      ids.insert(json::parse(line)["custom_id"].get<std::string>());
    return ids;
  }

  static TinyReply good(const std::string& prompt) {
    return {200, json{{"id", "cmpl"},
                      {"choices", {{{"text", prompt + "!"}}}},
                      {"usage", {{"prompt_tokens", 2}, {"completion_tokens", 3}}}}
                     .dump()};
  }

  test::TempDir dir_;
  std::mutex mutex_;
  std::map<std::string, int> seen_;
  std::unique_ptr<TinyServer> server_;
  BatchOptions options_{dir_ / "in.jsonl", dir_ / "out.jsonl", {}, {}, 4, milliseconds(5000), milliseconds(3000),
                        milliseconds(1),   milliseconds(4)};
  std::atomic<bool> stop_{false};
  BatchReport report_;
};

TEST_F(BatchRunnerTest, EveryLineGetsOneResult) {
  serve([](const std::string& prompt, int) { return good(prompt); });
  write_input(50);
  ASSERT_TRUE(run().is_ok());
  EXPECT_TRUE(report_.complete());
  EXPECT_EQ(report_.done, 50u);
  EXPECT_EQ(report_.failed, 0u);
  EXPECT_EQ(report_.prompt_tokens, 100u);
  EXPECT_EQ(report_.completion_tokens, 150u);
  const auto ids = ids_written();
  EXPECT_EQ(ids.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ids.count("id" + std::to_string(i)), 1u);
  EXPECT_LE(server_->connections(), 4);
}

TEST_F(BatchRunnerTest, ASecondRunSendsNothing) {
  serve([](const std::string& prompt, int) { return good(prompt); });
  write_input(5);
  ASSERT_TRUE(run().is_ok());
  const std::string before = test::read_file(options_.output);
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(report_.done, 0u);
  EXPECT_EQ(report_.done_before, 5u);
  EXPECT_TRUE(report_.complete());
  EXPECT_EQ(test::read_file(options_.output), before);
  for (const auto& [prompt, times] : seen_) EXPECT_EQ(times, 1) << prompt;
}

TEST_F(BatchRunnerTest, GoesOnAfterATornLastLine) {
  serve([](const std::string& prompt, int) { return good(prompt); });
  write_input(6);
  options_.concurrency = 1;
  ASSERT_TRUE(run().is_ok());
  const std::string whole = test::read_file(options_.output);
  // Two whole lines and half of the third.
  const size_t second = whole.find('\n', whole.find('\n') + 1);
  test::write_file(options_.output, whole.substr(0, second + 20));
  ASSERT_TRUE(run().is_ok());
  EXPECT_TRUE(report_.was_torn);
  EXPECT_EQ(report_.done_before, 2u);
  EXPECT_EQ(report_.done, 4u);
  EXPECT_EQ(test::read_file(options_.output), whole);
  EXPECT_EQ(seen_["p0"], 1);
  EXPECT_EQ(seen_["p2"], 2);
}

TEST_F(BatchRunnerTest, AFullOrAbsentServerIsTriedAgain) {
  serve([](const std::string& prompt, int times) -> TinyReply {
    if (times == 1) return {429, R"({"error":{"message":"queue is full"}})"};
    if (times == 2) return {503, "{}"};
    if (times == 3) return {0, "", "", "", true};
    return good(prompt);
  });
  write_input(8);
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(report_.failed, 0u);
  EXPECT_EQ(report_.retries, 24u);
  for (const auto& [prompt, times] : seen_) EXPECT_EQ(times, 4) << prompt;
  EXPECT_EQ(ids_written().size(), 8u);
}

TEST_F(BatchRunnerTest, WhatTheServerRefusesIsAResultAndTheOthersGoOn) {
  serve([](const std::string& prompt, int) -> TinyReply {
    if (prompt == "p1") return {400, R"({"error":{"message":"prompt too long"}})"};
    if (prompt == "p2") return {500, R"({"error":{"message":"expert 3 of layer 1 is bad"}})"};
    if (prompt == "p3") return {200, "not json"};
    return good(prompt);
  });
  write_input(6);
  ASSERT_TRUE(run().is_ok());
  EXPECT_TRUE(report_.complete());
  EXPECT_EQ(report_.failed, 3u);
  EXPECT_EQ(report_.retries, 0u);
  EXPECT_EQ(ids_written().size(), 6u);
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(report_.failed, 3u) << "failures of earlier runs are counted too";
}

TEST_F(BatchRunnerTest, PatienceEndsWhenNothingMoves) {
  serve([](const std::string& prompt, int) {
    return prompt == "p0" ? good(prompt) : TinyReply{503, R"({"error":{"message":"no worker"}})"};
  });
  write_input(3);
  options_.patience = milliseconds(60);
  const Status status = run();
  EXPECT_THAT(status.message(), HasSubstr("gave up"));
  EXPECT_THAT(status.message(), HasSubstr("no worker"));
  EXPECT_FALSE(report_.complete());
  EXPECT_EQ(ids_written().size(), 1u) << "what was done is kept, what was not has no line";
}

TEST_F(BatchRunnerTest, StopLetsTheLinesInFlightFinish) {
  serve([this](const std::string& prompt, int) {
    if (prompt == "p2") stop_ = true;
    return good(prompt);
  });
  write_input(100);
  options_.concurrency = 2;
  ASSERT_TRUE(run().is_ok());
  EXPECT_FALSE(report_.complete());
  EXPECT_GE(report_.done, 3u);
  EXPECT_LE(report_.done, 6u);
  EXPECT_EQ(ids_written().size(), report_.done);
  stop_ = false;
  serve([](const std::string& prompt, int) { return good(prompt); });
  ASSERT_TRUE(run().is_ok());
  EXPECT_TRUE(report_.complete());
  EXPECT_EQ(ids_written().size(), 100u);
}

TEST_F(BatchRunnerTest, ABadInputRunsNothingAndMakesNoOutput) {
  serve([](const std::string& prompt, int) { return good(prompt); });
  write_input(3);
  test::write_file(options_.input, test::read_file(options_.input) + "{\n");
  EXPECT_THAT(run().message(), HasSubstr("line 4: it is not JSON"));
  EXPECT_TRUE(seen_.empty());
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(BatchRunnerTest, TheInputIsNotTheOutput) {
  write_input(1);
  options_.output = options_.input;
  const std::string before = test::read_file(options_.input);
  EXPECT_THAT(run().message(), HasSubstr("is the input itself"));
  EXPECT_EQ(test::read_file(options_.input), before);
}

TEST_F(BatchRunnerTest, ResultsOfOtherLinesAreCountedApart) {
  serve([](const std::string& prompt, int) { return good(prompt); });
  write_input(4);
  ASSERT_TRUE(run().is_ok());
  write_input(2);
  ASSERT_TRUE(run().is_ok());
  EXPECT_EQ(report_.foreign, 2u);
  EXPECT_TRUE(report_.complete());
}

TEST(RetryPause, DoublesWithinBoundsSpreadsAndObeysTheServer) {
  BatchOptions options;
  for (int tries = 1; tries < 12; ++tries) {
    const milliseconds full = std::min(milliseconds(250) * (1 << (tries - 1)), options.pause_max);
    for (uint64_t line = 0; line < 100; ++line) {
      const milliseconds pause = retry_pause(options, tries, line, 0);
      EXPECT_GE(pause, full / 2);
      EXPECT_LE(pause, full);
    }
  }
  EXPECT_NE(retry_pause(options, 5, 1, 0), retry_pause(options, 5, 2, 0));
  EXPECT_EQ(retry_pause(options, 1, 1, 30), milliseconds(30'000));
}

}  // namespace
}  // namespace moestro::cli

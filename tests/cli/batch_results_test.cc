#include "services/cli/batch/batch_results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(BatchResults, AResultLineHasOpenAisShape) {
  const BatchResult result = make_batch_result(
      3, "a", {200, R"({"id":"cmpl-1","usage":{"prompt_tokens":4,"completion_tokens":6}})", "", 0});
  EXPECT_FALSE(result.failed);
  EXPECT_EQ(result.prompt_tokens, 4u);
  EXPECT_EQ(result.completion_tokens, 6u);
  const json line = json::parse(result.line);
  EXPECT_EQ(line["id"], "batch_req_3");
  EXPECT_EQ(line["custom_id"], "a");
  EXPECT_EQ(line["response"]["status_code"], 200);
  EXPECT_EQ(line["response"]["request_id"], "cmpl-1");
  EXPECT_EQ(line["response"]["body"]["id"], "cmpl-1");
  EXPECT_TRUE(line["error"].is_null());
}

TEST(BatchResults, WhatTheServerRefusedIsAResultThatFailed) {
  const BatchResult result =
      make_batch_result(1, "a", {400, R"({"error":{"message":"too long"}})", "req-9", 0});
  EXPECT_TRUE(result.failed);
  const json line = json::parse(result.line);
  EXPECT_EQ(line["response"]["status_code"], 400);
  EXPECT_EQ(line["response"]["request_id"], "req-9");
  EXPECT_EQ(line["response"]["body"]["error"]["message"], "too long");
}

TEST(BatchResults, AnAnswerThatIsNotJsonIsAnError) {
  for (const char* body : {"", "<html>", "\xff\xfe", "{"}) {
    const BatchResult result = make_batch_result(1, "a", {200, body, "", 0});
    EXPECT_TRUE(result.failed);
    const json line = json::parse(result.line);
    EXPECT_TRUE(line["response"].is_null());
    EXPECT_EQ(line["error"]["code"], "bad_answer");
  }
  EXPECT_FALSE(make_batch_result(1, "a", {200, R"({"usage":5})", "", 0}).failed);
  EXPECT_FALSE(make_batch_result(1, "a", {200, "[]", "", 0}).failed);
}

class ResultsFile : public testing::Test {
 protected:
  test::TempDir dir_;
  std::filesystem::path path_ = dir_ / "out.jsonl";
  const std::string good_ = make_batch_result(1, "good", {200, "{}", "", 0}).line + "\n";
  const std::string refused_ = make_batch_result(2, "refused", {400, "{}", "", 0}).line + "\n";
};

TEST_F(ResultsFile, IsReadBack) {
  test::write_file(path_, good_ + refused_);
  const Result<BatchResults> results = BatchResults::open(path_);
  ASSERT_TRUE(results.is_ok()) << results.status().message();
  EXPECT_THAT(results->done(),
              testing::UnorderedElementsAre(testing::Pair("good", false), testing::Pair("refused", true)));
  EXPECT_FALSE(results->was_torn());
}

TEST_F(ResultsFile, ATornLastLineIsCutOffWhereverItWasTorn) {
  for (size_t cut = 1; cut < refused_.size(); ++cut) {
    test::write_file(path_, good_ + refused_.substr(0, cut));
    Result<BatchResults> results = BatchResults::open(path_);
    ASSERT_TRUE(results.is_ok()) << cut << results.status().message();
    EXPECT_TRUE(results->was_torn());
    EXPECT_EQ(results->done().size(), 1u);
    ASSERT_TRUE(results->append(make_batch_result(2, "refused", {400, "{}", "", 0})).is_ok());
    EXPECT_EQ(test::read_file(path_), good_ + refused_) << cut;
  }
}

TEST_F(ResultsFile, AnythingElseIsLeftAlone) {
  for (const std::string& text : {"hello\n" + good_, "{}\n" + good_,
                                  good_ + R"({"custom_id":"x"})"
                                          "\n",
                                  good_ + "\n" + good_}) {
    test::write_file(path_, text);
    const Result<BatchResults> results = BatchResults::open(path_);
    EXPECT_EQ(results.status().code(), Code::kCorrupt) << text;
    EXPECT_EQ(test::read_file(path_), text);
  }
}

TEST_F(ResultsFile, TwoRunsCannotShareIt) {
  const Result<BatchResults> first = BatchResults::open(path_);
  ASSERT_TRUE(first.is_ok());
  EXPECT_THAT(BatchResults::open(path_).status().message(), HasSubstr("another run writes to"));
}

TEST_F(ResultsFile, PlacesThatCannotBeWrittenAreNamed) {
  EXPECT_THAT(BatchResults::open(dir_ / "no" / "out").status().message(), HasSubstr("no/out"));
  EXPECT_THAT(BatchResults::open(dir_.path()).status().message(), HasSubstr("cannot write results"));
}

TEST_F(ResultsFile, AFullDiskIsAnErrorAndNotALine) {
  Result<BatchResults> results = BatchResults::open("/dev/full");
  EXPECT_THAT(results.status().message(), HasSubstr("not a plain file"));
}

}  // namespace
}  // namespace moestro::cli

#include "orchestrator/batch/batch_line.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "orchestrator/batch/folder_files.h"
#include "orchestrator/batch/line_reader.h"
#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string code_of(const std::string& text) {
  const auto read = read_batch_line(text, "/v1/completions", "m");
  const auto* problem = std::get_if<LineProblem>(&read);
  return problem == nullptr ? "good" : problem->code;
}
std::string line(const json& change) {
  json value{{"custom_id", "a"}, {"method", "POST"}, {"url", "/v1/completions"}, {"body", {{"prompt", "p"}}}};
  value.merge_patch(change);  // null takes a member out
  return value.dump();
}

TEST(BatchLineTest, ALineMayUseAnAlias) {
  const std::string text = line({{"body", {{"model", "Qwen/Qwen3"}}}});
  const auto good = [&](const std::vector<std::string>& aliases) {
    return std::holds_alternative<BatchLine>(read_batch_line(text, "/v1/completions", "m", aliases));
  };
  EXPECT_TRUE(good({"x", "Qwen/Qwen3"}));
  EXPECT_FALSE(good({"Qwen"}));
  EXPECT_FALSE(good({}));
}

TEST(BatchLineTest, WhatIsWrongHasItsOwnCode) {
  EXPECT_EQ(code_of(line(json::object())), "good");
  EXPECT_EQ(code_of(line({{"method", nullptr}})), "good");
  EXPECT_EQ(code_of("{"), "invalid_json_line");
  EXPECT_EQ(code_of("[]"), "invalid_json_line");
  EXPECT_EQ(code_of("\xff"), "invalid_json_line");
  EXPECT_EQ(code_of(R"({"custom_id":"a","custom_id":"b"})"), "invalid_json_line");
  EXPECT_EQ(code_of(std::string(1000, '[')), "invalid_json_line");
  EXPECT_EQ(code_of(line({{"custom_id", nullptr}})), "invalid_custom_id");
  EXPECT_EQ(code_of(line({{"custom_id", 7}})), "invalid_custom_id");
  EXPECT_EQ(code_of(line({{"custom_id", std::string(513, 'x')}})), "invalid_custom_id");
  EXPECT_EQ(code_of(line({{"method", "GET"}})), "invalid_method");
  EXPECT_EQ(code_of(line({{"url", "/v1/embeddings"}})), "invalid_url");
  EXPECT_EQ(code_of(line({{"url", nullptr}})), "invalid_url");
  EXPECT_EQ(code_of(line({{"body", 1}})), "invalid_body");
  EXPECT_EQ(code_of(line({{"body", {{"stream", true}}}})), "invalid_body");
  EXPECT_EQ(code_of(line({{"body", {{"model", "other"}}}})), "model_not_found");
  EXPECT_EQ(code_of(line({{"body", {{"model", "m"}}}})), "good");
  EXPECT_EQ(code_of(line({{"priority", 1}})), "unknown_field");
}

TEST(BatchLineTest, SequencesAreCounted) {
  const auto count = [](const json& body) {
    return std::get<BatchLine>(read_batch_line(line({{"body", body}}), "/v1/completions", "m")).sequences;
  };
  EXPECT_EQ(count({{"prompt", "p"}}), 1u);
  EXPECT_EQ(count({{"prompt", {"a", "b"}}, {"n", 3}}), 6u);
  EXPECT_EQ(count({{"prompt", {1, 2, 3}}}), 1u);
  EXPECT_EQ(count({{"prompt", "p"}, {"n", 2}, {"best_of", 18}}), 18u);
  EXPECT_GT(count({{"prompt", {"a", "b"}}, {"n", uint64_t{1} << 63}}), 128u)
      << "a count that nobody takes is not nothing";
}

TEST(BatchLineTest, ResultsKeepTheIdAndCountTokens) {
  const LineResult good = answered_line(
      {"batch_7", 3}, "c", 200,
      R"({"id":"cmpl-1","usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}}})");
  EXPECT_TRUE(good.good);
  EXPECT_EQ(good.prompt_tokens + good.completion_tokens * 10 + good.cached_tokens * 100, 425u);
  const json text = json::parse(good.text);
  EXPECT_EQ(text["custom_id"], "c");
  EXPECT_EQ(text["id"], "batch_req_7_3");
  EXPECT_EQ(text["response"]["status_code"], 200);
  EXPECT_EQ(text["response"]["request_id"], "cmpl-1");
  EXPECT_TRUE(text["error"].is_null());
  EXPECT_FALSE(answered_line({"batch_7", 3}, "c", 400, R"({"error":{}})").good);
  const json refused = json::parse(refused_line({"batch_7", 4}, {"", "invalid_json_line", "why"}).text);
  EXPECT_TRUE(refused["custom_id"].is_null());
  EXPECT_EQ(refused["error"]["line"], 4);
}

TEST(LineReaderTest, LinesOfAllKinds) {
  const test::TempDir dir;
  const std::string large(100'000, 'x');
  test::write_file(dir / "f", "\xef\xbb\xbf" "a\n\n \r\n" + large + "\nb\r\n" + std::string(3000, 'y') + "\nlast");
  const auto files = FolderFiles::open_folder(dir.path());
  ASSERT_TRUE(files.is_ok());
  const auto file = [&] { return std::move(*(*files)->open("f")); };
  const auto read = [&](size_t most) {
    LineReader reader(file(), most);
    std::string all;
    for (;;) {
      const auto next = reader.next();
      if (!next.is_ok() || !*next) return all;
      all += std::to_string((*next)->number) + ((*next)->too_long ? "!" : ":" + std::to_string((*next)->text.size())) +
             " ";
    }
  };
  EXPECT_EQ(read(1 << 20), "1:1 4:100000 5:2 6:3000 7:4 ");
  EXPECT_EQ(read(2000), "1:1 4! 5:2 6! 7:4 ");
  LineReader reader(file(), 1 << 20);
  std::vector<LineReader::Line> lines;
  for (auto next = reader.next(); next.is_ok() && *next; next = reader.next()) lines.push_back(std::move(**next));
  ASSERT_EQ(lines.size(), 5u);
  for (const size_t i : {4, 1, 2, 0, 3, 1, 4}) {
    reader.go_to(lines[i].number, lines[i].offset);
    const auto again = reader.next();
    ASSERT_TRUE(again.is_ok() && *again);
    EXPECT_EQ((*again)->number, lines[i].number);
    EXPECT_EQ((*again)->text, lines[i].text);
  }
}

/// Says no before each piece.
class Unsteady final : public FileBytes {
 public:
  explicit Unsteady(std::string text) : text_(std::move(text)) {}
  Result<std::string> read(uint64_t offset, size_t size) override {
    if (tell_ = !tell_; tell_) return unavailable("away");
    return text_.substr(std::min<size_t>(offset, text_.size()), std::min<size_t>(size, 7));
  }

 private:
  const std::string text_;
  bool tell_ = false;
};

TEST(LineReaderTest, AnErrorAmidALineLosesNothing) {
  LineReader reader(std::make_unique<Unsteady>("a long first line\nsecond\n\nthe last one"), 100);
  std::string all;
  int errors = 0;
  for (;;) {
    const auto next = reader.next();
    if (!next.is_ok()) {
      ++errors;
      continue;
    }
    if (!*next) break;
    all += std::to_string((*next)->number) + (*next)->text + "|";
  }
  EXPECT_EQ(all, "1a long first line|2second|4the last one|");
  EXPECT_GT(errors, 3);
}

}  // namespace
}  // namespace moestro::orchestrator

#include "services/cli/batch/batch_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr const char* kGood =
    R"({"custom_id":"a","method":"POST","url":"/v1/completions","body":{"prompt":"x"}})";

TEST(BatchInput, AGoodLine) {
  const Result<BatchLine> line = parse_batch_line(kGood, 7);
  ASSERT_TRUE(line.is_ok()) << line.status().message();
  EXPECT_EQ(line->number, 7u);
  EXPECT_EQ(line->custom_id, "a");
  EXPECT_EQ(line->path, "/v1/completions");
  EXPECT_EQ(line->body, R"({"prompt":"x"})");
}

TEST(BatchInput, TheBodysMembersKeepTheirOrder) {
  const Result<BatchLine> line = parse_batch_line(
      R"({"custom_id":"a","url":"/v1/x","body":{"properties":{"zeta":{"b":1,"a":2},"alpha":3}}})", 1);
  ASSERT_TRUE(line.is_ok()) << line.status().message();
  EXPECT_EQ(line->body, R"({"properties":{"zeta":{"b":1,"a":2},"alpha":3}})");
}

TEST(BatchInput, BadLinesSayWhatIsWrong) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "not JSON"},
      {"{", "not JSON"},
      {"[]", "must be a JSON object"},
      {"\xff", "not UTF-8: byte 0"},
      {std::string(100'000, '['), "nested deeper"},
      {R"({"custom_id":"","url":"/v1/x","body":{}})", "custom_id"},
      {R"({"custom_id":5,"url":"/v1/x","body":{}})", "custom_id"},
      {R"({"custom_id":")" + std::string(513, 'x') + R"(","url":"/v1/x","body":{}})", "custom_id"},
      {R"({"custom_id":"a","method":"GET","url":"/v1/x","body":{}})", "'GET'"},
      {R"({"custom_id":"a","body":{}})", "url"},
      {R"({"custom_id":"a","url":"http://h/v1/x","body":{}})", "url"},
      {R"({"custom_id":"a","url":"/v1/x\r\nHost: y","body":{}})", "url"},
      {R"({"custom_id":"a","url":"/v1/x"})", "body"},
      {R"({"custom_id":"a","url":"/v1/x","body":{"prompt":"x","prompt":"y"}})", "'prompt' twice"},
      {R"({"custom_id":"a","url":"/v1/x","body":[]})", "body"},
      {R"({"custom_id":"a","url":"/v1/x","body":{"stream":true}})", "stream"},
  };
  for (const auto& [text, word] : cases) {
    const Result<BatchLine> line = parse_batch_line(text, 1);
    ASSERT_FALSE(line.is_ok()) << text.substr(0, 80);
    EXPECT_THAT(line.status().message(), HasSubstr(word)) << text.substr(0, 80);
    EXPECT_TRUE(std::ranges::none_of(line.status().message(), [](unsigned char c) { return c < 0x20; }))
        << "in one line: " << line.status().message();
  }
}

TEST(BatchInput, TheSurveyCountsLinesAndPassesOverBlankOnes) {
  test::TempDir dir;
  test::write_file(dir / "in", std::string("\xef\xbb\xbf") + kGood + "\r\n\n  \n" +
                                   R"({"custom_id":"b","url":"/v1/x","body":{}})");
  const auto numbers = survey_batch(dir / "in");
  ASSERT_TRUE(numbers.is_ok()) << numbers.status().message();
  EXPECT_EQ(numbers->size(), 2u);
  EXPECT_EQ(numbers->at("b"), 4u);
}

TEST(BatchInput, TheEndpointIsThatOfTheFirstLineThatHasOne) {
  test::TempDir dir;
  test::write_file(dir / "in",
                   "\xef\xbb\xbf\n{\n[1]\n{\"url\":5}\n{\"url\":\"/v1/chat/completions\"}\n" + std::string(kGood));
  EXPECT_EQ(endpoint_of_batch(dir / "in"), "/v1/chat/completions");
  test::write_file(dir / "in", "\n");
  EXPECT_EQ(endpoint_of_batch(dir / "in"), "");
  EXPECT_EQ(endpoint_of_batch(dir / "none"), "");
}

TEST(BatchInput, ABadFileIsRefusedWithLineAndCount) {
  test::TempDir dir;
  const std::string path = (dir / "in").string();
  test::write_file(path, std::string(kGood) + "\n{\n" + kGood + "\n");
  EXPECT_EQ(survey_batch(path).status().message(),
            path + " line 2: it is not JSON (and 1 more bad lines); nothing was run");
  test::write_file(path, std::string(kGood) + "\n" + kGood + "\n");
  EXPECT_EQ(survey_batch(path).status().message(),
            path + " line 2: custom_id 'a' stands already in line 1; nothing was run");
  test::write_file(path, "\n\n");
  EXPECT_THAT(survey_batch(path).status().message(), EndsWith("holds no lines"));
  EXPECT_THAT(survey_batch(dir / "none").status().message(), EndsWith("is not there"));
  EXPECT_THAT(survey_batch(dir.path()).status().message(), EndsWith("is not a plain file"));
}

}  // namespace
}  // namespace moestro::cli

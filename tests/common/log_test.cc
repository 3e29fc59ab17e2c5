// What a line of a log looks like, as text and as JSON.

#include "common/log.h"
#include "common/log_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace moestro {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Log, TextEndsWithTheFieldsOfItsThread) {
  const log::Field request("request_id", "req-1");
  {
    const log::Field worker("worker", "worker-0"), none("batch", ""), again("request_id", "req-1");
    EXPECT_THAT(log::formatted("moestro-x", "text", "it failed"),
                EndsWith(" warning moestro-x: it failed request_id=req-1 worker=worker-0"));
  }
  EXPECT_THAT(log::formatted("moestro-x", "text", "it failed"), EndsWith(": it failed request_id=req-1"));
  std::string elsewhere;
  std::thread([&] { elsewhere = log::formatted("moestro-x", "text", "it failed"); }).join();
  EXPECT_THAT(elsewhere, EndsWith(": it failed"));
}

TEST(Log, TextIsOneLineWhateverIsInIt) {
  const log::Field field("worker", "a\nb");
  const std::string line = log::formatted("moestro-x", "text", "first\nsecond\x1b[2J\r");
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_THAT(line, EndsWith(": first second [2J  worker=a b"));
}

TEST(Log, JsonIsAnObjectALine) {
  const log::Field request("request_id", "req-\"1\"");
  const std::string line = log::formatted("moestro-x", "json", "a \"quote\",\na line and a broken \xff byte");
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  const auto object = nlohmann::json::parse(line, nullptr, false);
  ASSERT_TRUE(object.is_object()) << line;
  EXPECT_EQ(object["level"], "warning");
  EXPECT_EQ(object["program"], "moestro-x");
  EXPECT_EQ(object["message"], "a \"quote\",\na line and a broken \xef\xbf\xbd byte");
  EXPECT_EQ(object["request_id"], "req-\"1\"");
  EXPECT_THAT(object["time"].get<std::string>(), ::testing::MatchesRegex("20..-..-..T..:..:...*Z"));
}

TEST(Log, OfAnUnknownFormatOrLevelThereIsNone) {
  EXPECT_EQ(log::set_format("xml").code(), Code::kInvalidArgument);
  EXPECT_EQ(log::init("moestro-x", "loud").code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace moestro

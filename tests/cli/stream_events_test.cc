#include "services/cli/client/stream_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::cli {
namespace {

TEST(StreamEvents, TextOfBothKindsOfStream) {
  EXPECT_EQ(parse_stream_event(R"({"choices":[{"text":" a"}]})")->text, " a");
  EXPECT_EQ(parse_stream_event(R"({"choices":[{"delta":{"content":"b"}}]})")->text, "b");
  const auto thought = parse_stream_event(R"({"choices":[{"delta":{"reasoning_content":"c"}}]})");
  EXPECT_EQ(thought->reasoning + "/" + thought->text, "c/");
  EXPECT_EQ(parse_stream_event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})")->finish_reason,
            "stop");
  EXPECT_EQ(parse_stream_event(R"({"choices":[],"usage":{}})")->text, "");
  EXPECT_TRUE(parse_stream_event("[DONE]")->done);
}

TEST(StreamEvents, ErrorsAndRubbish) {
  EXPECT_THAT(parse_stream_event(R"({"error":{"message":"worker gone"}})").status().message(),
              testing::HasSubstr("worker gone"));
  for (const char* data : {"", "[]", "nope", "5"})
    EXPECT_EQ(parse_stream_event(data).status().code(), Code::kCorrupt) << data;
  for (const char* data : {R"({"choices":5})", R"({"choices":[5]})", R"({"choices":[{"delta":5,"text":5}]})"})
    EXPECT_EQ(parse_stream_event(data)->text, "") << data;
}

TEST(StreamEvents, PrintableKeepsTextAndDropsControls) {
  EXPECT_EQ(printable("a\x1b[31m\n\tb\r"), "a[31m\n\tb");
}

}  // namespace
}  // namespace moestro::cli

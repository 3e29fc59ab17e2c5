#include "services/cli/common/sse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace moestro::cli {
namespace {

using testing::ElementsAre;

std::vector<std::string> events_of(std::string_view bytes, size_t piece) {
  std::vector<std::string> events;
  SseParser parser([&](std::string_view data) {
    events.emplace_back(data);
    return Status::ok();
  });
  for (size_t i = 0; i < bytes.size(); i += piece) EXPECT_TRUE(parser.feed(bytes.substr(i, piece)).is_ok());
  return events;
}

TEST(Sse, TheSameEventsInPiecesOfAnySize) {
  constexpr std::string_view kBytes =
      ": hello\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:two\ndata: lines\n\n\n\ndata: [DONE]\n\ndata: torn";
  for (size_t piece = 1; piece <= kBytes.size(); ++piece)
    EXPECT_THAT(events_of(kBytes, piece), ElementsAre("{\"a\":1}", "two\nlines", "[DONE]")) << piece;
}

TEST(Sse, AnEventWithoutEndIsRefusedBeforeItFillsTheMemory) {
  SseParser parser([](std::string_view) { return Status::ok(); });
  const std::string mebibyte(1 << 20, 'x');
  Status status;
  for (int i = 0; i < 20 && status.is_ok(); ++i) status = parser.feed(mebibyte);
  EXPECT_EQ(status.code(), Code::kCorrupt);
}

TEST(Sse, AnErrorOfTheReaderEndsTheStream) {
  int calls = 0;
  SseParser parser([&](std::string_view) { return ++calls == 2 ? cancelled("enough") : Status::ok(); });
  EXPECT_EQ(parser.feed("data: 1\n\ndata: 2\n\ndata: 3\n\n").code(), Code::kCancelled);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace moestro::cli

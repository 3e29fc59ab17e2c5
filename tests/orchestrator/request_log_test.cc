// Ids of requests: which are taken, and that the answer has them. What stands in logs:
// tests/integration/request_ids_test.py.

#include "orchestrator/api/request_log.h"

#include <gmock/gmock.h>

#include "tests/orchestrator/api_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using ::testing::MatchesRegex;
using std::chrono::milliseconds;

constexpr const char* kOurs = "req-[0-9a-f]+";

struct Logged {
  std::vector<std::pair<HttpRequest, std::shared_ptr<Exchange>>> inside;
  RequestLog log{
      [this](HttpRequest r, std::shared_ptr<Exchange> e) { inside.emplace_back(std::move(r), std::move(e)); }};
  std::shared_ptr<FakeExchange> send(const std::string& id) {
    auto exchange = std::make_shared<FakeExchange>();
    HttpRequest request{"GET", "/v1/models", ""};
    request.request_id = id;
    log.handle(std::move(request), exchange);
    return exchange;
  }
};

TEST(RequestLog, AClientsIdIsKeptAndAnswered) {
  Logged l;
  const std::string longest(kRequestIdBytesMax, 'x');
  for (const std::string& id : {std::string("a"), std::string("0b9f-1.2_3:4/5=6+7@8"), longest}) {
    const auto exchange = l.send(id);
    auto& [request, inner] = l.inside.back();
    EXPECT_EQ(request.request_id, id);
    EXPECT_EQ(inner->request_id(), id);
    inner->respond(200, "text/plain", "", {{"X-Other", "1"}});
    EXPECT_EQ(exchange->header("X-Request-Id"), id);
    EXPECT_EQ(exchange->header("X-Other"), "1");
  }
}

TEST(RequestLog, WhatIsNoIdIsReplaced) {
  Logged l;
  std::string last;
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\nb"), std::string("a\r\nSet-Cookie: x"), std::string("\"a\""),
        std::string("\xc3\xa4"), std::string(kRequestIdBytesMax + 1, 'x'), std::string(1, '\0')}) {
    const auto exchange = l.send(bad);
    l.inside.back().second->respond(200, "text/plain", "", {});
    EXPECT_THAT(exchange->header("X-Request-Id"), MatchesRegex(kOurs));
    EXPECT_NE(exchange->header("X-Request-Id"), last) << "each request has its own";
    last = exchange->header("X-Request-Id");
  }
}

TEST(RequestLog, StreamsAndFilesHaveIt) {
  Logged l;
  const auto stream = l.send("s");
  l.inside.back().second->begin_stream({});
  EXPECT_EQ(stream->header("X-Request-Id"), "s");
  l.inside.back().second->end_stream();
  EXPECT_TRUE(stream->done);
  const auto file = l.send("f");
  l.inside.back().second->respond_from("text/plain", nullptr, {});
  EXPECT_EQ(file->header("X-Request-Id"), "f");
}

TEST(RequestLog, AClientThatLeavesIsTold) {
  Logged l;
  const auto exchange = l.send("");
  bool told = false;
  l.inside.back().second->on_gone([&] { told = true; });
  ASSERT_TRUE(exchange->gone);
  exchange->gone();
  EXPECT_TRUE(told);
}

TEST(WarningLimit, LetsFiveASecondThroughAndCountsTheRest) {
  WarningLimit limit;
  const WarningLimit::Time start = WarningLimit::Time() + std::chrono::hours(1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(limit.take(start + milliseconds(i)), 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limit.take(start + milliseconds(900)), -1);
  EXPECT_EQ(limit.take(start + milliseconds(1000)), 3);
  EXPECT_EQ(limit.take(start + milliseconds(1001)), 0);
}

}  // namespace
}  // namespace moestro::orchestrator

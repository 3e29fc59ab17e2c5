// What HTTP/1.1 asks of a server beyond requests and answers.

#include "orchestrator/http/request_head.h"
#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

void echo_plainly(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(200, "text/plain", request.method + " " + request.path + " " + request.body, {});
}

std::string post_with(const std::string& headers) {
  return "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + headers + "\r\n";
}

TEST_F(HttpServerTest, AsksForTheBodyThatAClientHoldsBack) {
  serve({}, echo_plainly);
  RawClient client(server_->port());
  client.say(post_with("Expect: 100-continue\r\nContent-Length: 5\r\n"));
  EXPECT_EQ(client.hear("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.say("hello");
  const std::string answer = client.hear();
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nPOST /x hello")) << answer;
}

TEST_F(HttpServerTest, AnXApiKeyStandsForABearersUnlessThereIsOne) {
  serve({}, [](const HttpRequest& r, const std::shared_ptr<Exchange>& e) {
    e->respond(200, "text/plain", "<" + r.authorization + ">");
  });
  const auto seen = [&](const std::string& headers) {
    RawClient client(server_->port());
    client.say(post_with(headers + "Content-Length: 0\r\n"));
    const std::string answer = client.hear();
    return answer.substr(answer.find('<'));
  };
  EXPECT_EQ(seen("x-api-key: k\r\n"), "<Bearer k>");
  EXPECT_EQ(seen("X-API-Key: k\r\nAuthorization: Bearer other\r\n"), "<Bearer other>");
  EXPECT_EQ(seen("x-api-key:\r\n"), "<>");
}

TEST_F(HttpServerTest, AsksAlsoForABodyInChunksAndWhateverTheCase) {
  serve({}, echo_plainly);
  RawClient client(server_->port());
  client.say(post_with("Expect: 100-Continue\r\nTransfer-Encoding: chunked\r\n"));
  client.hear("100 Continue\r\n\r\n");
  client.say("3\r\nabc\r\n0\r\n\r\n");
  EXPECT_TRUE(client.hear().ends_with("POST /x abc"));
}

TEST_F(HttpServerTest, DoesNotAskForABodyThatIsTooLarge) {
  serve({.body_bytes_max = 100}, echo_plainly);
  RawClient client(server_->port());
  client.say(post_with("Expect: 100-continue\r\nContent-Length: 101\r\n"));
  EXPECT_TRUE(client.hear("larger than 100 bytes").starts_with("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, RefusesOtherExpectations) {
  serve({}, echo_plainly);
  RawClient client(server_->port());
  client.say(post_with("Expect: tea\r\nContent-Length: 5\r\n"));
  EXPECT_TRUE(client.hear("417!").starts_with("HTTP/1.1 417 "));
}

TEST_F(HttpServerTest, HeadIsAGetWithoutTheBody) {
  serve({}, echo_plainly);
  RawClient client(server_->port());
  client.say("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string head = client.hear("\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 ")) << head;
  EXPECT_NE(head.find("Content-Length: 7\r\n"), std::string::npos) << head;
  client.say(kGet);
  const std::string next = client.hear();
  EXPECT_TRUE(next.starts_with("HTTP/1.1 200 ")) << "the body of the answer to HEAD came after all: " << next;
  EXPECT_TRUE(next.ends_with("\r\n\r\nGET /x ")) << next;
}

TEST_F(HttpServerTest, WhoSendsABitAtATimeHasNoMoreTimeThanOthers) {
  serve({.request_timeout = std::chrono::seconds(1)}, echo_plainly);
  RawClient client(server_->port());
  const auto begin = std::chrono::steady_clock::now();
  for (bool open = true; open; std::this_thread::sleep_for(std::chrono::milliseconds(50))) {
    open = client.try_say("X");
    ASSERT_LT(std::chrono::steady_clock::now() - begin, kPatience) << "a byte now and then holds the connection";
  }
}

/// What is left of the parser's buffer goes to it again with the next byte, as a socket's would.
TEST(RequestParser, AChunkedBodyMayComeByteByByte) {
  const std::string text = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  const std::string empty = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (const auto& [request, body] : {std::pair(text, "hello"), std::pair(empty, "")}) {
    RequestParser parser;
    parser.eager(true);
    std::string unread;
    for (const char c : request) {
      unread += c;
      boost::system::error_code error;
      unread.erase(0, parser.put(boost::asio::buffer(unread), error));
      ASSERT_TRUE(!error || error == boost::beast::http::error::need_more) << error.message();
    }
    ASSERT_TRUE(parser.is_done());
    EXPECT_EQ(parser.get().body(), body);
  }
}

}  // namespace
}  // namespace moestro::orchestrator

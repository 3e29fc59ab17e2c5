// Where a request ends and whom it is for: what two readers could understand in two ways is refused, and its connection
// closed (RFC 9112).

#include "orchestrator/http/request_head.h"
#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

void echo_query(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(200, "text/plain", request.method + " " + request.path + "?" + request.query + " " + request.body);
}

/// A request that hides in the body of another.
const std::string kHidden = "GET /hidden HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

size_t answers(const std::string& heard) {
  size_t n = 0;
  for (size_t at = heard.find("HTTP/1.1 "); at != std::string::npos; at = heard.find("HTTP/1.1 ", at + 1)) ++n;
  return n;
}

class HttpFramingTest : public HttpServerTest {
 protected:
  void SetUp() override { serve({}, echo_query); }
  /// Says the headers and a hidden request behind them: one answer with this status, and the connection is closed.
  void expect_refused(const std::string& status, const std::string& headers, const std::string& version = "1.1") {
    const std::string heard = ask("POST /x HTTP/" + version + "\r\n" + headers + "\r\n" + kHidden);
    EXPECT_TRUE(heard.starts_with("HTTP/1.1 " + status + " ")) << headers << heard;
    EXPECT_EQ(answers(heard), 1u) << headers << heard;
    EXPECT_NE(heard.find("Connection: close"), std::string::npos) << heard;
  }
};

TEST_F(HttpFramingTest, OnlyChunkedIsATransferCoding) {
  for (const char* coding : {"xchunked", "identity", "chunked, identity", "chunked, chunked", "\"chunked\"", "",
                             "chunked;q=1", ", chunked", "chunked,", "gzip"}) {
    expect_refused("400", std::string("Host: a\r\nTransfer-Encoding: ") + coding + "\r\n");
    expect_refused("400", std::string("Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: ") + coding + "\r\n");
  }
  expect_refused("400", "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n");
  expect_refused("400", "Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n");
  expect_refused("501", "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n");
  expect_refused("501", "Host: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n");
  expect_refused("400", "Transfer-Encoding: chunked\r\n", "1.0");
}

TEST_F(HttpFramingTest, ChunkedAndALengthContradictEachOther) {
  expect_refused("400", "Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n");
  expect_refused("400", "Host: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n");
  expect_refused("400", "Host: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n");
}

TEST_F(HttpFramingTest, ChunkedIsReadWhateverItsCase) {
  EXPECT_TRUE(ask("POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: \t Chunked \r\n\r\n"
                  "3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n")
                  .ends_with("POST /x? abc"));
}

TEST_F(HttpFramingTest, ThereIsOneHost) {
  expect_refused("400", "");
  expect_refused("400", "Host: a\r\nHost: a\r\n");
  expect_refused("400", "Host: a b\r\n");
  expect_refused("400", "Host: a/b\r\n");
  expect_refused("400", "Host: a\r\nHost: b\r\n", "1.0");
  for (const char* host : {"a", "[::1]:80", "", "a.example:8080"})
    EXPECT_TRUE(ask(std::string("GET /x HTTP/1.1\r\nConnection: close\r\nHost: ") + host + "\r\n\r\n")
                    .starts_with("HTTP/1.1 200 "))
        << host;
  EXPECT_TRUE(ask("GET /x HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 ")) << "it came with HTTP/1.1";
}

TEST_F(HttpFramingTest, ATargetMayBeAWholeUrl) {
  const std::pair<const char*, const char*> targets[] = {{"http://a/x/y?q=1", "GET /x/y?q=1 "},
                                                         {"HTTPS://a:8080/", "GET /? "},
                                                         {"http://a", "GET /? "},
                                                         {"http://a?q", "GET /?q "},
                                                         {"/http://a", "GET /http://a? "}};
  for (const auto& [target, seen] : targets)
    EXPECT_TRUE(ask(std::string("GET ") + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ends_with(seen))
        << target;
  for (const char* target : {"a:80", "x/y", "ftp://a/x", "http:///x", "?q"})
    EXPECT_TRUE(ask(std::string("GET ") + target + " HTTP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 400 "))
        << target;
}

TEST_F(HttpFramingTest, ATrailerIsNoHeader) {
  end();
  serve({}, [](const HttpRequest& r, const std::shared_ptr<Exchange>& e) {
    e->respond(200, "text/plain", "<" + r.authorization + ">");
  });
  EXPECT_TRUE(ask("POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3\r\nabc\r\n0\r\nAuthorization: Bearer k\r\n\r\n")
                  .ends_with("<>"));
}

TEST_F(HttpFramingTest, ForHttp10AStreamEndsWithTheConnectionAndHasNoChunks) {
  end();
  serve({}, [](const HttpRequest& r, const std::shared_ptr<Exchange>& e) {
    if (r.path != "/s") return e->respond(200, "text/plain", "whole");
    e->begin_stream();
    e->write("data: 1\n\n");
    e->write("data: 2\n\n");
    e->end_stream();
  });
  const std::string heard = ask("GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_TRUE(heard.ends_with("\r\n\r\ndata: 1\n\ndata: 2\n\n")) << heard;
  EXPECT_EQ(heard.find("chunked"), std::string::npos) << heard;
  EXPECT_NE(heard.find("Connection: close"), std::string::npos) << heard;
  RawClient kept(server_->port());
  for (int i = 0; i < 2; ++i) {
    kept.say("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_NE(kept.hear("whole").find("Connection: keep-alive"), std::string::npos);
  }
  EXPECT_NE(ask("GET /x HTTP/1.0\r\n\r\n").find("Connection: close"), std::string::npos);
}

TEST_F(HttpFramingTest, WhatHasNoBodySaysNothingOfOne) {
  end();
  serve({}, [](const HttpRequest&, const std::shared_ptr<Exchange>& e) { e->respond(204, "text/plain", ""); });
  RawClient client(server_->port());
  client.say("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string heard = client.hear("\r\n\r\n");
  EXPECT_TRUE(heard.starts_with("HTTP/1.1 204 No Content\r\n")) << heard;
  for (const char* header : {"Content-Length", "Transfer-Encoding", "Content-Type"})
    EXPECT_EQ(heard.find(header), std::string::npos) << heard;
}

}  // namespace
}  // namespace moestro::orchestrator

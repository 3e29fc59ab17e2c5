#include "services/cli/common/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/tiny_server.h"

namespace moestro::cli {
namespace {

using std::chrono::milliseconds;
using test::TinyReply;
using test::TinyRequest;
using test::TinyServer;
using testing::HasSubstr;

HttpClient client_of(const TinyServer& server, HttpLimits limits = {}) {
  return HttpClient(*parse_url(server.url() + "/base"), limits);
}

TEST(HttpClient, KeepsItsConnectionAndSendsWhatItWasGiven) {
  TinyServer server([](const TinyRequest& r) {
    return TinyReply{201, r.method + " " + r.path + " " + r.body, "X-Request-Id: r1\r\nRetry-After: 3\r\n"};
  });
  HttpClient client = client_of(server);
  const Result<HttpReply> reply = client.post("/v1/x", "{}");
  ASSERT_TRUE(reply.is_ok()) << reply.status().message();
  EXPECT_EQ(reply->status, 201);
  EXPECT_EQ(reply->body, "POST /base/v1/x {}");
  EXPECT_EQ(reply->request_id, "r1");
  EXPECT_EQ(reply->retry_after_s, 3);
  EXPECT_EQ(client.get("/y")->body, "GET /base/y ");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, AConnectionClosedWhileIdleIsOpenedAgain) {
  TinyServer server([](const TinyRequest&) { return TinyReply{200, "ok", "", "", true}; });
  HttpClient client = client_of(server);
  for (int i = 1; i <= 3; ++i) {
    const auto reply = client.get("/");
    ASSERT_TRUE(reply.is_ok()) << reply.status().message();
    EXPECT_EQ(reply->body, "ok");
    server.wait_closed(i);  // or the next request may meet the closing, and be lost
  }
  EXPECT_EQ(server.connections(), 3);
}

TEST(HttpClient, AServerThatIsNotThereOrHangsUpIsUnavailable) {
  int port = 0;
  {
    TinyServer server([](const TinyRequest&) { return TinyReply{0, "", "", "", true}; });
    port = server.port();
    HttpClient client = client_of(server);
    EXPECT_EQ(client.get("/").status().code(), Code::kUnavailable);
  }
  HttpClient client(*parse_url("http://127.0.0.1:" + std::to_string(port)));
  const Status status = client.get("/").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("cannot connect"));
}

TEST(HttpClient, AnAnswerThatBreaksOffIsAnError) {
  TinyServer server([](const TinyRequest&) {
    return TinyReply{200, "", "", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", true};
  });
  HttpClient client = client_of(server);
  EXPECT_EQ(client.get("/").status().code(), Code::kUnavailable);
}

TEST(HttpClient, WhatIsNotHttpIsCorrupt) {
  TinyServer server([](const TinyRequest&) {
    return TinyReply{200, "", "", "SSH-2.0-OpenSSH\r\n\r\n", true};
  });
  HttpClient client = client_of(server);
  EXPECT_EQ(client.get("/").status().code(), Code::kCorrupt);
}

TEST(HttpClient, SilenceHasALimit) {
  TinyServer server([](const TinyRequest&) {
    return TinyReply{200, "", "", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"};
  });
  HttpClient client = client_of(server, {milliseconds(1000), milliseconds(50), 1 << 20});
  EXPECT_THAT(client.get("/").status().message(), HasSubstr("no answer in time"));
}

TEST(HttpClient, ABodyBeyondTheLimitIsRefused) {
  TinyServer server([](const TinyRequest&) { return TinyReply{200, std::string(2000, 'x')}; });
  HttpClient client = client_of(server, {milliseconds(1000), milliseconds(1000), 1000});
  EXPECT_FALSE(client.get("/").is_ok());
}

TEST(HttpClient, StreamsAreHandedOverInPieces) {
  TinyServer server([](const TinyRequest&) {
    return TinyReply{200, "", "",
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"};
  });
  HttpClient client = client_of(server);
  std::string body;
  const auto collect = [&](std::string_view piece) { return body += piece, Status::ok(); };
  const Result<HttpReply> reply = client.post_stream("/", "{}", collect);
  ASSERT_TRUE(reply.is_ok()) << reply.status().message();
  EXPECT_EQ(body, "abcde");
  EXPECT_EQ(reply->body, "");
  const Result<HttpReply> ended =
      client.post_stream("/", "{}", [](std::string_view) { return cancelled("enough"); });
  EXPECT_EQ(ended.status().code(), Code::kCancelled);
}

TEST(HttpClient, ARefusalOfAStreamComesWhole) {
  TinyServer server([](const TinyRequest&) { return TinyReply{400, "no"}; });
  HttpClient client = client_of(server);
  const Result<HttpReply> reply =
      client.post_stream("/", "{}", [](std::string_view) { return internal_error("must not be called"); });
  ASSERT_TRUE(reply.is_ok());
  EXPECT_EQ(reply->status, 400);
  EXPECT_EQ(reply->body, "no");
}

}  // namespace
}  // namespace moestro::cli

#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

void echo(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  exchange->respond(200, "text/plain", request.method + " " + request.path + " " + request.body, {{"X-More", "yes"}});
}

TEST_F(HttpServerTest, Responds) {
  serve({}, echo);
  const std::string answer =
      ask("POST /a/b?c=d HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
  EXPECT_NE(answer.find("X-More: yes\r\n"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nPOST /a/b hello")) << answer;
}

TEST_F(HttpServerTest, KeepsAConnectionForTheNextRequestAlsoAPipelinedOne) {
  serve({}, echo);
  RawClient client(server_->port());
  client.say("GET /1 HTTP/1.1\r\nHost: a\r\n\r\n");
  client.hear("GET /1 ");
  client.say("GET /2 HTTP/1.1\r\nHost: a\r\n\r\nGET /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string answers = client.hear();
  EXPECT_NE(answers.find("GET /2 "), std::string::npos) << answers;
  EXPECT_TRUE(answers.ends_with("GET /3 ")) << answers;
}

TEST_F(HttpServerTest, Streams) {
  serve({}, [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->begin_stream();
    exchange->write("data: 1\n\n");
    exchange->write("data: 2\n\n");
    exchange->end_stream();
  });
  const std::string answer = ask(kGet);
  EXPECT_NE(answer.find("text/event-stream"), std::string::npos) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n")) << answer;
}

TEST_F(HttpServerTest, StreamsFromAnotherThreadPieceByPiece) {
  std::promise<std::shared_ptr<Exchange>> held;
  serve({}, [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) { held.set_value(std::move(exchange)); });
  RawClient client(server_->port());
  client.say(kGet);
  const auto exchange = held.get_future().get();
  server_->post([&] {
    exchange->begin_stream();
    exchange->write("first");
  });
  EXPECT_NE(client.hear("first").find("200"), std::string::npos);
  server_->post([&] {
    exchange->write("last");
    exchange->end_stream();
  });
  EXPECT_TRUE(client.hear().ends_with("4\r\nlast\r\n0\r\n\r\n"));
}

TEST_F(HttpServerTest, RefusesABodyThatIsTooLarge) {
  serve({.body_bytes_max = 100}, echo);
  const std::string told = ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'x'));
  EXPECT_TRUE(told.starts_with("HTTP/1.1 413 ")) << told;
  EXPECT_TRUE(told.ends_with("413! the body is larger than 100 bytes")) << told;
  const std::string absurd = ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999\r\n\r\n");
  EXPECT_TRUE(absurd.starts_with("HTTP/1.1 413 ")) << absurd;
  const std::string chunked = ask("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
                                  std::string(101, 'x') + "\r\n0\r\n\r\n");
  EXPECT_TRUE(chunked.starts_with("HTTP/1.1 413 ")) << chunked;
  EXPECT_TRUE(
      ask("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 100\r\n\r\n" + std::string(100, 'x'))
          .starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, RefusesAHeaderThatIsTooLarge) {
  serve({.header_bytes_max = 1000}, echo);
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n").starts_with("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, RefusesGarbageAndServesTheNext) {
  serve({}, echo);
  for (const std::string& junk :
       {std::string(4096, '\0'), std::string("GET / HTTP/9.9\r\n\r\n"), std::string("hello there\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n")}) {
    const std::string answer = ask(junk);
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
    EXPECT_TRUE(ask(kGet).starts_with("HTTP/1.1 200 "));
  }
}

TEST_F(HttpServerTest, ClosesAConnectionThatSendsNoRequest) {
  serve({.request_timeout = std::chrono::seconds(1)}, echo);
  EXPECT_EQ(ask("GET / HTT"), "");
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesBeforeItsAnswer) {
  std::promise<std::shared_ptr<Exchange>> held;
  std::promise<void> gone;
  serve({}, [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->on_gone([&] { gone.set_value(); });
    held.set_value(std::move(exchange));
  });
  RawClient client(server_->port());
  client.say(kGet);
  const auto exchange = held.get_future().get();
  client.leave();
  EXPECT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
  std::promise<void> answered;
  server_->post([&] {
    exchange->respond(200, "text/plain", "too late", {});
    answered.set_value();
  });
  EXPECT_EQ(answered.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesAStream) {
  std::promise<void> gone;
  std::shared_ptr<Exchange> kept;
  serve({}, [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->on_gone([&] { gone.set_value(); });
    exchange->begin_stream();
    exchange->write("first");
    kept = std::move(exchange);
  });
  RawClient client(server_->port());
  client.say(kGet);
  client.hear("first");
  client.leave();
  EXPECT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(HttpServerTest, ASilentStreamGetsComments) {
  std::shared_ptr<Exchange> kept;
  serve({.keep_alive_comment = std::chrono::seconds(1)}, [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->begin_stream();
    kept = std::move(exchange);
  });
  RawClient client(server_->port());
  client.say(kGet);
  EXPECT_NE(client.hear("still working").find(": still working\n\n"), std::string::npos);
}

TEST_F(HttpServerTest, RefusesAnAddressThatIsTakenOrNone) {
  serve({}, echo);
  const auto no_error = [](int, const std::string&) { return std::string(); };
  HttpOptions taken;
  taken.port = server_->port();
  const auto second = HttpServer::listen(taken, echo, no_error);
  ASSERT_FALSE(second.is_ok());
  EXPECT_NE(second.status().message().find(std::to_string(taken.port)), std::string::npos);
  HttpOptions nowhere;
  nowhere.host = "not an address";
  const auto third = HttpServer::listen(nowhere, echo, no_error);
  ASSERT_FALSE(third.is_ok());
  EXPECT_NE(third.status().message().find("not an address"), std::string::npos);
}

}  // namespace
}  // namespace moestro::orchestrator

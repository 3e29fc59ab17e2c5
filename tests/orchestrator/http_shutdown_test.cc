// How the server ends: the gate closes, answers under way go out, and nothing that a handler kept reaches into what is
// gone.

#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

/// A server whose handler hands its exchanges to the test.
class HttpShutdownTest : public HttpServerTest {
 protected:
  void serve_held() {
    serve({}, [this](const HttpRequest&, std::shared_ptr<Exchange> exchange) { held_.set_value(std::move(exchange)); });
  }
  std::shared_ptr<Exchange> held() { return held_.get_future().get(); }
  /// Returns once the server's thread has done all that was posted before.
  void settle() {
    std::promise<void> done;
    server_->post([&] { done.set_value(); });
    ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  }
  static bool refuses(uint16_t port) {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool refused = ::connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0;
    ::close(s);
    return refused;
  }
  std::promise<std::shared_ptr<Exchange>> held_;
};

TEST_F(HttpShutdownTest, AClosedGateTakesNobodyNewAndLetsStreamsGoOn) {
  serve_held();
  RawClient client(server_->port());
  client.say("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  const auto exchange = held();
  server_->post([&] {
    exchange->begin_stream();
    exchange->write("first");
  });
  client.hear("first");
  const uint16_t port = server_->port();
  server_->close_gate();
  settle();
  EXPECT_TRUE(refuses(port));
  EXPECT_FALSE(server_->wait_answered(std::chrono::milliseconds(0))) << "the stream is under way";
  server_->post([&] {
    exchange->write("last");
    exchange->end_stream();
  });
  EXPECT_TRUE(server_->wait_answered(kPatience));
  EXPECT_TRUE(client.hear().ends_with("last\r\n0\r\n\r\n")) << "and its connection is not kept for another request";
}

TEST_F(HttpShutdownTest, WaitingForAnswersIsOverWhenTheClientLeaves) {
  serve_held();
  RawClient client(server_->port());
  client.say(kGet);
  const auto exchange = held();
  EXPECT_FALSE(server_->wait_answered(std::chrono::milliseconds(0)));
  client.leave();
  EXPECT_TRUE(server_->wait_answered(kPatience));
}

TEST_F(HttpShutdownTest, StopBreaksOffWhatIsUnderWay) {
  serve_held();
  RawClient client(server_->port());
  client.say(kGet);
  const auto exchange = held();
  server_->post([&] {
    exchange->begin_stream();
    exchange->write("first");
  });
  client.hear("first");
  end();
  EXPECT_EQ(client.hear().find("0\r\n\r\n"), std::string::npos) << "an answer that was broken off must not look whole";
}

TEST_F(HttpShutdownTest, AnExchangeMayOutliveItsServer) {
  for (const bool stream : {false, true}) {
    held_ = {};
    serve_held();
    RawClient client(server_->port());
    client.say(kGet);
    const auto exchange = held();
    bool told = false;
    server_->post([&] {
      exchange->on_gone([&] { told = true; });
      if (stream) exchange->begin_stream();
    });
    settle();
    end();
    EXPECT_FALSE(told) << "who would be told may be gone as well";
    exchange->begin_stream();
    exchange->write("too late");
    exchange->end_stream();
    exchange->respond(200, "text/plain", "too late", {});
    exchange->on_gone([&] { told = true; });
    EXPECT_FALSE(told);
  }
}

TEST_F(HttpShutdownTest, WhatACallbackHoldsIsLetGoOf) {
  serve_held();
  RawClient client(server_->port());
  client.say(kGet);
  std::shared_ptr<Exchange> exchange = held();
  const std::weak_ptr<Exchange> left = exchange;
  server_->post(
      [e = std::move(exchange)] { e->on_gone([e] { e->end_stream(); }); });  // holds itself, as a completion does
  settle();
  EXPECT_FALSE(left.expired());
  end();
  EXPECT_TRUE(left.expired());
}

TEST_F(HttpShutdownTest, WorkPostedAfterTheEndIsDroppedWithWhatItHolds) {
  serve({}, [](const HttpRequest&, const std::shared_ptr<Exchange>&) {});
  server_->stop();
  thread_.join();
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> left = kept;
  server_->post([k = std::move(kept)] { ADD_FAILURE() << "nobody runs it"; });
  server_.reset();
  EXPECT_TRUE(left.expired());
}

}  // namespace
}  // namespace moestro::orchestrator

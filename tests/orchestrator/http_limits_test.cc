// What clients can take of the server's memory and places before anybody knows who they are.

#include <mutex>

#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

constexpr uint64_t kMiB = 1 << 20;

std::string post(uint64_t bytes, const std::string& more = "") {
  return "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: " + std::to_string(bytes) + "\r\n" +
         more + "\r\n";
}
const std::string kChunked = "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";

class HttpLimitsTest : public HttpServerTest {
 protected:
  void serve_echo(HttpOptions options = {}) {
    serve(options, [](const HttpRequest& r, const std::shared_ptr<Exchange>& e) {
      e->respond(200, "text/plain", "body of " + std::to_string(r.body.size()));
    });
  }
  /// The handler answers after release().
  void serve_held(HttpOptions options) {
    serve(options, [this](HttpRequest r, std::shared_ptr<Exchange> e) {
      const std::lock_guard lock(mutex_);
      if (released_) return e->respond(200, "text/plain", "body of " + std::to_string(r.body.size()));
      held_.emplace_back(std::move(r), std::move(e));
      came_.set_value();
    });
  }
  void wait_for_one() {
    ASSERT_EQ(came_.get_future().wait_for(kPatience), std::future_status::ready);
    came_ = {};
  }
  void release() {
    std::promise<void> done;
    server_->post([&] {
      const std::lock_guard lock(mutex_);
      released_ = true;
      held_.clear();
      done.set_value();
    });
    done.get_future().wait();
  }
  void TearDown() override {
    if (server_) release();
    HttpServerTest::TearDown();
  }
  std::mutex mutex_;
  bool released_ = false;
  std::vector<std::pair<HttpRequest, std::shared_ptr<Exchange>>> held_;
  std::promise<void> came_;
};

TEST_F(HttpLimitsTest, AChunkExtensionWithoutEndIsCutOff) {
  serve_echo();
  RawClient client(server_->port());
  client.say(kChunked + "1;");
  const std::string piece(4096, 'x');
  for (int i = 0; i < 1000 && client.try_say(piece); ++i) {
    if (i == 8) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(client.hear("too long").starts_with("HTTP/1.1 400 "));
}

TEST_F(HttpLimitsTest, ManyChunkExtensionsAreCutOffAsWell) {
  serve_echo();
  RawClient client(server_->port());
  client.say(kChunked);
  std::string chunk = "1;" + std::string(1000, 'x') + "\r\na\r\n";
  std::string some, many;
  for (int i = 0; i < 5; ++i) some += chunk;
  for (int i = 0; i < 50; ++i) many += chunk;
  EXPECT_TRUE(ask(kChunked + some + "0\r\n\r\n").ends_with("body of 5"));
  EXPECT_TRUE(ask(kChunked + many + "0\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

TEST_F(HttpLimitsTest, NoBodyIsReadOfAClientThatIsNotKnown) {
  serve_echo();
  server_->post([this] {
    server_->read_bodies_of([](const HttpRequest& head) { return head.authorization == "Bearer k"; });
  });
  RawClient stranger(server_->port());
  stranger.say(post(1000));
  const std::string heard = stranger.hear("body of 0");
  EXPECT_TRUE(heard.starts_with("HTTP/1.1 200 ")) << "the handler has it before any of the body has come: " << heard;
  EXPECT_NE(heard.find("Connection: close"), std::string::npos) << "and what comes is no request";
  RawClient waits(server_->port());
  waits.say(post(1000, "Expect: 100-continue\r\n"));
  EXPECT_EQ(waits.hear("body of 0").find("100 Continue"), std::string::npos);
  EXPECT_TRUE(ask(post(3, "Authorization: Bearer k\r\n") + "abc").ends_with("body of 3"));
}

TEST_F(HttpLimitsTest, AllBodiesHaveOneBudgetUntilTheirHandlersLetGo) {
  // Room for two MiB, the last quarter of it for small ones.
  serve_held({.body_bytes_max = kMiB, .bodies_bytes_max = 0});
  RawClient first(server_->port());
  first.say(post(kMiB) + std::string(kMiB, 'x'));
  wait_for_one();
  const std::string second = ask(post(kMiB) + std::string(kMiB, 'x'));
  EXPECT_TRUE(second.starts_with("HTTP/1.1 503 ")) << second;
  EXPECT_NE(second.find("Retry-After: 1"), std::string::npos) << second;
  RawClient small(server_->port());
  small.say(post(100'000) + std::string(100'000, 'x'));
  wait_for_one();
  release();
  EXPECT_TRUE(ask(post(kMiB) + std::string(kMiB, 'x')).ends_with("body of 1048576"));
}

TEST_F(HttpLimitsTest, LongHeadersHaveABudgetToo) {
  serve_echo({.heads_bytes_max = 16 << 10});
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(40'000, 'x')).starts_with("HTTP/1.1 503 "));
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: " + std::string(3'000, 'x') + "\r\n\r\n")
                  .starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpLimitsTest, IdleConnectionsGiveTheirPlacesToNewOnes) {
  serve_echo({.connections_max = 4});
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 12; ++i) idle.push_back(std::make_unique<RawClient>(server_->port()));
  idle[0]->say("GET / HT");
  EXPECT_TRUE(ask(kGet).starts_with("HTTP/1.1 200 "));
  EXPECT_EQ(idle[0]->hear(), "") << "the oldest was closed";
  idle.back()->say(kGet);
  EXPECT_TRUE(idle.back()->hear().starts_with("HTTP/1.1 200 ")) << "the newest has its place";
}

TEST_F(HttpLimitsTest, SoDoBodiesThatDoNotCome) {
  serve_echo({.connections_max = 2});
  RawClient one(server_->port()), two(server_->port());
  for (RawClient* slow : {&one, &two}) slow->say(post(1000) + "x");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask(kGet).starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpLimitsTest, WhereAllAreAnsweredANewOneIsRefused) {
  serve_held({.connections_max = 1});
  RawClient first(server_->port());
  first.say(kGet);
  wait_for_one();
  RawClient second(server_->port());
  EXPECT_TRUE(second.hear("(1)").starts_with("HTTP/1.1 503 "));
}

TEST_F(HttpLimitsTest, AClientThatLeavesBehindBytesThatNobodyReadsIsNoticed) {
  std::promise<void> gone;
  std::promise<void> held;
  std::shared_ptr<Exchange> kept;
  serve({}, [&](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
    exchange->on_gone([&] { gone.set_value(); });
    kept = std::move(exchange);
    held.set_value();
  });
  RawClient client(server_->port());
  client.say("GET /x HTTP/1.1\r\nHost: a\r\n\r\n" + std::string(60'000, 'p'));
  held.get_future().wait();
  const auto left = std::chrono::steady_clock::now();
  client.leave();
  ASSERT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
  EXPECT_LT(std::chrono::steady_clock::now() - left, std::chrono::milliseconds(600));
}

}  // namespace
}  // namespace moestro::orchestrator

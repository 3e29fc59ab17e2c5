// Clients that read more slowly than they are written to: they are waited for, their streams are kept small, and only
// who takes nothing is cut off.

#include <atomic>

#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kSmallWindow = 4096;

/// Writes `bytes` of x to a stream, in pieces, and no more than its client has room for.
struct Writer : std::enable_shared_from_this<Writer> {
  Writer(std::shared_ptr<Exchange> e, size_t bytes) : exchange(std::move(e)), left(bytes) {}
  void begin() {
    exchange->begin_stream();
    exchange->on_drained([self = weak_from_this()] {
      if (const auto writer = self.lock()) writer->go_on();
    });
    go_on();
  }
  void go_on() {
    for (; left > 0 && !exchange->crowded(); left -= std::min<size_t>(left, 1000))
      exchange->write(std::string(std::min<size_t>(left, 1000), 'x'));
    if (left == 0) exchange->end_stream();
  }
  const std::shared_ptr<Exchange> exchange;
  std::atomic<size_t> left;
};

class HttpSlowReaderTest : public HttpServerTest {
 protected:
  /// A stream of so many bytes on each connection.
  void serve_streams(size_t bytes, std::chrono::seconds reader_wait) {
    serve({.reader_wait = reader_wait}, [this, bytes](const HttpRequest&, std::shared_ptr<Exchange> exchange) {
      exchange->on_gone([this] { gone_.set_value(); });
      writer_ = std::make_shared<Writer>(std::move(exchange), bytes);
      writer_->begin();
    });
  }
  void TearDown() override {
    HttpServerTest::TearDown();
    writer_.reset();
  }
  std::promise<void> gone_;
  std::shared_ptr<Writer> writer_;
};

TEST_F(HttpSlowReaderTest, WhatIsNotReadIsNotWritten) {
  serve_streams(64 << 20, std::chrono::seconds(60));
  RawClient client(server_->port(), kSmallWindow);
  client.say(kGet);
  client.hear("xxxx");
  EXPECT_GT(writer_->left, size_t{60} << 20) << "the server and its kernel keep little for a client that does not read";
}

TEST_F(HttpSlowReaderTest, WhoTakesNothingIsCutOff) {
  serve_streams(64 << 20, std::chrono::seconds(1));
  RawClient client(server_->port(), kSmallWindow);
  client.say(kGet);
  EXPECT_EQ(gone_.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST_F(HttpSlowReaderTest, WhoTakesALittleIsNotCutOffAndGetsItAll) {
  constexpr size_t kBytes = 4 << 20;
  serve_streams(kBytes, std::chrono::seconds(1));
  RawClient client(server_->port(), kSmallWindow);
  client.say(kGet);
  size_t heard = 0;
  // Three times as long as one may take nothing, it takes 32 KiB at a time.
  for (const auto end = steady_clock::now() + milliseconds(3000); steady_clock::now() < end;
       std::this_thread::sleep_for(milliseconds(200)))
    heard += client.take(32 << 10).size();
  EXPECT_LT(heard, kBytes / 2);
  EXPECT_EQ(gone_.get_future().wait_for(milliseconds(0)), std::future_status::timeout);
  const std::string rest = client.hear("0\r\n\r\n");
  EXPECT_GT(heard + rest.size(), kBytes);
}

TEST_F(HttpSlowReaderTest, OthersDoNotWait) {
  serve_streams(1 << 20, std::chrono::seconds(60));
  RawClient slow(server_->port(), kSmallWindow);
  slow.say(kGet);
  slow.hear("xxxx");
  const auto first = writer_;
  for (int i = 0; i < 3; ++i) EXPECT_GT(ask(kGet).size(), size_t{1} << 20);
  EXPECT_GT(first->left, 0u) << "it is still behind";
  EXPECT_GT(slow.hear("0\r\n\r\n").size(), size_t{1} << 19);
}

}  // namespace
}  // namespace moestro::orchestrator

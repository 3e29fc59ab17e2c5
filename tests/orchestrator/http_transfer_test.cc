// Bodies in pieces: they go into a sink, and come from a source, without being in memory as a whole.

#include <atomic>

#include "tests/orchestrator/http_server_fixture.h"

namespace moestro::orchestrator {
namespace {

using namespace testing;

struct Counting final : BodySink {
  explicit Counting(uint64_t most) : most_(most) {}
  void take(std::string piece, std::function<void(bool)> taken) override {
    largest = std::max(largest, piece.size());
    bytes += piece.size();
    for (const char c : piece) sum = sum * 31 + static_cast<unsigned char>(c);
    taken(bytes <= most_);
  }
  uint64_t most_, bytes = 0, sum = 0;
  size_t largest = 0;
};

struct Pattern final : BodySource {
  explicit Pattern(uint64_t size, uint64_t breaks_at = UINT64_MAX) : size_(size), breaks_at_(breaks_at) {}
  uint64_t bytes() const override { return size_; }
  void next(std::function<void(std::string)> ready) override {
    const uint64_t n = sent_ >= breaks_at_ ? 0 : std::min<uint64_t>(100'000, size_ - sent_);
    sent_ += n;
    ready(std::string(n, 'p'));
  }
  uint64_t size_, breaks_at_, sent_ = 0;
};

class HttpTransferTest : public HttpServerTest {
 protected:
  /// Uploads to /up go into a sink that takes `most` bytes, and are answered with what it has.
  void serve_uploads(uint64_t most) {
    serve({.body_bytes_max = 1000, .upload_bytes_max = 4 << 20}, [this](HttpRequest r, std::shared_ptr<Exchange> e) {
      const auto* sink = dynamic_cast<const Counting*>(r.sink.get());
      if (sink == nullptr)
        return e->respond(200, "text/plain", "body of " + std::to_string(r.body.size()) + " query " + r.query);
      largest_ = sink->largest;
      e->respond(sink->bytes > sink->most_ ? 507 : 200, "text/plain",
                 std::to_string(sink->bytes) + " " + std::to_string(sink->sum));
    });
    server_->post([this, most] {
      server_->take_uploads([most](const HttpRequest& head, const std::string& type) -> std::shared_ptr<BodySink> {
        return head.path == "/up" && type == "x/y" ? std::make_shared<Counting>(most) : nullptr;
      });
    });
  }
  static std::string upload(const std::string& body) {
    return "POST /up HTTP/1.1\r\nHost: a\r\nContent-Type: x/y\r\nConnection: close\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  std::atomic<size_t> largest_{0};
};

TEST_F(HttpTransferTest, AnUploadGoesIntoItsSinkInPieces) {
  serve_uploads(UINT64_MAX);
  std::string body;
  for (int i = 0; body.size() < 3'000'000; ++i) body += std::to_string(i);
  uint64_t sum = 0;
  for (const char c : body) sum = sum * 31 + static_cast<unsigned char>(c);
  const std::string told = ask(upload(body));
  EXPECT_TRUE(told.ends_with(std::to_string(body.size()) + " " + std::to_string(sum))) << told;
  EXPECT_LE(largest_, 256u << 10);
}

TEST_F(HttpTransferTest, OtherBodiesKeepTheirLimit) {
  serve_uploads(UINT64_MAX);
  EXPECT_TRUE(ask("POST /x?a=b&c HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc")
                  .ends_with("body of 3 query a=b&c"));
  const std::string told = ask("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'));
  EXPECT_TRUE(told.ends_with("413! the body is larger than 1000 bytes")) << told;
  const std::string much = ask("POST /up HTTP/1.1\r\nHost: a\r\nContent-Type: x/y\r\nContent-Length: 9999999\r\n\r\n");
  EXPECT_TRUE(much.ends_with("413! the body is larger than 4194304 bytes")) << much;
}

TEST_F(HttpTransferTest, ASinkThatIsFullIsAnsweredForBeforeTheEnd) {
  serve_uploads(10);
  const std::string told = ask(upload(std::string(3'000'000, 'x')));
  EXPECT_TRUE(told.starts_with("HTTP/1.1 507 ")) << told;
  EXPECT_NE(told.find("Connection: close"), std::string::npos) << told;
}

TEST_F(HttpTransferTest, AnAnswerComesFromItsSource) {
  serve({}, [](HttpRequest, std::shared_ptr<Exchange> e) {
    e->respond_from("a/b", std::make_shared<Pattern>(1'000'003), {{"X-Y", "z"}});
  });
  const std::string told = ask(kGet);
  EXPECT_NE(told.find("Content-Length: 1000003\r\n"), std::string::npos);
  EXPECT_NE(told.find("X-Y: z\r\n"), std::string::npos);
  EXPECT_TRUE(told.ends_with("\r\n\r\n" + std::string(1'000'003, 'p')));
  const std::string head = ask("HEAD /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_NE(head.find("Content-Length: 1000003\r\n"), std::string::npos);
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
}

TEST_F(HttpTransferTest, ASourceThatFailsBreaksTheConnection) {
  serve({}, [](HttpRequest, std::shared_ptr<Exchange> e) {
    e->respond_from("a/b", std::make_shared<Pattern>(1'000'000, 300'000));
  });
  const std::string told = ask("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_LT(told.size(), 400'000u) << "a keep-alive client must not take what is missing for what is there";
}

}  // namespace
}  // namespace moestro::orchestrator

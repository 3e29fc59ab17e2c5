#pragma once
// An answer in progress: the handler writes it, the connection's coroutine takes it.

#include <cstdint>
#include <deque>
#include <optional>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// The Exchange that a handler holds. It owns nothing of the server: a handler may keep it after the server is gone,
/// and later calls do nothing. Server's thread only.
class Pending final : public Exchange {
 public:
  struct Answer {
    int status = 0;
    std::string content_type, body;
    Headers headers;
    std::shared_ptr<BodySource> source = nullptr;  ///< instead of body
  };

  explicit Pending(uint64_t crowded_bytes) : crowded_bytes_(crowded_bytes) {}

  void respond(int status, const std::string& content_type, std::string body, const Headers& headers) override;
  void respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                    const Headers& headers) override;
  void begin_stream(const Headers& headers) override;
  void write(std::string text) override;
  void end_stream() override;
  void on_gone(std::function<void()> callback) override;
  bool crowded() const override { return waiting_bytes_ > crowded_bytes_; }
  void on_drained(std::function<void()> callback) override { drained_callback_ = std::move(callback); }

  // The connection's side.

  /// `wake` is called at each change from now on.
  void attach(std::function<void()> wake) { wake_ = std::move(wake); }
  /// The connection has finished with it: nothing is called any more. Drops the callback, which may own this object.
  void detach();
  /// The client has left: tells the handler if the answer was not complete.
  void client_left();
  /// Takes all text that waits. If the stream was crowded, the handler is told to continue, and may have written more
  /// when this returns.
  std::deque<std::string> take_text();

  const std::optional<Answer>& answer() const { return answer_; }
  bool streaming() const { return streaming_; }
  const Headers& stream_headers() const { return stream_headers_; }
  bool done() const { return done_; }
  bool gone() const { return gone_; }
  bool detached() const { return detached_; }
  bool has_text() const { return !queue_.empty(); }

 private:
  void wake() {
    if (wake_) wake_();
  }

  const uint64_t crowded_bytes_;
  std::optional<Answer> answer_;
  Headers stream_headers_;
  std::deque<std::string> queue_;
  std::function<void()> wake_, gone_callback_, drained_callback_;
  uint64_t waiting_bytes_ = 0;
  bool streaming_ = false, done_ = false, gone_ = false, detached_ = false;
};

}  // namespace moestro::orchestrator

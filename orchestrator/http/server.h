#pragma once
// HTTP/1.1 on one thread; see README.md.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/status.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// PEM files: the certificate followed by its chain, and its private key.
struct TlsFiles {
  std::filesystem::path certificate, key;
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  ///< 0: a free one
  uint64_t body_bytes_max = 16 << 20;
  uint64_t upload_bytes_max = 0;  ///< for bodies that go into a sink
  uint32_t header_bytes_max = 64 << 10;
  uint64_t bodies_bytes_max = 128 << 20;  ///< of all bodies in memory; at least two of the longest
  uint64_t heads_bytes_max = 32 << 20;    ///< of all headers that are being read, beyond 4 KiB of each
  uint32_t connections_max = 4096;
  uint32_t connections_local = 64;  ///< of these, kept for clients on this host
  uint32_t connections_of_one_max = 3072;       ///< of one address of another host
  uint64_t crowded_bytes = 64 << 10;            ///< a stream with more than this unsent is crowded
  std::optional<TlsFiles> tls = std::nullopt;   ///< https instead of http
  std::chrono::seconds request_timeout{30};     ///< to send a request, and between two requests
  std::chrono::seconds reader_wait{300};        ///< a client that reads nothing of its answer for this long is
                                                ///< disconnected
  std::chrono::seconds keep_alive_comment{10};  ///< a silent stream gets a comment line
};

class HttpServer {
 public:
  /// Reads the certificate, if any, binds and listens. `error_body(status, message)` makes the body of refusals by the
  /// server itself.
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options, Handler handler,
                                                    std::function<std::string(int, const std::string&)> error_body);
  ~HttpServer();

  uint16_t port() const;
  /// Called before a body is read. Set it before run().
  void take_uploads(SinkFor sink_for);
  /// Called before that. False: the body is not read, and the handler gets the request without it and refuses it. Set
  /// it before run().
  void read_bodies_of(std::function<bool(const HttpRequest& head)> known);
  /// Serves until stop(); calls handlers on this thread.
  void run();
  /// Runs `work` on the server's thread. From any thread.
  void post(std::function<void()> work);
  /// Accepts no more connections; existing ones end with their next answer. From any thread.
  void close_gate();
  /// Waits until every running answer is sent; false if `limit` passes before. From any thread except the server's.
  bool wait_answered(std::chrono::milliseconds limit);
  /// Ends run(); running answers are aborted. From any thread.
  void stop();

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::orchestrator

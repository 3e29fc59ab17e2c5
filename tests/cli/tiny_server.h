#pragma once
// An HTTP server of a few lines on 127.0.0.1: each request goes to a handler, which may be called by several
// threads.

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace moestro::test {

struct TinyRequest {
  std::string method, path, body;
  std::string authorization = {};  ///< the header of this name; empty: not there
};

struct TinyReply {
  int status = 200;
  std::string body = "{}";
  std::string headers{};  ///< more header lines, each with its \r\n
  std::string raw{};      ///< not empty: sent as it is instead of all the above
  bool hang_up = false;   ///< close the connection after it (with an empty raw and status 0: without a byte)
};

class TinyServer {
 public:
  using Handler = std::function<TinyReply(const TinyRequest&)>;
  explicit TinyServer(Handler handler);
  ~TinyServer();
  TinyServer(const TinyServer&) = delete;
  TinyServer& operator=(const TinyServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int connections() const { return connections_; }
  /// Blocks until this side has closed `n` connections.
  void wait_closed(int n) const;

 private:
  void accept_all();
  void serve(int fd);
  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0}, closed_{0};
  std::thread acceptor_;
  std::vector<std::thread> threads_;
};

}  // namespace moestro::test

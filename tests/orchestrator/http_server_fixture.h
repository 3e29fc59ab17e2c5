#pragma once
// A server on a thread of its own and clients that say exactly what they are told to.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <thread>

#include "orchestrator/http/server.h"

namespace moestro::orchestrator::testing {

/// A client that says exactly the bytes it is told to. Reads give up after ten seconds, so a server that hangs fails
/// the test.
class RawClient {
 public:
  explicit RawClient(uint16_t port, int receive_buffer = 0) : RawClient() { connect(port, receive_buffer); }
  /// Has its descriptor, and connects later.
  RawClient() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  void connect(uint16_t port, int receive_buffer = 0) {
    const timeval limit{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (receive_buffer > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~RawClient() { leave(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void say(const std::string& bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  /// False if nobody is there any more.
  bool try_say(const std::string& bytes) { return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0; }
  /// What comes until `end` was seen, or the server closes if `end` is empty.
  std::string hear(const std::string& end = "") {
    std::string heard;
    char buffer[4096];
    while (end.empty() || heard.find(end) == std::string::npos) {
      const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
      if (n < 0 && errno != ECONNRESET) ADD_FAILURE() << "the server neither answered nor closed; so far: " << heard;
      if (n <= 0) break;
      heard.append(buffer, static_cast<size_t>(n));
    }
    return heard;
  }
  /// The next `n` bytes, or fewer if the server closes.
  std::string take(size_t n) {
    std::string taken(n, '\0');
    taken.resize(static_cast<size_t>(std::max<ssize_t>(0, ::recv(socket_, taken.data(), n, MSG_WAITALL))));
    return taken;
  }
  void leave() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

 private:
  int socket_;
};

/// A server on a free port, on its own thread.
class HttpServerTest : public ::testing::Test {
 protected:
  void serve(HttpOptions options, Handler handler) {
    options.port = 0;
    auto made = HttpServer::listen(options, std::move(handler), [](int status, const std::string& why) {
      return std::to_string(status) + "! " + why;
    });
    ASSERT_TRUE(made.is_ok()) << made.status().message();
    server_ = std::move(*made);
    thread_ = std::thread([this] { server_->run(); });
  }
  void TearDown() override { end(); }
  /// Stops the server and lets it go.
  void end() {
    if (!server_) return;
    server_->stop();
    thread_.join();
    server_.reset();
  }
  std::string ask(const std::string& request) {
    RawClient client(server_->port());
    client.say(request);
    return client.hear();
  }
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

inline constexpr auto kPatience = std::chrono::seconds(10);
inline const std::string kGet = "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

}  // namespace moestro::orchestrator::testing

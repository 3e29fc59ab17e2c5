#include "tests/cli/tiny_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace moestro::test {
namespace {

/// Appends what comes; false at the end of the connection or of the test.
bool receive(int fd, std::string& buffer, const std::atomic<bool>& stop) {
  while (!stop) {
    pollfd ready{fd, POLLIN, 0};
    if (::poll(&ready, 1, 20) == 0) continue;
    char chunk[65536];
    const ssize_t n = ::recv(fd, chunk, sizeof chunk, 0);
    if (n <= 0) return false;
    buffer.append(chunk, static_cast<size_t>(n));
    return true;
  }
  return false;
}

size_t content_length(const std::string& head) {
  const size_t at = head.find("Content-Length: ");
  return at == std::string::npos ? 0 : static_cast<size_t>(std::atoll(head.c_str() + at + 16));
}

std::string render(const TinyReply& reply) {
  if (!reply.raw.empty() || reply.status == 0) return reply.raw;
  return "HTTP/1.1 " + std::to_string(reply.status) + " X\r\nContent-Type: application/json\r\n" +
         reply.headers + "Content-Length: " + std::to_string(reply.body.size()) + "\r\n\r\n" + reply.body;
}

}  // namespace

TinyServer::TinyServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(listener_, 64), 0);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

TinyServer::~TinyServer() {
  stop_ = true;
  acceptor_.join();
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

void TinyServer::wait_closed(int n) const {
  for (int closed = closed_; closed < n; closed = closed_) closed_.wait(closed);
}

void TinyServer::accept_all() {
  while (!stop_) {
    pollfd ready{listener_, POLLIN, 0};
    if (::poll(&ready, 1, 20) <= 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++connections_;
    threads_.emplace_back([this, fd] {
      serve(fd);
      ::close(fd);
      ++closed_;
      closed_.notify_all();
    });
  }
}

void TinyServer::serve(int fd) {
  std::string buffer;
  while (!stop_) {
    size_t head_end = 0;
    while ((head_end = buffer.find("\r\n\r\n")) == std::string::npos)
      if (!receive(fd, buffer, stop_)) return;
    const std::string head = buffer.substr(0, head_end);
    const size_t whole = head_end + 4 + content_length(head);
    while (buffer.size() < whole)
      if (!receive(fd, buffer, stop_)) return;
    TinyRequest request;
    request.method = head.substr(0, head.find(' '));
    const size_t path = request.method.size() + 1;
    request.path = head.substr(path, head.find(' ', path) - path);
    request.body = buffer.substr(head_end + 4, whole - head_end - 4);
    constexpr std::string_view kAuthorization = "\r\nAuthorization: ";
    if (const size_t at = head.find(kAuthorization); at != std::string::npos) {
      const size_t value = at + kAuthorization.size();
      request.authorization = head.substr(value, head.find("\r\n", value) - value);
    }
    buffer.erase(0, whole);
    const TinyReply reply = handler_(request);
    const std::string bytes = render(reply);
    if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 || reply.hang_up) return;
  }
}

}  // namespace moestro::test

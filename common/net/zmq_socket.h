#pragma once
// The two ZeroMQ sockets that Moestro uses, and the only place that includes ZeroMQ. A server binds a ROUTER, its
// clients connect DEALERs; every message is one frame of bytes (a FlatBuffer). A socket belongs to the thread that made
// it.

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::net {

using Bytes = std::vector<std::byte>;

/// Endpoints are "ipc://PATH" or "tcp://HOST:PORT". An ipc path longer than the kernel's limit (107 bytes) is refused
/// by name.
struct SocketLimits {
  int queued_messages_max = 1000;             ///< a full queue makes send() kExhausted
  int64_t message_bytes_max = 256 << 20;      ///< larger ones from a peer end its connection
};

class RouterSocket {
 public:
  struct Incoming {
    std::string peer;  ///< opaque identity; answer with it
    Bytes body;
  };
  static Result<RouterSocket> bind(const std::string& endpoint, SocketLimits limits = {});
  RouterSocket(RouterSocket&&) noexcept;
  RouterSocket& operator=(RouterSocket&&) noexcept;
  ~RouterSocket();

  /// kUnavailable if that peer is gone.
  Status send(const std::string& peer, std::span<const std::byte> body);
  /// The next message if there is one. Never waits.
  Result<std::optional<Incoming>> receive();
  /// Waits until a message can be received, `wake_fd` (an eventfd or socket, -1: none) is readable, or `timeout` has
  /// passed. False on timeout.
  Result<bool> wait(std::chrono::milliseconds timeout, int wake_fd = -1);

 private:
  struct Impl;
  explicit RouterSocket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class DealerSocket {
 public:
  /// Connects in the background. Messages that are sent before the server exists wait in the queue.
  static Result<DealerSocket> connect(const std::string& endpoint, SocketLimits limits = {});
  DealerSocket(DealerSocket&&) noexcept;
  DealerSocket& operator=(DealerSocket&&) noexcept;
  ~DealerSocket();

  Status send(std::span<const std::byte> body);
  Result<std::optional<Bytes>> receive();
  Result<bool> wait(std::chrono::milliseconds timeout, int wake_fd = -1);
  /// How long what was sent may take to leave after the socket has closed. The process ends no earlier. 0 at first.
  void linger(std::chrono::milliseconds limit);

 private:
  struct Impl;
  explicit DealerSocket(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moestro::net

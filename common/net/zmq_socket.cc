#include "common/net/zmq_socket.h"

#include <sys/un.h>
#include <unistd.h>

#include <zmq.hpp>

namespace moestro::net {
namespace {

zmq::context_t& context() {
  static zmq::context_t instance(1);  // one I/O thread a process; sockets are closed before it by their owners
  return instance;
}

Status check_endpoint(const std::string& endpoint) {
  if (endpoint.starts_with("tcp://")) return Status::ok();
  if (!endpoint.starts_with("ipc://") || endpoint.size() == 6)
    return invalid_argument("endpoint '" + endpoint + "' is neither ipc://PATH nor tcp://HOST:PORT");
  const size_t path_max = sizeof(sockaddr_un{}.sun_path) - 1;
  if (endpoint.size() - 6 > path_max)
    return invalid_argument("endpoint '" + endpoint + "': a socket path may have at most " + std::to_string(path_max) +
                            " bytes; choose a shorter run directory");
  return Status::ok();
}

Result<zmq::socket_t> open_socket(zmq::socket_type type, const std::string& endpoint, SocketLimits limits) {
  MOESTRO_RETURN_IF_ERROR(check_endpoint(endpoint));
  try {
    zmq::socket_t socket(context(), type);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::sndhwm, limits.queued_messages_max);
    socket.set(zmq::sockopt::rcvhwm, limits.queued_messages_max);
    socket.set(zmq::sockopt::maxmsgsize, limits.message_bytes_max);
    socket.set(zmq::sockopt::reconnect_ivl, 20);
    socket.set(zmq::sockopt::reconnect_ivl_max, 500);
    if (type == zmq::socket_type::router) {
      socket.set(zmq::sockopt::router_mandatory, true);
      socket.bind(endpoint);
    } else {
      socket.connect(endpoint);
    }
    return socket;
  } catch (const zmq::error_t& e) {
    return unavailable("cannot open " + endpoint + ": " + e.what());
  }
}

zmq::const_buffer view(std::span<const std::byte> body) { return zmq::buffer(body.data(), body.size()); }

Bytes copy(const zmq::message_t& m) {
  const auto* begin = static_cast<const std::byte*>(m.data());
  return Bytes(begin, begin + m.size());
}

/// Receives all frames of the next message; nothing if none waits.
Result<std::vector<zmq::message_t>> receive_frames(zmq::socket_t& socket) {
  std::vector<zmq::message_t> frames;
  try {
    do {
      zmq::message_t frame;
      if (!socket.recv(frame, zmq::recv_flags::dontwait)) break;
      frames.push_back(std::move(frame));
    } while (frames.back().more());
    return frames;
  } catch (const zmq::error_t& e) {
    if (e.num() == EINTR) return std::vector<zmq::message_t>{};
    return io_error(std::string("receive: ") + e.what());
  }
}

Result<bool> wait_readable(zmq::socket_t& socket, std::chrono::milliseconds timeout, int wake_fd) {
  zmq::pollitem_t items[2] = {{socket.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, wake_fd, ZMQ_POLLIN, 0}};
  try {
    return zmq::poll(items, wake_fd >= 0 ? 2 : 1, timeout) > 0;
  } catch (const zmq::error_t& e) {
    if (e.num() == EINTR) return false;
    return io_error(std::string("poll: ") + e.what());
  }
}

}  // namespace

struct RouterSocket::Impl {
  zmq::socket_t socket;
};
struct DealerSocket::Impl {
  zmq::socket_t socket;
};

RouterSocket::RouterSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RouterSocket::RouterSocket(RouterSocket&&) noexcept = default;
RouterSocket& RouterSocket::operator=(RouterSocket&&) noexcept = default;
RouterSocket::~RouterSocket() = default;

Result<RouterSocket> RouterSocket::bind(const std::string& endpoint, SocketLimits limits) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, open_socket(zmq::socket_type::router, endpoint, limits));
  return RouterSocket(std::make_unique<Impl>(Impl{std::move(socket)}));
}

Status RouterSocket::send(const std::string& peer, std::span<const std::byte> body) {
  try {
    const auto flags = zmq::send_flags::dontwait;
    if (!impl_->socket.send(zmq::buffer(peer), zmq::send_flags::sndmore | flags))
      return exhausted("the queue to a peer is full");
    if (!impl_->socket.send(view(body), flags)) return exhausted("the queue to a peer is full");
    return Status::ok();
  } catch (const zmq::error_t& e) {
    return unavailable(std::string("send: ") + e.what());
  }
}

Result<std::optional<RouterSocket::Incoming>> RouterSocket::receive() {
  MOESTRO_ASSIGN_OR_RETURN(auto frames, receive_frames(impl_->socket));
  if (frames.empty()) return std::optional<Incoming>{};
  if (frames.size() != 2)
    return std::optional<Incoming>{
        Incoming{frames[0].to_string(), {}}};  // identity + one body are our protocol: this is none
  return std::optional<Incoming>{Incoming{frames[0].to_string(), copy(frames[1])}};
}

Result<bool> RouterSocket::wait(std::chrono::milliseconds timeout, int wake_fd) {
  return wait_readable(impl_->socket, timeout, wake_fd);
}

DealerSocket::DealerSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DealerSocket::DealerSocket(DealerSocket&&) noexcept = default;
DealerSocket& DealerSocket::operator=(DealerSocket&&) noexcept = default;
DealerSocket::~DealerSocket() = default;

Result<DealerSocket> DealerSocket::connect(const std::string& endpoint, SocketLimits limits) {
  MOESTRO_ASSIGN_OR_RETURN(auto socket, open_socket(zmq::socket_type::dealer, endpoint, limits));
  return DealerSocket(std::make_unique<Impl>(Impl{std::move(socket)}));
}

Status DealerSocket::send(std::span<const std::byte> body) {
  try {
    if (!impl_->socket.send(view(body), zmq::send_flags::dontwait)) return exhausted("the queue to the server is full");
    return Status::ok();
  } catch (const zmq::error_t& e) {
    return unavailable(std::string("send: ") + e.what());
  }
}

Result<std::optional<Bytes>> DealerSocket::receive() {
  MOESTRO_ASSIGN_OR_RETURN(auto frames, receive_frames(impl_->socket));
  if (frames.size() != 1) return std::optional<Bytes>{};
  return std::optional<Bytes>{copy(frames[0])};
}

void DealerSocket::linger(std::chrono::milliseconds limit) {
  impl_->socket.set(zmq::sockopt::linger, static_cast<int>(limit.count()));
}

Result<bool> DealerSocket::wait(std::chrono::milliseconds timeout, int wake_fd) {
  return wait_readable(impl_->socket, timeout, wake_fd);
}

}  // namespace moestro::net

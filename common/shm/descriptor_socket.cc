#include "common/shm/descriptor_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace moestro::shm {
namespace {

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = path.string();
  if (text.size() >= sizeof address.sun_path)
    return invalid_argument("the socket's path " + text + " is longer than " +
                            std::to_string(sizeof address.sun_path - 1) + " bytes");
  std::memcpy(address.sun_path, text.c_str(), text.size());
  return address;
}

/// A message of one byte, for a descriptor cannot travel without any.
struct Parcel {
  char byte = 'd';
  iovec piece{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  Parcel() {
    message.msg_iov = &piece, message.msg_iovlen = 1;
    message.msg_control = control, message.msg_controllen = sizeof control;
  }
};

void send_descriptor(int socket, int fd) {
  Parcel parcel;
  cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
  header->cmsg_level = SOL_SOCKET, header->cmsg_type = SCM_RIGHTS, header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (::sendmsg(socket, &parcel.message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace

Result<std::unique_ptr<DescriptorServer>> DescriptorServer::listen(const std::filesystem::path& path, int fd,
                                                                   const FileAccess& access) {
  std::unique_ptr<DescriptorServer> server(new DescriptorServer());
  MOESTRO_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  server->handed_.reset(::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!server->handed_) return io_error("cannot open memory for reading through /proc", errno);
  server->listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!server->listener_) return io_error("socket", errno);
  ::unlink(path.c_str());
  if (::bind(server->listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return io_error("cannot make the socket " + path.string(), errno);
  server->path_ = path;
  MOESTRO_RETURN_IF_ERROR(access.apply(path, access.shared()));
  if (::listen(server->listener_.get(), 64) != 0) return io_error("cannot listen at " + path.string(), errno);
  server->thread_ = std::thread([raw = server.get()] { raw->serve(); });
  return server;
}

DescriptorServer::~DescriptorServer() {
  if (listener_) ::shutdown(listener_.get(), SHUT_RDWR);  // accept() returns
  if (thread_.joinable()) thread_.join();
  if (!path_.empty()) ::unlink(path_.c_str());
}

void DescriptorServer::serve() {
  while (true) {
    const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client) send_descriptor(client.get(), handed_.get());
    else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE && errno != ENFILE && errno != ENOBUFS &&
             errno != ENOMEM)
      return;
    else if (errno != EINTR)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // out of descriptors: the client asks again
  }
}

Result<UniqueFd> receive_descriptor(const std::filesystem::path& path, std::chrono::milliseconds timeout) {
  MOESTRO_ASSIGN_OR_RETURN(const sockaddr_un address, address_of(path));
  const UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return io_error("socket", errno);
  const timeval wait{timeout.count() / 1000, timeout.count() % 1000 * 1000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return unavailable("nobody hands out memory at " + path.string() + ": " + std::strerror(errno));
  Parcel parcel;
  ssize_t got = 0;
  while ((got = ::recvmsg(socket.get(), &parcel.message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  const cmsghdr* header = got == 1 ? CMSG_FIRSTHDR(&parcel.message) : nullptr;
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int)))
    return unavailable("no memory was handed out at " + path.string());
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return UniqueFd(fd);
}

}  // namespace moestro::shm

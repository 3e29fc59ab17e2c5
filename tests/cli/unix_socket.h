#pragma once
// A socket that accepts connections and says nothing: a store that does not answer.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

#include "common/shm/mapped_file.h"

namespace moestro::test {

/// Listens for as long as the result lives; the socket's file stays.
inline shm::UniqueFd listen_at(const std::filesystem::path& path) {
  shm::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << path;
  EXPECT_EQ(::listen(fd.get(), 8), 0);
  return fd;
}

/// Whether somebody has connected.
inline bool was_asked(const shm::UniqueFd& listening) {
  pollfd waits{listening.get(), POLLIN, 0};
  return ::poll(&waits, 1, 0) > 0;
}

}  // namespace moestro::test

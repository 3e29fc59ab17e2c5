#pragma once
// Sends a descriptor to each process that connects to a Unix socket, so that other processes can reach memory without a
// name (a memfd).

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "common/shm/file_access.h"
#include "common/shm/mapped_file.h"
#include "common/status.h"

namespace moestro::shm {

/// Listens on its own thread until it is destroyed; then it removes its socket. Every client gets a descriptor of
/// `fd`'s file that was opened read-only, so that it cannot map the memory for writing.
class DescriptorServer {
 public:
  static Result<std::unique_ptr<DescriptorServer>> listen(const std::filesystem::path& path, int fd,
                                                          const FileAccess& access);
  ~DescriptorServer();

 private:
  DescriptorServer() = default;
  void serve();
  std::filesystem::path path_;
  UniqueFd listener_, handed_;
  std::thread thread_;
};

/// kUnavailable if no process listens at `path`, or none sends a descriptor in time.
Result<UniqueFd> receive_descriptor(const std::filesystem::path& path, std::chrono::milliseconds timeout);

}  // namespace moestro::shm

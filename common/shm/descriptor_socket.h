#pragma once
// Hands a descriptor to whoever connects to a Unix socket: how memory without a name (a memfd) reaches other processes.

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "common/shm/file_access.h"
#include "common/shm/mapped_file.h"
#include "common/status.h"

namespace moestro::shm {

/// Listens until it goes, on a thread of its own; removes its socket. Every client gets a descriptor of `fd`'s file
/// that was opened for reading only, so that it cannot map it for writing.
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

/// kUnavailable if nobody listens at `path`, or sends none in time.
Result<UniqueFd> receive_descriptor(const std::filesystem::path& path, std::chrono::milliseconds timeout);

}  // namespace moestro::shm

#include "orchestrator/state/host_name.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "common/log.h"
#include "common/random_value.h"

namespace moestro::orchestrator {
namespace {

/// With a dot behind it. A directory may be copied to another machine, where the name is another's.
std::string machine_prefix() {
  std::array<char, 65> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') name = {'h', 'o', 's', 't'};
  return std::string(name.data()) + ".";
}

std::string new_name(const std::string& prefix) {
  return prefix + std::to_string(::getpid()) + "." + std::to_string(random_value<uint64_t>());
}

/// As far as it was written: a name ends with a line break.
std::string kept_name(int fd) {
  std::array<char, 256> bytes{};
  const ssize_t n = ::pread(fd, bytes.data(), bytes.size(), 0);
  const std::string text(bytes.data(), static_cast<size_t>(std::max<ssize_t>(n, 0)));
  const size_t end = text.find('\n');
  return end == std::string::npos ? "" : text.substr(0, end);
}

}  // namespace

Result<HostName> HostName::take(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / "orchestrator.name";
  MOESTRO_ASSIGN_OR_RETURN(auto lock, shm::FileLock::open(path, /*create=*/true, 0600));
  MOESTRO_ASSIGN_OR_RETURN(const bool ours, lock.try_lock());
  const std::string prefix = machine_prefix();
  if (!ours) return HostName(std::move(lock), new_name(prefix));
  if (std::string kept = kept_name(lock.fd()); kept.starts_with(prefix))
    return HostName(std::move(lock), std::move(kept));
  const std::string name = new_name(prefix), line = name + "\n";
  if (::ftruncate(lock.fd(), 0) != 0 ||
      ::pwrite(lock.fd(), line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
    log::warn("{}; after a kill this orchestrator's lines of shared batches will wait for its lease",
              io_error("cannot write " + path.string(), errno).message());
  return HostName(std::move(lock), name);
}

}  // namespace moestro::orchestrator

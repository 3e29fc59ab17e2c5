#include "common/may_read.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <optional>
#include <string>

namespace moestro {
namespace {

namespace fs = std::filesystem;

constexpr int kLinksMax = 40;  // as for the kernel

/// The first directory above the absolute `path` that this user may not enter, through links.
std::optional<fs::path> closed_above(const fs::path& path, int links_left) {
  fs::path at;
  for (auto part = path.begin(); part != path.end(); ++part) {
    at /= *part;
    std::error_code error;
    if (const fs::path target = fs::read_symlink(at, error); !error && links_left > 0) {
      fs::path rest = at.parent_path() / target;
      while (++part != path.end()) rest /= *part;
      return closed_above(rest, links_left - 1);
    }
    const bool above = std::next(part) != path.end();
    if (above && ::faccessat(AT_FDCWD, at.c_str(), X_OK, AT_EACCESS) != 0 && errno == EACCES) return at;
  }
  return std::nullopt;
}

}  // namespace

Status check_may_read(const fs::path& path, const fs::path& tree) {
  // O_NONBLOCK: a FIFO would be waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0) ::close(fd);
  if (fd >= 0 || errno != EACCES) return Status::ok();
  const std::string denied = "user " + std::to_string(::geteuid()) + " may not ";
  const fs::path needed = tree.empty() ? path : tree;
  std::error_code error;
  const fs::path absolute = fs::absolute(needed, error);
  if (const auto closed = closed_above(absolute, kLinksMax))
    return invalid_argument(needed.string() + ": " + denied + "enter " + closed->string() +
                            " above it; let its owner run: chmod a+x " + closed->string() +
                            ", or move it to where all may read");
  return invalid_argument(needed.string() + ": " + denied + "read " + (tree.empty() ? "it" : "all of it") +
                          "; let its owner run: chmod " + (tree.empty() ? "a+r " : "-R a+rX ") + needed.string());
}

}  // namespace moestro

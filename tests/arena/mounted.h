#pragma once
// A file system mounted for a test.

#include <sys/mount.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace moestro::testing {

/// A mount for a test; `mounted` is false where there is no right to mount.
class Mounted {
 public:
  Mounted(const char* type, const std::string& options) {
    char name[] = "/tmp/moestro-mount-XXXXXX";
    path = ::mkdtemp(name);
    mounted = ::mount("moestro-test", path.c_str(), type, 0, options.c_str()) == 0;
  }
  ~Mounted() {
    if (mounted) ::umount2(path.c_str(), MNT_DETACH);
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  std::filesystem::path path;
  bool mounted = false;
};

}  // namespace moestro::testing

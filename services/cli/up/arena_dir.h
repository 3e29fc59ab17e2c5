#pragma once
// Where the store's shared memory lives, when the user does not say.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/shm/file_access.h"
#include "common/status.h"

namespace moestro::cli {

/// Undoes what choose_arena_dir made: its mount, or the files in a directory of its own. A directory that the
/// user gave is left alone.
class ArenaDir {
 public:
  ArenaDir() = default;
  ArenaDir(ArenaDir&& other) noexcept;
  ArenaDir& operator=(ArenaDir&&) = delete;
  ~ArenaDir();

  const std::filesystem::path& path() const { return path_; }
  /// One line for the user: what was taken, and why not something better.
  const std::string& explanation() const { return explanation_; }

 private:
  friend Result<ArenaDir> choose_arena_dir(const std::string&, const std::filesystem::path&, std::optional<uint64_t>,
                                           const shm::FileAccess&);
  enum class Owned : uint8_t { kNothing, kMount, kDirectory };
  Owned owned_ = Owned::kNothing;
  std::filesystem::path path_;
  std::string explanation_;
};

/// `wanted` where it is not empty (made if it is missing; kUnavailable if another store serves out of it); else a tmpfs
/// with huge pages mounted on RUN_DIR/arena, where that is allowed (in containers and for plain users it is not); else
/// a directory under /dev/shm, if there is room for `dram` (none: unknown); else RUN_DIR/arena, on whatever file system
/// that is. What is made here is open to the group of `access`, too. The run directory's locks must be held.
Result<ArenaDir> choose_arena_dir(const std::string& wanted, const std::filesystem::path& run_dir,
                                  std::optional<uint64_t> dram, const shm::FileAccess& access = {});

}  // namespace moestro::cli

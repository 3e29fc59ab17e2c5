#pragma once
// Chooses the place of the store's shared memory if the user gives none.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/shm/file_access.h"
#include "common/status.h"

namespace moestro::cli {

/// Undoes what choose_arena_dir made: its mount, or the files in its own directory. A directory that the user gave is
/// not touched.
class ArenaDir {
 public:
  ArenaDir() = default;
  ArenaDir(ArenaDir&& other) noexcept;
  ArenaDir& operator=(ArenaDir&&) = delete;
  ~ArenaDir();

  const std::filesystem::path& path() const { return path_; }
  /// One line for the user: what was chosen, and why not something better.
  const std::string& explanation() const { return explanation_; }

 private:
  friend Result<ArenaDir> choose_arena_dir(const std::string&, const std::filesystem::path&, std::optional<uint64_t>,
                                           const shm::FileAccess&);
  enum class Owned : uint8_t { kNothing, kMount, kDirectory };
  Owned owned_ = Owned::kNothing;
  std::filesystem::path path_;
  std::string explanation_;
};

/// The choice, in this order: `wanted`, if it is not empty (created if missing; kUnavailable if another store uses it);
/// a tmpfs with huge pages mounted on RUN_DIR/arena, if that is allowed (not in containers or for ordinary users); a
/// directory under /dev/shm, if it has room for `dram` (nullopt: unknown), or more than RUN_DIR; RUN_DIR/arena, on any
/// file system. What is created is also open to the group of `access`. The run directory's locks must be held.
Result<ArenaDir> choose_arena_dir(const std::string& wanted, const std::filesystem::path& run_dir,
                                  std::optional<uint64_t> dram, const shm::FileAccess& access = {});

}  // namespace moestro::cli

#pragma once
// The memory of processes that share an arena.

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <span>

#include "common/status.h"

namespace moestro::cli {

/// Bytes, each page once: PSS, and huge pages of hugetlbfs, which PSS does not count.
struct ProcessMemory {
  uint64_t arena = 0;  ///< pages of the arena's file that any of them has mapped
  uint64_t rest = 0;   ///< everything else: code, libraries, heaps, KV caches, residency table
  uint64_t whole() const { return arena + rest; }
};

/// kUnavailable if one of them is gone or belongs to another user.
Result<ProcessMemory> memory_of(std::span<const pid_t> processes, const std::filesystem::path& arena_file);

}  // namespace moestro::cli

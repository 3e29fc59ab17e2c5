#pragma once
// Chooses the size of the arena: what was requested or is needed, within the limits of file system, machine and
// cgroups. No I/O.

#include <cstdint>
#include <optional>
#include <string>

#include "common/machine/host_memory.h"
#include "common/status.h"

namespace moestro::store {

struct ArenaWish {
  std::optional<uint64_t> asked;  ///< --dram; nullopt: what is needed, at most what is free
  uint64_t needed = 0;            ///< by the packs, if all of them are resident
  uint64_t minimum = 0;           ///< with less, the packs cannot be served: dense weights and an expert
  uint64_t dense = 0;             ///< all dense weights
  uint64_t others = 0;            ///< what the box's workers will take in addition: KV caches, scratch
  bool layers_take_turns = false;  ///< in the minimum: it holds only some layers' dense weights at a time
};

struct ArenaRoom {
  std::string place;         ///< for errors: the directory
  uint64_t place_bytes = 0;  ///< free in its file system; hugetlbfs: free reserved pages
  std::string mount;         ///< of a tmpfs: its mount point, and its size
  uint64_t mount_bytes = 0;
  bool in_memory = true;     ///< false: on a disk
  bool set_aside = false;    ///< hugetlbfs: its pages count neither as the machine's free memory nor against a cgroup's
                             ///< limit
  uint64_t page_bytes = 0;   ///< of hugetlbfs
  machine::MemoryBound left;           ///< of memory now, by machine and cgroups
  machine::MemoryBound left_beside;    ///< of that, when the workers have theirs
  machine::MemoryBound limit;          ///< the lowest of machine and cgroups
  machine::MemoryBound limit_beside;   ///< of that, when the workers have theirs
};

/// The requested size, or the needed size if that is less, without regard to room. nullopt: nothing was requested. A
/// multiple of `granule`.
std::optional<uint64_t> asked_arena_bytes(const ArenaWish& wish, uint64_t granule);

/// Of a size that nobody asked for: that the file system alone keeps it below what the packs need, and what to do about
/// that. Empty: it does not.
std::string kept_small_by_place(const ArenaWish& wish, const ArenaRoom& room, uint64_t bytes);

/// A multiple of `granule`. kExhausted says what does not fit, why, and what to change.
Result<uint64_t> choose_arena_bytes(const ArenaWish& wish, const ArenaRoom& room, uint64_t granule);

}  // namespace moestro::store

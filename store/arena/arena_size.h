#pragma once
// How large an arena is made: what was asked for or is needed, within what file system, machine and cgroups leave. No
// I/O.

#include <cstdint>
#include <optional>
#include <string>

#include "common/machine/host_memory.h"
#include "common/status.h"

namespace moestro::store {

struct ArenaWish {
  std::optional<uint64_t> asked;  ///< --dram; none: what is needed, at most what is free
  uint64_t needed = 0;            ///< by the packs, all of them resident
  uint64_t minimum = 0;           ///< below it the packs cannot be served: dense weights and the largest expert
  uint64_t dense = 0;             ///< of the minimum
  uint64_t others = 0;            ///< what the box's workers will take beside it: KV caches, scratch
};

struct ArenaRoom {
  std::string place;         ///< for errors: the directory
  uint64_t place_bytes = 0;  ///< free for it in its file system; hugetlbfs: of the pages set aside
  bool in_memory = true;     ///< false: on a disk
  bool set_aside = false;    ///< hugetlbfs: neither the machine's free memory nor a cgroup's limit counts its pages
  uint64_t page_bytes = 0;   ///< of hugetlbfs
  machine::MemoryBound left;           ///< of memory now, by machine and cgroups
  machine::MemoryBound left_beside;    ///< of that, when the workers have theirs
  machine::MemoryBound limit;          ///< the lowest of machine and cgroups
  machine::MemoryBound limit_beside;   ///< of that, when the workers have theirs
};

/// What was asked for, or what is needed where that is less, whatever the room is; none: it was left to us. A multiple
/// of `granule`.
std::optional<uint64_t> asked_arena_bytes(const ArenaWish& wish, uint64_t granule);

/// A multiple of `granule`. kExhausted says what does not fit, why, and what to change.
Result<uint64_t> choose_arena_bytes(const ArenaWish& wish, const ArenaRoom& room, uint64_t granule);

}  // namespace moestro::store

#pragma once
// How large an arena is made: what was asked for or is needed, within what file system, machine and cgroups leave. No I/O.

#include <cstdint>
#include <optional>
#include <string>

#include "common/status.h"

namespace moestro::store {

struct ArenaWish {
  std::optional<uint64_t> asked;  ///< --dram; none: what is needed, at most what is free
  uint64_t needed = 0;            ///< by the packs, all of them resident
  uint64_t minimum = 0;           ///< below it the packs cannot be served
  uint64_t others = 0;            ///< what the box's workers will take beside it: KV caches, scratch
};

struct ArenaRoom {
  std::string place;         ///< for errors: the directory
  uint64_t place_bytes = 0;  ///< free in its file system; hugetlbfs: of the pages set aside
  bool in_memory = true;     ///< false: on a disk
  bool set_aside = false;    ///< hugetlbfs: neither the machine's free memory nor a cgroup's limit counts its pages
  uint64_t left_bytes = 0;   ///< of memory, by machine and cgroups
  uint64_t limit_bytes = 0;  ///< the lowest of machine and cgroups, and whose it is
  std::string limited_by;
};

/// What `wish.asked` comes to, which must be there; whether there is room for it is not looked at: an arena that is adopted has its own.
uint64_t asked_arena_bytes(const ArenaWish& wish, uint64_t granule);

/// A multiple of `granule`. kExhausted says what does not fit, why, and what to change.
Result<uint64_t> choose_arena_bytes(const ArenaWish& wish, const ArenaRoom& room, uint64_t granule);

}  // namespace moestro::store

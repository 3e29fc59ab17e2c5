#pragma once
// Arenas that a store has left.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "common/status.h"

namespace moestro::cli {

struct Arena {
  std::filesystem::path dir;
  uint64_t bytes = 0;  ///< of its files, as allocated
  bool held = false;   ///< a store, or its unfinished reads, holds store.lock
};

/// Directories with a store.lock that belong to the caller: `extra` themselves, and what `up` makes by itself
/// under `roots` (ROOT/moestro-UID-*, ROOT/moestro-UID/*/arena, ROOT/moestro/*/arena).
std::vector<Arena> find_arenas(const std::vector<std::filesystem::path>& roots,
                               const std::vector<std::filesystem::path>& extra);

/// Takes the arena's lock, removes its files, and unmounts it if `up` mounted it. kUnavailable if a store holds it
/// after all.
Status remove_arena(const Arena& arena);

}  // namespace moestro::cli

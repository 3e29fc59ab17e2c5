#pragma once
// Decoding while blocks of the KV cache are moved to host memory and back; the output must not depend on it.

#include <utility>

#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {

inline constexpr int64_t kHostBlocksOfMoves = 12;

/// Three sequences side by side, one of which is away in host memory for a while; their tokens and log-probabilities.
/// `seed`: of the blocks that move before each step, and where to; 0: none does. The engine has kHostBlocksOfMoves
/// blocks in host memory, or seed is 0.
std::vector<std::pair<TokenId, float>> decode_with_moves(Bench& bench, const Fixture& fixture, uint64_t seed);

}  // namespace moestro::engine::testing

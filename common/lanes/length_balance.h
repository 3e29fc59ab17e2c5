#pragma once
// Spreads sequences over places so that each has about the same number of tokens: algorithm 2 of MoE-Lightning (Cao et
// al., ASPLOS 2025). The places are the workers of a cluster (orchestrator/scheduler/spreading).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moestro::lanes {

/// The room of a place.
struct PlaceRoom {
  size_t sequences_max = 0;
  int64_t tokens_max = 0;  ///< of its KV cache, for prompts and generated tokens
  int64_t tokens = 0;      ///< already to be computed in it; they do not count in tokens_max
};

/// For each sequence its place, an index in `rooms`, or nullopt: it is left for the next round. Sequences are placed
/// longest first. Each goes to the open place with the fewest tokens (of equals the first). If its cache could not hold
/// the sequence with `generated` tokens for each of its sequences, the sequence is left. A place is closed when it has
/// sequences_max.
std::vector<std::optional<size_t>> balance_by_length(std::span<const int64_t> lengths, int64_t generated,
                                                     std::span<const PlaceRoom> rooms);

}  // namespace moestro::lanes

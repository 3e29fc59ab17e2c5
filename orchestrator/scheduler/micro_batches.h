#pragma once
// Spreads prompts over micro-batches so that each has about the same number of tokens: algorithm 2 of MoE-Lightning
// (Cao et al., ASPLOS 2025).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moestro::orchestrator {

/// The room of a micro-batch.
struct MicroBatchRoom {
  size_t sequences_max = 0;
  int64_t tokens_max = 0;  ///< of its KV cache, for prompts and generated tokens
  int64_t tokens = 0;      ///< already to be computed in it; they do not count in tokens_max
};

/// For each prompt its micro-batch, an index in `rooms`, or nullopt: it is left for the next round. Prompts are placed
/// longest first. Each goes to the open micro-batch with the fewest tokens (of equals the first). If its cache could
/// not hold the prompt with `generated` tokens for each of its sequences, the prompt is left. A micro-batch is closed
/// when it has sequences_max.
std::vector<std::optional<size_t>> balance_by_length(std::span<const int64_t> lengths, int64_t generated,
                                                     std::span<const MicroBatchRoom> rooms);

}  // namespace moestro::orchestrator

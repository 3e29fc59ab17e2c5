#pragma once
// Prompts spread over micro-batches, so that each has about as many tokens: algorithm 2 of MoE-Lightning (Cao et al.,
// ASPLOS 2025).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moestro::orchestrator {

/// What a micro-batch may take.
struct MicroBatchRoom {
  size_t sequences_max = 0;
  int64_t tokens_max = 0;  ///< of its KV cache, for prompts and what is generated
  int64_t tokens = 0;      ///< to be computed in it already; they take none of tokens_max
};

/// For each prompt its micro-batch, an index of `rooms`, or nothing: it is left for the next round. The longest prompt
/// is first, and each goes to the micro-batch with the fewest tokens (of equals the first) of those that are not
/// closed; if that one's cache could not hold it with `generated` tokens for each of its sequences, the prompt is left.
/// A micro-batch closes when it has sequences_max.
std::vector<std::optional<size_t>> balance_by_length(std::span<const int64_t> lengths, int64_t generated,
                                                     std::span<const MicroBatchRoom> rooms);

}  // namespace moestro::orchestrator

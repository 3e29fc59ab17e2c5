#pragma once
// A layer's sequence mixer as seen by those that only count (planner, memory budgets, benchmarks): the same figures for
// every kind. What computes a kind is services/worker/engine/sequence_mixer.h.

#include <cstdint>

#include "common/model/model_spec.h"

namespace moestro::model {

struct MixerSize {
  int64_t parameters = 0;       ///< of the matrices that every token is multiplied with
  int64_t output_width = 0;     ///< numbers of a token before the output projection
  int64_t pair_operations = 0;  ///< of one query and one position that it sees, all heads
  /// Of attention over an encoder's memory: the weights that a row of a source is multiplied with, which are not among
  /// `parameters`; and the operations of one query of a target and one position of the memory.
  int64_t memory_parameters = 0, memory_pair_operations = 0;
  int64_t moved_floats = 0;     ///< numbers of a token that rotation and writing the state touch
  int64_t step_floats = 0;      ///< numbers of a token that the engine's buffers hold
  int64_t window = 0;           ///< positions that a query sees; 0: all
};
MixerSize mixer_size(const ModelSpec& spec, const LayerSpec& layer);

/// Bytes of a KV block of one layer (kernels/ops.h has its layout). Blocks hold kKvBlockTokens positions.
inline constexpr int64_t kKvBlockTokens = 16;
int64_t kv_block_bytes(const KvSpec& kv, DType dtype);

/// Bytes of what a layer keeps of a sequence as a whole, always f32; 0: nothing.
int64_t state_bytes(const LayerSpec& layer);
/// States of sequences that a worker has room for: one for each that runs, and the others keep those of prefixes.
struct StateBudget {
  int64_t slots = 0;     ///< 0: the model has none
  int64_t interval = 0;  ///< tokens between the prefixes of a long prompt whose states are kept: whole blocks
  int64_t bytes = 0;     ///< of all slots
};
/// `slots` 0: as many as take the memory of the KV cache. The states that a prompt leaves take about as much as its
/// entries in the cache.
StateBudget state_budget(const ModelSpec& spec, int64_t kv_tokens, DType kv_dtype, int64_t slots);

}  // namespace moestro::model

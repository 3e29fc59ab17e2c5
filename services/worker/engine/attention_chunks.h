#pragma once
// Attention within chunks (AttentionSpec::chunk), as attention on sequences that begin with their chunk.

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace moestro::engine {

/// AttentionShape::view of layers that see chunks. The others have 0.
inline constexpr int32_t kChunkView = 1;

/// `to`: the sequences as a query sees its chunk, a multiple of kKvBlockTokens: each begins with the block where its
/// chunk does.
void cut_into_chunks(std::span<const kernels::AttentionSequence> sequences, int64_t chunk,
                     std::vector<kernels::AttentionSequence>& to);

/// Ops::attention within chunks of so many positions; 0: over all. `scratch`: of as many sequences as there are rows.
void attend_within_chunks(kernels::Ops& ops, int64_t chunk, kernels::AttentionShape shape,
                          std::span<const kernels::AttentionSequence> sequences, const float* q, const float* sink_q,
                          const kernels::KvView& cache, float* out, std::vector<kernels::AttentionSequence>& scratch);

}  // namespace moestro::engine

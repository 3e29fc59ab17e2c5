#pragma once
// What decides how CudaOps launches attention, of heads and of latents alike.

#include <cstdint>

namespace moestro::kernels::cuda {

/// In f32: with more queries parts are computed one after another.
inline constexpr int64_t kParallelQueries = 256;
/// The same where the results of parts would need more.
inline constexpr int64_t kPartialBytesMax = int64_t{160} << 20;
/// A tile of tensor cores has 16 rows: with fewer (query, head) pairs it would be mostly empty.
inline constexpr int64_t kTilePairs = 16;

}  // namespace moestro::kernels::cuda

#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// Tokens of a tile in the list that experts_hopper reads.
inline constexpr int kHopperTileTokens = 128;

/// What experts_many and matmul_many do behind rounding x and listing the tiles of tokens (of kHopperTileTokens each,
/// `tiles_max` entries), on Hopper. MOESTRO_CUDA_REFUSED: the device is not one, or other kernels suit the arguments
/// better; nothing was queued. bf16 weights alone.
MoestroCudaResult experts_hopper(const MoestroCudaExperts& arguments, int64_t tiles_max, MoestroCudaStream stream);
MoestroCudaResult matmul_hopper(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

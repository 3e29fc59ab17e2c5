#pragma once
// Shapes of tiles for the kernels of many tokens.

#include "kernels/cuda/product_tile.h"

namespace moestro::kernels::cuda {

/// For more than 64 tokens: 64 x 64 of a warp, so that shared memory keeps up with the tensor cores.
using WideTile = TileShape<128, 256, 2, 4, 32, 4, 1>;
/// For up to 64 tokens, where the weights' bytes are most of the cost.
using MiddleTile = TileShape<64, 128, 1, 4, 64, 3, 2>;
using NarrowTile = TileShape<32, 128, 1, 4, 64, 4, 2>;

}  // namespace moestro::kernels::cuda

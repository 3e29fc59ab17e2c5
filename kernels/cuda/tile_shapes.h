#pragma once
// Shapes of tiles for the kernels of many tokens.

#include "kernels/cuda/product_tile.h"

namespace moestro::kernels::cuda {

/// For more than 64 tokens: 64 x 64 of a warp, so that shared memory keeps up with tensor cores. Two blocks of an SM
/// are measured to be faster than one of twice the rows: one is multiplied while the other begins or ends.
using WideTile = TileShape<128, 128, 2, 2, 32, 4, 2>;
/// For up to 64 tokens, where the weights' bytes are most of the cost.
using MiddleTile = TileShape<64, 128, 1, 4, 64, 3, 2>;
using NarrowTile = TileShape<32, 128, 1, 4, 64, 4, 2>;
/// For quantised weights, of which less time is spent on reading: products with tokens that are not there cost more.
using NarrowestTile = TileShape<16, 128, 1, 4, 64, 4, 2>;
/// For dense products: more blocks, as there is one matrix only.
using SmallTile = TileShape<64, 64, 2, 2, 64, 4, 3>;
using SmallestTile = TileShape<32, 64, 1, 2, 64, 4, 4>;

}  // namespace moestro::kernels::cuda

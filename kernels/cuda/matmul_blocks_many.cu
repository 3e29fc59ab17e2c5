// Dense products on many tokens, weights of blocks.

#include "kernels/cuda/block_tiles.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/matmul_tiles.h"

namespace moestro::kernels::cuda {
namespace {

struct DenseTokens {
  const MoestroCudaMatmul& a;
  int64_t first;
  __device__ const uint16_t* any_x() const { return a.rounded_x; }
  __device__ const uint16_t* x(int token) const {
    return first + token < a.n ? a.rounded_x + (first + token) * rounded_columns(a.cols) : nullptr;
  }
};

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksOfSm) matmul_block_tiles_kernel(MoestroCudaMatmul a,
                                                                                         DenseGrid grid,
                                                                                         BlockTilesRoom room) {
  const DensePlace place = dense_place<S>(grid);
  const DenseRows rows{room.format,
                       static_cast<const char*>(a.weight) + place.row * room.format.bytes_of(a.cols),
                       a.rows - 1 - place.row, static_cast<int32_t>(a.cols)};
  const DenseTokens x{a, place.token};
  BlockSource<S, DenseRows, DenseTokens> source(room, rows, x, a.cols, room.format.spans_of(a.cols));
  ProductTile<DecodedTiles, S, 1, true, decltype(source)> tile(source);
  tile.run(place.begin, place.end);
  write_dense<S>(a, grid, place, tile);
}

}  // namespace

MoestroCudaResult matmul_blocks_many(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const BlockFormat format = block_format(a.dtype);
  if (!is_whole_blocks(format, a.cols) || reinterpret_cast<uintptr_t>(a.weight) % 16 != 0) return MOESTRO_CUDA_REFUSED;
  const BlockTilesRoom room = block_tiles_room(format, a.cols);
  return with_block_shape(a.n, room, [&](auto shape) {
    using S = decltype(shape);
    return launch_dense<DecodedTiles, S>(a, stream, [&](const DenseGrid& grid, dim3 blocks) {
      return launch(matmul_block_tiles_kernel<S>, blocks, dim3(S::kThreads),
                    static_cast<uint64_t>(block_tiles_bytes<S>(room)), stream, a, grid, room);
    });
  });
}

}  // namespace moestro::kernels::cuda

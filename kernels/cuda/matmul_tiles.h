#pragma once
// y = x w^T + bias on tensor cores: a block for each tile of tokens and of rows. Where there are fewer blocks than a
// device runs at once, the columns are cut into parts too; a last kernel adds the sums of the parts in their order.

#include "kernels/cuda/rounded_rows.h"
#include "kernels/cuda/tile_rows.h"
#include "kernels/cuda/tile_shapes.h"

namespace moestro::kernels::cuda {

/// Blocks that fill a device, and the least columns of a part: a tile's first piece takes as long to arrive as a few
/// pieces take to be multiplied.
inline constexpr int64_t kBlocksWanted = 256, kColumnsOfPart = 256;

template <typename W>
__global__ void __launch_bounds__(kRoundThreads) begin_matmul_kernel(MoestroCudaMatmul a) {
  round_rows(a.x, a.n, a.cols, W::kExchanged, blockIdx.x, a.rounded_x);
}

template <typename W, typename S>
struct DenseSource {
  const MoestroCudaMatmul& a;
  int64_t first_token, first_row;
  ColumnsInOrder<W, S> columns;

  __device__ DenseSource(const MoestroCudaMatmul& a_, int64_t token, int64_t row)
      : a(a_), first_token(token), first_row(row), columns(a.cols) {}
  __device__ const uint16_t* any_x() const { return a.rounded_x; }
  __device__ const uint16_t* x(int token) const {
    return first_token + token < a.n ? a.rounded_x + (first_token + token) * rounded_columns(a.cols) : nullptr;
  }
  __device__ void start(int piece) { columns.start(piece); }
  __device__ bool next() { return columns.next(); }
  __device__ PieceOfRows piece() const { return columns.at; }
  __device__ int64_t there(int row) const { return at_most(first_row + row, a.rows - 1); }
  __device__ const char* row(int row) const {
    return static_cast<const char*>(a.weight) + there(row) * columns.row_bytes;
  }
  __device__ const uint16_t* parameters(int row) const {
    return a.parameters + there(row) * tile_row_parameters<W>(a.cols);
  }
};

/// How the work is cut: blocks of a run of tiles of tokens are adjacent (as tokens_by_rows), runs follow each other.
struct DenseGrid {
  uint32_t token_tiles, row_tiles, parts;
  int pieces, pieces_of_part;
};

/// A block's part of a grid.
struct DensePlace {
  int64_t token, row;  ///< the first
  int begin, end;      ///< pieces
};
template <typename S>
__device__ inline DensePlace dense_place(const DenseGrid& grid) {
  const uint32_t in_run = MOESTRO_CUDA_RUN_TILES * grid.row_tiles, run = blockIdx.x / in_run,
                 first = run * MOESTRO_CUDA_RUN_TILES,
                 tiles = at_most<uint32_t>(grid.token_tiles - first, MOESTRO_CUDA_RUN_TILES),
                 at = blockIdx.x - run * in_run;
  const int begin = static_cast<int>(blockIdx.y) * grid.pieces_of_part;
  return {static_cast<int64_t>(first + at % tiles) * S::kTokens, static_cast<int64_t>(at / tiles) * S::kRows, begin,
          at_most(begin + grid.pieces_of_part, grid.pieces)};
}

/// Writes a tile's sums as products, or as this part's sums.
template <typename S, typename Tile>
__device__ inline void write_dense(const MoestroCudaMatmul& a, const DenseGrid& grid, const DensePlace& place,
                                   const Tile& tile) {
  float* y = grid.parts > 1 ? a.partial + blockIdx.y * a.n * a.rows : a.y;
  const float* bias = grid.parts > 1 ? nullptr : a.bias;
  MOESTRO_UNROLL
  for (int n = 0; n < S::kEights; ++n) {
    const int64_t r = place.row + tile.row_of_pair(n);
    const float first_bias = bias != nullptr && r < a.rows ? bias[r] : 0.0f,
                second_bias = bias != nullptr && r + 1 < a.rows ? bias[r + 1] : 0.0f;
    MOESTRO_UNROLL
    for (int m = 0; m < S::kSixteens; ++m) {
      MOESTRO_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t t = place.token + tile.token_of(m) + half * 8;
        if (t < a.n)
          store_pair(y + t * a.rows, r, a.rows, tile.sums[m][n][half * 2] + first_bias,
                     tile.sums[m][n][half * 2 + 1] + second_bias);
      }
    }
  }
}

template <typename W, typename S, bool kAligned>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksOfSm) matmul_tiles_kernel(MoestroCudaMatmul a,
                                                                                   DenseGrid grid) {
  const DensePlace place = dense_place<S>(grid);
  DenseSource<W, S> source(a, place.token, place.row);
  ProductTile<W, S, 1, kAligned, DenseSource<W, S>> tile(source);
  tile.run(place.begin, place.end);
  write_dense<S>(a, grid, place, tile);
}

inline constexpr unsigned kSumThreads = 256;

template <typename Sum>  // float: a template, so that every file may have it
__global__ void __launch_bounds__(kSumThreads) add_parts_kernel(MoestroCudaMatmul a, uint32_t parts) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x, count = a.n * a.rows;
  if (i >= count) return;
  Sum sum = a.partial[i];
  for (uint32_t part = 1; part < parts; ++part) sum += a.partial[part * count + i];
  a.y[i] = sum + (a.bias != nullptr ? a.bias[static_cast<uint32_t>(i) % static_cast<uint32_t>(a.rows)] : 0.0f);
}

template <typename S>
DenseGrid grid_of(const MoestroCudaMatmul& a) {
  DenseGrid g{};
  g.token_tiles = static_cast<uint32_t>(divided_up(a.n, S::kTokens));
  g.row_tiles = static_cast<uint32_t>(divided_up(a.rows, S::kRows));
  const int64_t blocks = static_cast<int64_t>(g.token_tiles) * g.row_tiles,
                room = a.partial_bytes / (a.n * a.rows * static_cast<int64_t>(sizeof(float)));
  g.pieces = static_cast<int>(divided_up(a.cols, S::kDepth));
  const int64_t wanted = at_most(at_most(kBlocksWanted / blocks, a.cols / kColumnsOfPart), room);
  g.pieces_of_part = static_cast<int>(divided_up(g.pieces, at_least<int64_t>(wanted, 1)));
  g.parts = static_cast<uint32_t>(divided_up(g.pieces, g.pieces_of_part));
  return g;
}

/// Rounds x, then multiply(grid) launches the products, then the parts are added up.
template <typename W, typename S, typename Multiply>
MoestroCudaResult launch_dense(const MoestroCudaMatmul& a, MoestroCudaStream stream, Multiply multiply) {
  const DenseGrid g = grid_of<S>(a);
  const int64_t rounding = rounding_blocks(a.n, a.cols), blocks = static_cast<int64_t>(g.token_tiles) * g.row_tiles;
  if (blocks > INT32_MAX || rounding * kRoundThreads > UINT32_MAX) return MOESTRO_CUDA_REFUSED;
  MoestroCudaResult result = launch(begin_matmul_kernel<W>, dim3(static_cast<unsigned>(rounding)), dim3(kRoundThreads),
                                    0, stream, a);
  if (result != 0) return result;
  result = multiply(g, dim3(static_cast<unsigned>(blocks), g.parts));
  if (result != 0 || g.parts == 1) return result;
  return launch(add_parts_kernel<float>, dim3(static_cast<unsigned>(divided_up(a.n * a.rows, kSumThreads))),
                dim3(kSumThreads), 0, stream, a, g.parts);
}

template <typename W, typename S, bool kAligned>
MoestroCudaResult launch_dense_tiles(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  return launch_dense<W, S>(a, stream, [&](const DenseGrid& grid, dim3 blocks) {
    return launch(matmul_tiles_kernel<W, S, kAligned>, blocks, dim3(S::kThreads), StageBytes<W, S>::kAll, stream, a,
                  grid);
  });
}

template <typename W>
MoestroCudaResult matmul_on_tiles(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const bool aligned = tile_row_bytes<W>(a.cols) % 16 == 0 && reinterpret_cast<uint64_t>(a.weight) % 16 == 0;
  if (!aligned) return launch_dense_tiles<W, MiddleTile, false>(a, stream);
  const auto blocks = [&](auto shape) {
    return divided_up(a.n, decltype(shape)::kTokens) * divided_up(a.rows, decltype(shape)::kRows);
  };
  if (a.n <= 64) return launch_dense_tiles<W, SmallestTile, true>(a, stream);
  if (blocks(SmallTile{}) <= kBlocksWanted + kBlocksWanted / 4)
    return launch_dense_tiles<W, SmallTile, true>(a, stream);
  if (blocks(WideTile{}) < kBlocksWanted * 3 / 4) return launch_dense_tiles<W, MiddleTile, true>(a, stream);
  return launch_dense_tiles<W, WideTile, true>(a, stream);
}

}  // namespace moestro::kernels::cuda

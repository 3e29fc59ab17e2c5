#pragma once
// The experts of a layer on many tokens: grouped products on tensor cores, gate and up with the activation, then down.

#include <type_traits>

#include "kernels/cuda/experts_unit.h"
#include "kernels/cuda/hopper_many.h"
#include "kernels/cuda/rounded_rows.h"
#include "kernels/cuda/tile_rows.h"
#include "kernels/cuda/tile_shapes.h"
#include "kernels/cuda/token_tiles.h"

namespace moestro::kernels::cuda {

/// Rows of gate, then of up. A tile of the blob is whole 64 rows, unless it is the only one.
template <typename W, typename S>
struct GateUpSource {
  static constexpr int kRows = S::kRows / 2;
  const MoestroCudaExperts& a;
  const TokensByRows& tokens;
  ColumnsInOrder<W, S> columns;

  __device__ GateUpSource(const MoestroCudaExperts& a_, const TokensByRows& tokens_)
      : a(a_), tokens(tokens_), columns(a.layout.hidden) {}

  __device__ int pieces() const { return static_cast<int>(divided_up(a.layout.hidden, S::kDepth)); }
  __device__ const uint16_t* any_x() const { return a.rounded_x; }
  __device__ const uint16_t* x(int token) const {
    return token < tokens.count ? a.rounded_x + a.sorted[tokens.first + token].token * rounded_columns(a.layout.hidden)
                                : nullptr;
  }
  __device__ void start(int piece) { columns.start(piece); }
  __device__ bool next() { return columns.next(); }
  __device__ PieceOfRows piece() const { return columns.at; }

  /// The tile of a row, and the row in it. Behind the last row, the last.
  struct Place {
    const char* tile;
    const MoestroCudaTile& at;
    int64_t row;
  };
  __device__ Place place(int row) const {
    const uint32_t f = at_most(static_cast<uint32_t>(tokens.row_tile * kRows + row % kRows),
                               static_cast<uint32_t>(a.layout.ffn - 1)),
                   tile_ffn = static_cast<uint32_t>(a.layout.tile_ffn), tile = f / tile_ffn;
    return {tokens.blob + tile * a.layout.tile_bytes, tile_at(a.layout, tile), f - tile * tile_ffn};
  }
  __device__ const char* row(int row) const {
    const Place p = place(row);
    return p.tile + (row < kRows ? p.at.gate : p.at.up) + p.row * columns.row_bytes;
  }
  __device__ const uint16_t* parameters(int row) const {
    const Place p = place(row);
    return reinterpret_cast<const uint16_t*>(p.tile + (row < kRows ? p.at.gate_scales : p.at.up_scales)) +
           p.row * tile_row_parameters<W>(a.layout.hidden);
  }
};

/// Rows of down, whose columns are cut in tiles of the blob. A tile is whole pieces wide, unless it is the last.
template <typename W, typename S>
struct DownSource {
  const MoestroCudaExperts& a;
  const TokensByRows& tokens;
  int tile = 0, column = 0;  ///< of the piece, and its first column in the tile

  __device__ DownSource(const MoestroCudaExperts& a_, const TokensByRows& tokens_) : a(a_), tokens(tokens_) {}

  __device__ int pieces() const { return static_cast<int>(divided_up(a.layout.ffn, S::kDepth)); }
  __device__ const uint16_t* any_x() const { return a.rounded_activated; }
  __device__ const uint16_t* x(int token) const {
    return token < tokens.count ? a.rounded_activated + (tokens.first + token) * rounded_columns(a.layout.ffn)
                                : nullptr;
  }
  __device__ void start(int) {}  // all pieces are of one block
  __device__ bool next() {
    column += S::kDepth;
    if (column < a.layout.tile_ffn) return false;
    column = 0;
    ++tile;
    return is_last();
  }
  __device__ bool is_last() const { return tile >= a.layout.tiles - 1; }
  __device__ const MoestroCudaTile& at() const { return is_last() ? a.layout.last : a.layout.full; }
  /// The places of rows are those in the first tile, or in the last one.
  __device__ PieceOfRows piece() const {
    const int before = column * W::kBits / 8;
    const int64_t of_tile = is_last() ? 0 : tile * a.layout.tile_bytes;
    return {of_tile + before, of_tile / 2 + column / static_cast<int>(kGroup) * W::kParameters,
            static_cast<int>(tile_row_bytes<W>(at().ffn)) - before};
  }
  __device__ const char* placed_tile() const { return tokens.blob + (is_last() ? tile * a.layout.tile_bytes : 0); }
  __device__ int64_t row_of(int row) const { return static_cast<int64_t>(tokens.row_tile) * S::kRows + row; }
  __device__ int64_t there(int row) const { return at_most(row_of(row), a.layout.hidden - 1); }
  __device__ const char* row(int row) const {
    return placed_tile() + at().down + there(row) * tile_row_bytes<W>(at().ffn);
  }
  __device__ const uint16_t* parameters(int row) const {
    return reinterpret_cast<const uint16_t*>(placed_tile() + at().down_scales) +
           there(row) * tile_row_parameters<W>(at().ffn);
  }
};

/// Adds to the sums of eights [kFirst, kEnd) of the tile what their rows have in `biases`: of `rows`, of which the tile
/// begins with number `first`.
template <int kFirst, int kEnd, typename Tile>
__device__ void add_biases(Tile& tile, const float* biases, int64_t first, int64_t rows) {
  MOESTRO_UNROLL
  for (int n = kFirst; n < kEnd; ++n) {
    MOESTRO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int64_t row = first + tile.row_of_pair(n - kFirst) + i;
      const float bias = row < rows ? load_unwritten(biases + row) : 0.0f;
      MOESTRO_UNROLL
      for (auto& sixteen : tile.sums) sixteen[n][i] += bias, sixteen[n][i + 2] += bias;
    }
  }
}

/// The list of token tiles by block 0, and x rounded by the others.
template <typename W>
__global__ void __launch_bounds__(kRoundThreads) begin_experts_kernel(MoestroCudaExperts a, int tile_tokens) {
  static_assert(kRoundThreads == kTileListThreads);
  if (blockIdx.x == 0) return list_token_tiles(a, tile_tokens, reinterpret_cast<int32_t*>(shared_memory()));
  round_rows(a.x, a.x_rows, a.layout.hidden, W::kExchanged, blockIdx.x - 1, a.rounded_x);
}

/// Writes what a tile of gate and up becomes. kExchanged: as weights of down have it.
template <typename S, bool kExchanged, typename Tile>
__device__ inline void write_activated(const MoestroCudaExperts& a, const TokensByRows& tokens, Tile& tile) {
  constexpr int kRows = S::kRows / 2;
  if (has_biases(a)) {
    const int64_t first = static_cast<int64_t>(tokens.row_tile) * kRows;
    add_biases<0, S::kEights / 2>(tile, biases_at(tokens.blob, a.biases.gate), first, a.layout.ffn);
    add_biases<S::kEights / 2, S::kEights>(tile, biases_at(tokens.blob, a.biases.up), first, a.layout.ffn);
  }
  const int64_t stride = rounded_columns(a.layout.ffn);
  MOESTRO_UNROLL
  for (int m = 0; m < S::kSixteens; ++m) {
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int token = tile.token_of(m) + half * 8;
      uint16_t* row = a.rounded_activated + (tokens.first + token) * stride;
      MOESTRO_UNROLL
      for (int n = 0; n < S::kEights / 2; ++n) {
        const float* gate = &tile.sums[m][n][half * 2];
        const float* up = &tile.sums[m][n + S::kEights / 2][half * 2];
        const int64_t f = static_cast<int64_t>(tokens.row_tile) * kRows + tile.row_of_pair(n);
        if (token >= tokens.count || f >= stride) continue;
        const auto pair = static_cast<int>(f % 16) / 2;
        const int64_t to = kExchanged ? f / 16 * 16 + exchanged_pair(pair) * 2 : f;
        const float first = f < a.layout.ffn ? joined<FastSigmoid>(a.unit, gate[0], up[0]) : 0.0f,
                    second = f + 1 < a.layout.ffn ? joined<FastSigmoid>(a.unit, gate[1], up[1]) : 0.0f;
        store_as(row + to, bf16_pair(first, second));
      }
    }
  }
}

/// Writes a tile of down to the rows of `out`.
template <typename S, typename Tile>
__device__ inline void write_out(const MoestroCudaExperts& a, const TokensByRows& tokens, Tile& tile) {
  if (has_biases(a))
    add_biases<0, S::kEights>(tile, biases_at(tokens.blob, a.biases.down),
                              static_cast<int64_t>(tokens.row_tile) * S::kRows, a.layout.hidden);
  MOESTRO_UNROLL
  for (int m = 0; m < S::kSixteens; ++m) {
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int token = tile.token_of(m) + half * 8;
      if (token >= tokens.count) continue;
      float* row = out_row(a, a.sorted[tokens.first + token]);
      MOESTRO_UNROLL
      for (int n = 0; n < S::kEights; ++n)
        store_pair(row, static_cast<int64_t>(tokens.row_tile) * S::kRows + tile.row_of_pair(n), a.layout.hidden,
                   tile.sums[m][n][half * 2], tile.sums[m][n][half * 2 + 1]);
    }
  }
}

template <typename W, typename S, bool kAligned>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksOfSm) gate_up_tiles_kernel(MoestroCudaExperts a,
                                                                                    uint32_t row_tiles) {
  const TokensByRows tokens = tokens_by_rows(a, S::kTokens, row_tiles);
  if (tokens.blob == nullptr) return;
  GateUpSource<W, S> source(a, tokens);
  ProductTile<W, S, 2, kAligned, GateUpSource<W, S>> tile(source);
  tile.run(0, source.pieces());
  write_activated<S, W::kExchanged>(a, tokens, tile);
}

template <typename W, typename S, bool kAligned>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksOfSm) down_tiles_kernel(MoestroCudaExperts a,
                                                                                 uint32_t row_tiles) {
  const TokensByRows tokens = tokens_by_rows(a, S::kTokens, row_tiles);
  if (tokens.blob == nullptr) return;
  DownSource<W, S> source(a, tokens);
  ProductTile<W, S, 1, kAligned, DownSource<W, S>> tile(source);
  tile.run(0, source.pieces());
  write_out<S>(a, tokens, tile);
}

/// Lists the tiles of tokens and rounds x; then gate_up(blocks, row_tiles) and down() launch the products.
template <typename W, typename S, typename GateUp, typename Down>
MoestroCudaResult launch_experts_on_tiles(const MoestroCudaExperts& a, MoestroCudaStream stream, GateUp gate_up,
                                          Down down) {
  static_assert(S::kTokens >= MOESTRO_CUDA_TILE_TOKENS_MIN && MOESTRO_CUDA_ROUNDED_COLUMNS % S::kDepth == 0,
                "workspaces have room for no smaller tiles");
  // Also of the zeros behind the last column of rounded_activated.
  const int64_t tiles = token_tiles_max(a, S::kTokens),
                gate_up_rows = divided_up(rounded_columns(a.layout.ffn), S::kRows / 2),
                down_rows = divided_up(a.layout.hidden, S::kRows),
                rounding = rounding_blocks(a.x_rows, a.layout.hidden) + 1;
  if (tiles * at_least(gate_up_rows, down_rows) > INT32_MAX || rounding * kRoundThreads > UINT32_MAX)
    return MOESTRO_CUDA_REFUSED;
  MoestroCudaResult result = launch(begin_experts_kernel<W>, dim3(static_cast<unsigned>(rounding)), dim3(kRoundThreads),
                                    kTileListThreads * sizeof(int32_t), stream, a, S::kTokens);
  if (result != 0) return result;
  result = gate_up(dim3(static_cast<unsigned>(tiles * gate_up_rows)), static_cast<uint32_t>(gate_up_rows));
  return result != 0 ? result
                     : down(dim3(static_cast<unsigned>(tiles * down_rows)), static_cast<uint32_t>(down_rows));
}

template <typename W, typename S, bool kAligned>
MoestroCudaResult launch_expert_tiles(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const auto launched = [&](auto kernel) {
    return [&a, stream, kernel](dim3 blocks, uint32_t row_tiles) {
      return launch(kernel, blocks, dim3(S::kThreads), StageBytes<W, S>::kAll, stream, a, row_tiles);
    };
  };
  return launch_experts_on_tiles<W, S>(a, stream, launched(gate_up_tiles_kernel<W, S, kAligned>),
                                       launched(down_tiles_kernel<W, S, kAligned>));
}

/// Whether every row of every part begins at a multiple of 16 bytes.
template <typename W>
bool rows_are_aligned(const MoestroCudaExpertLayout& l) {
  return tile_row_bytes<W>(l.hidden) % 16 == 0 && tile_row_bytes<W>(l.full.ffn) % 16 == 0 &&
         tile_row_bytes<W>(l.last.ffn) % 16 == 0;
}

template <typename W>
MoestroCudaResult experts_on_tiles(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  if (!rows_are_aligned<W>(a.layout)) return launch_expert_tiles<W, MiddleTile, false>(a, stream);
  const int64_t mean = a.rows / a.active_max;  // of an expert's tokens
  if constexpr (W::kBits < 16) {
    if (mean <= 8) return launch_expert_tiles<W, NarrowestTile, true>(a, stream);
  }
  if (mean <= 24) return launch_expert_tiles<W, NarrowTile, true>(a, stream);
  if (mean <= 64) return launch_expert_tiles<W, MiddleTile, true>(a, stream);
  if constexpr (std::is_same_v<W, Bf16Tiles>) {
    const MoestroCudaResult result = experts_hopper(a, stream);
    if (result != MOESTRO_CUDA_REFUSED) return result;
  }
  return launch_expert_tiles<W, WideTile, true>(a, stream);
}

}  // namespace moestro::kernels::cuda

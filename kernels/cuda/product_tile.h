#pragma once
// Products of many tokens on tensor cores: a block computes kTileTokens tokens by kTileRows rows of one weight matrix,
// or of two (gate and up) that share the tokens. Both sides are rounded to bf16 on their way into shared memory:
// activations from f32, weights from what they are stored in, quantised ones after their scale and offset. Sums are
// f32.
//
// The next piece of both is loaded into registers while the current one is multiplied. Rows of a piece are kTileStride
// apart, so that the lanes of a warp read their fragments from 32 different banks.

#include "kernels/cuda/mma.h"
#include "kernels/cuda/row_products.h"

namespace moestro::kernels::cuda {

inline constexpr int kTileTokens = 64, kTileRows = 64, kTileDepth = 32, kTileStride = kTileDepth + 8;
inline constexpr int kTileThreads = 128;
inline constexpr int kEightsOfRow = kTileDepth / 8;
inline constexpr int kEightsOfThread = kTileTokens * kEightsOfRow / kTileThreads;
static_assert(kTileTokens == kTileRows, "one way to cut both");

/// Shared memory of a block.
template <int kMatrices>
struct ProductRoom {
  uint16_t x[kTileTokens][kTileStride];
  uint16_t w[kMatrices][kTileRows][kTileStride];
};

/// What a block reads. `Source` has:
///   int64_t depth() const             columns that are summed over
///   const float* x(int token) const   a token of the tile; null: there is none
///   bool w(int matrix, int row, int64_t& piece, WeightRow& out) const
///                                     a row of the tile; false: there is none. `piece` in: which kTileDepth columns
///                                     of all; out: which of this row
template <typename W, int kMatrices, typename Source>
struct ProductTile {
  using Room = ProductRoom<kMatrices>;

  const Source& source;
  Room& room;
  float sums[kMatrices][2][4][4];  ///< of this lane, zeros at first: [matrix][16 tokens][8 rows][as multiply_tiles]
  uint32_t x_next[kEightsOfThread][4], w_next[kMatrices][kEightsOfThread][4];

  __device__ static int row_of(int i) { return (static_cast<int>(threadIdx.x) + i * kTileThreads) / kEightsOfRow; }
  __device__ static int eight_of(int) { return static_cast<int>(threadIdx.x) % kEightsOfRow; }

  __device__ static void pack(const float (&eight)[8], uint32_t (&words)[4]) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i)
      words[i] = static_cast<uint32_t>(bf16_bits(eight[2 * i])) | static_cast<uint32_t>(bf16_bits(eight[2 * i + 1]))
                                                                      << 16;
  }

  __device__ void load(int64_t piece) {
    MOESTRO_UNROLL
    for (int i = 0; i < kEightsOfThread; ++i) {
      float eight[8] = {};
      if (const float* x = source.x(row_of(i)))
        load_x(x, piece * kTileDepth + eight_of(i) * 8, source.depth(), loads_whole(x, source.depth()), eight);
      pack(eight, x_next[i]);
      MOESTRO_UNROLL
      for (int m = 0; m < kMatrices; ++m) {
        float weights[8] = {};
        WeightRow row{};
        int64_t own = piece;
        // Two units of a row are one piece of it, whatever the order of columns within.
        if (source.w(m, row_of(i), own, row)) W::load(row, own * 2 + eight_of(i) / 2, eight_of(i) % 2, weights);
        pack(weights, w_next[m][i]);
      }
    }
  }

  __device__ void store() {
    MOESTRO_UNROLL
    for (int i = 0; i < kEightsOfThread; ++i) {
      put(x_next[i], &room.x[row_of(i)][eight_of(i) * 8]);
      const auto column = static_cast<int>(W::column(eight_of(i) / 2, eight_of(i) % 2));
      MOESTRO_UNROLL
      for (int m = 0; m < kMatrices; ++m) put(w_next[m][i], &room.w[m][row_of(i)][column]);
    }
  }
  __device__ static void put(const uint32_t (&words)[4], uint16_t* to) {
    Bytes16 all;
    for (int i = 0; i < 4; ++i) all.words[i] = words[i];
    store_as(to, all);
  }

  __device__ static uint32_t pair_at(const uint16_t* at) { return load_as<uint32_t>(at); }
  __device__ static int first_token(int m16) { return warp_id() / 2 * 32 + m16 * 16; }
  __device__ static int first_row(int n8) { return warp_id() % 2 * 32 + n8 * 8; }

  __device__ void multiply() {
    const int g = lane_id() / 4, t = lane_id() % 4;
    MOESTRO_UNROLL
    for (int k = 0; k < kTileDepth; k += 16) {
      uint32_t a[2][4];
      MOESTRO_UNROLL
      for (int m16 = 0; m16 < 2; ++m16) {
        const int token = first_token(m16) + g, column = k + 2 * t;
        a[m16][0] = pair_at(&room.x[token][column]);
        a[m16][1] = pair_at(&room.x[token + 8][column]);
        a[m16][2] = pair_at(&room.x[token][column + 8]);
        a[m16][3] = pair_at(&room.x[token + 8][column + 8]);
      }
      MOESTRO_UNROLL
      for (int m = 0; m < kMatrices; ++m) {
        MOESTRO_UNROLL
        for (int n8 = 0; n8 < 4; ++n8) {
          const uint16_t* row = &room.w[m][first_row(n8) + g][k + 2 * t];
          const uint32_t b[2] = {pair_at(row), pair_at(row + 8)};
          MOESTRO_UNROLL
          for (int m16 = 0; m16 < 2; ++m16) multiply_tiles(sums[m][m16][n8], a[m16], b);
        }
      }
    }
  }

  /// All threads of the block.
  __device__ void run() {
    const int64_t pieces = divided_up(source.depth(), kTileDepth);
    load(0);
    for (int64_t piece = 0; piece < pieces; ++piece) {
      store();
      __syncthreads();
      if (piece + 1 < pieces) load(piece + 1);
      multiply();
      __syncthreads();
    }
  }

  /// Calls visit(token, row, sum of each matrix) for each of this lane's sums; token and row within the tile.
  template <typename Visit>
  __device__ void each_sum(Visit visit) const {
    const int g = lane_id() / 4, t = lane_id() % 4;
    MOESTRO_UNROLL
    for (int m16 = 0; m16 < 2; ++m16) {
      MOESTRO_UNROLL
      for (int n8 = 0; n8 < 4; ++n8) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i)
          visit(first_token(m16) + g + i / 2 * 8, first_row(n8) + 2 * t + i % 2, sums[0][m16][n8][i],
                sums[kMatrices - 1][m16][n8][i]);
      }
    }
  }
};

}  // namespace moestro::kernels::cuda

// What chunks of the gated delta rule need beside their rows (delta_chunk.h): P and T. A block has a chunk and a value
// head. Products of q and k are on tensor cores; T is computed in f32: first the inverses of the four tiles on the
// diagonal, a column in each thread, then the tiles below them, those nearest to the diagonal first:
//   T[i][j] = -T[i][i] (A[i][j] T[j][j] + ... + A[i][i - 1] T[i - 1][j])

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/bf16_parts.h"
#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/fast_math.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_norm.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kTile = 16, kTiles = kDeltaChunk / kTile;
constexpr int kThreads = kTiles * kWarp;  ///< a warp has the rows of a tile
constexpr int kOfKind = kDeltaChunk + 4;  ///< floats of a row of A and T
/// A decay below e^-88 is none in f32. Sums of such logarithms stay small enough for their differences to be right.
constexpr float kLeastLog = -88.0f;

template <typename Rows>
struct ChunkBlock {
  static constexpr int kRow = Rows::kKey + 8;  ///< an odd number of 16 bytes: rows begin in different banks
  struct alignas(16) Keys {
    uint16_t q[kDeltaChunk][kRow], k[kDeltaChunk][kRow];
  };
  struct alignas(16) Inverse {
    float a[kDeltaChunk][kOfKind];  ///< A, whose tiles above the diagonal are workspace
    float t[kDeltaChunk][kOfKind];
  };
  struct alignas(16) Room {
    union {
      Keys keys;
      Inverse inverse;  ///< once the products have been computed
    };
    float logs[kDeltaChunk], sums[kDeltaChunk], rates[kDeltaChunk];  ///< sums: of logarithms up to a row
  };

  const MoestroCudaDelta& a;
  const MoestroCudaDeltaChunk chunk;
  const int head;
  DeltaChunkTiles& to;
  Room& room;
  float products[2 * kTiles][4];  ///< of keys: this warp's rows of A, until the keys' room is free

  __device__ float ratio(int row, int before) const { return fast_exp(room.sums[row] - room.sums[before]); }

  __device__ void load() {
    const DeltaRecord<Rows> record{a};
    const int key_head = delta_key_head(a, head);
    constexpr int kOfRow = Rows::kKey / 8;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kDeltaChunk * kOfRow; i += kThreads) {
      const int part = i % kOfRow, row = i / kOfRow % kDeltaChunk;
      const bool there = row < chunk.rows, of_k = i >= kDeltaChunk * kOfRow;
      const int64_t from = chunk.first_row + (there ? row : 0);
      copy_async16(&(of_k ? room.keys.k : room.keys.q)[row][part * 8],
                   (of_k ? record.rounded_k(from, key_head) : record.rounded_q(from, key_head)) + part * 8,
                   there ? 16 : 0);
    }
    commit_copies();
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kDeltaChunk) return;
    const bool there = row < chunk.rows;
    const float* const gates = record.gates(chunk.first_row + (there ? row : 0), head);
    room.logs[row] = there ? fmaxf(gates[record.kLog], kLeastLog) : 0.0f;
    room.rates[row] = there ? gates[record.kRate] : 0.0f;
  }

  __device__ void add_logs() {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kDeltaChunk) return;
    float sum = 0.0f, all = 0.0f;
    for (int i = 0; i < kDeltaChunk; ++i) {
      all += room.logs[i];
      if (i <= row) sum = all;
    }
    room.sums[row] = sum;
    to.rate[row] = room.rates[row];
    to.decay[row] = fast_exp(sum);
    to.left[row] = fast_exp(all - sum);
  }

  /// Rows of q and k, 16 of this warp and all up to those, by keys; P is written.
  __device__ void multiply() {
    const int lane = lane_id(), first = warp_id() * kTile;
    const int a_row = first + lane % 16, a_place = lane / 16 * 8;
    const int b_row = lane / 16 * 8 + lane % 8, b_place = lane / 8 % 2 * 8;
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      float(&left)[4] = products[2 * tile], (&right)[4] = products[2 * tile + 1];
      float reads[2][4] = {};
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) left[i] = right[i] = 0.0f;
      if (tile > warp_id()) continue;
      MOESTRO_UNROLL
      for (int step = 0; step < Rows::kKey; step += 16) {
        uint32_t k[4], q[4], others[4];
        load_matrices(k, &room.keys.k[a_row][step + a_place]);
        load_matrices(q, &room.keys.q[a_row][step + a_place]);
        load_matrices(others, &room.keys.k[tile * kTile + b_row][step + b_place]);
        const uint32_t lower[2] = {others[0], others[1]}, upper[2] = {others[2], others[3]};
        multiply_tiles(left, k, lower);
        multiply_tiles(right, k, upper);
        multiply_tiles(reads[0], q, lower);
        multiply_tiles(reads[1], q, upper);
      }
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = first + lane / 4 + i % 2 * 8, column = tile * kTile + i / 2 * 8 + lane % 4 * 2;
        float two[2];
        MOESTRO_UNROLL
        for (int e = 0; e < 2; ++e)
          two[e] = column + e <= row ? ratio(row, column + e) * reads[i / 2][i % 2 * 2 + e] : 0.0f;
        store_as(&to.read[row][column], bf16_pair(two[0], two[1]));
      }
    }
  }

  /// This warp's rows of A.
  __device__ void place() {
    const int lane = lane_id();
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      if (tile > warp_id()) continue;
      MOESTRO_UNROLL
      for (int i = 0; i < 8; ++i) {
        const int row = warp_id() * kTile + lane / 4 + i / 2 % 2 * 8,
                  column = tile * kTile + i / 4 * 8 + lane % 4 * 2 + i % 2;
        const float product = products[2 * tile + i / 4][i % 4];
        room.inverse.a[row][column] = column < row ? room.rates[row] * ratio(row, column) * product : 0.0f;
      }
    }
  }

  __device__ void invert_diagonal() {
    if (static_cast<int>(threadIdx.x) >= kDeltaChunk) return;
    const int column = static_cast<int>(threadIdx.x) % kTile, first = static_cast<int>(threadIdx.x) - column;
    float x[kTile];
    MOESTRO_UNROLL
    for (int row = 0; row < kTile; ++row) {
      float sums[2] = {row == column ? 1.0f : 0.0f, 0.0f};  // of even and odd numbers: half as long a chain
      MOESTRO_UNROLL
      for (int i = 0; i < row; ++i)
        sums[i % 2] = multiply_add(-room.inverse.a[first + row][first + i], x[i], sums[i % 2]);
      x[row] = sums[0] + sums[1];
      room.inverse.t[first + row][first + column] = x[row];
    }
  }

  /// Four columns of a row of a tile's product: adds left[0, kTile) times rows of `right`.
  __device__ static void multiply_four(const float* left, const float (*right)[kOfKind], int column, float (&sum)[4]) {
    MOESTRO_UNROLL
    for (int i = 0; i < kTile; ++i) {
      float four[4];
      load_four(&right[i][column], four);
      MOESTRO_UNROLL
      for (int c = 0; c < 4; ++c) sum[c] = multiply_add(left[i], four[c], sum[c]);
    }
  }
  __device__ static void store_four(const float (&four)[4], float sign, float* to) {
    Bytes16 words;
    MOESTRO_UNROLL
    for (int c = 0; c < 4; ++c) words.words[c] = float_to_bits(sign * four[c]);
    store_as(to, words);
  }

  /// Tiles of T that are `apart` below the diagonal.
  __device__ void invert_below(int apart) {
    Inverse& in = room.inverse;
    const auto each = [&](auto work) {
      for (int i = static_cast<int>(threadIdx.x); i < (kTiles - apart) * kTile * 4; i += kThreads)
        work(i / (kTile * 4), i / 4 % kTile, i % 4 * 4);
    };
    each([&](int tile, int r, int c) {
      const int below = tile + apart;
      float sum[4] = {};
      MOESTRO_NO_UNROLL
      for (int m = tile; m < below; ++m)
        multiply_four(&in.a[below * kTile + r][m * kTile], in.t + m * kTile, tile * kTile + c, sum);
      store_four(sum, 1.0f, &in.a[tile * kTile + r][below * kTile + c]);
    });
    __syncthreads();
    each([&](int tile, int r, int c) {
      const int below = tile + apart;
      float sum[4] = {};
      multiply_four(&in.t[below * kTile + r][below * kTile], in.a + tile * kTile, below * kTile + c, sum);
      store_four(sum, -1.0f, &in.t[below * kTile + r][tile * kTile + c]);
    });
    __syncthreads();
  }

  __device__ void store() {
    for (int i = static_cast<int>(threadIdx.x); i < kDeltaChunk * kDeltaChunk / 8; i += kThreads) {
      const int row = i / (kDeltaChunk / 8), column = i % (kDeltaChunk / 8) * 8;
      if (column / kTile > row / kTile) continue;
      Bytes16 high, low;
      MOESTRO_UNROLL
      for (int w = 0; w < 4; ++w) {
        const float* const two = &room.inverse.t[row][column + 2 * w];
        const PairParts parts = parts_of(two[0], two[1]);
        high.words[w] = parts.high, low.words[w] = parts.low;
      }
      store_as(&to.high[row][column], high);
      store_as(&to.low[row][column], low);
    }
  }
};

template <typename Rows>
__global__ void __launch_bounds__(kThreads, 3) delta_chunks_kernel(MoestroCudaDelta a) {
  using Block = ChunkBlock<Rows>;
  after_predecessors();
  let_next_begin();
  const auto heads = static_cast<unsigned>(a.value_heads);
  const auto head = static_cast<int>(blockIdx.x % heads);
  const unsigned chunk = blockIdx.x / heads;
  Block block{a, a.chunks[chunk], head, *delta_tiles(a, chunk, head),
              *reinterpret_cast<typename Block::Room*>(shared_memory()), {}};
  block.load();
  __syncthreads();
  block.add_logs();
  wait_copies<0>();
  __syncthreads();
  block.multiply();
  __syncthreads();
  block.place();
  __syncthreads();
  block.invert_diagonal();
  __syncthreads();
  MOESTRO_NO_UNROLL
  for (int apart = 1; apart < kTiles; ++apart) block.invert_below(apart);
  block.store();
}

}  // namespace

int32_t delta_chunk_tiles(const MoestroCudaDelta& a, MoestroCudaStream stream) {
  const int64_t blocks = a.chunk_count * a.value_heads;
  if (blocks > INT32_MAX) return MOESTRO_CUDA_REFUSED;
  return with_delta_rows(a.key_dim, [&](auto rows) {
    using Rows = decltype(rows);
    return launch_early(delta_chunks_kernel<Rows>, dim3(static_cast<unsigned>(blocks)), dim3(kThreads),
                        sizeof(typename ChunkBlock<Rows>::Room), stream, a);
  });
}

}  // namespace moestro::kernels::cuda

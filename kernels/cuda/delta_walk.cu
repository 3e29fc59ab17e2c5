// Takes states of the gated delta rule through chunks of rows (delta_chunk.h), on tensor cores. A block has 64 columns
// of a head's state, a warp 16. Everything is transposed: a product's rows are columns of the state, and its columns
// are keys or rows of the chunk. So the sums of one product are the left side of the next one in the same lanes
// (bf16_parts.h). A warp's part of the state and of all that follows from it stays in its registers, and warps share
// only what they read.
//
// q, k and P are rounded to bf16. The state and what is added to it are never rounded to one bf16 where they lead to
// another state: there they are two parts, and the sums are f32. Only what is read is computed of the first part.
//
// The next chunk's rows come by asynchronous copies, each to the place of those that are no longer needed: k, v and T
// while what the chunk reads is computed, q and P while the state is.

#include <cstddef>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/bf16_parts.h"
#include "kernels/cuda/delta_chunk.h"
#include "kernels/cuda/delta_tails.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kWarp;
constexpr int kColumns = kWarps * 16;        ///< of a state, in a block
constexpr int kSteps = kDeltaChunk / 16;     ///< of a product over the rows of a chunk
constexpr int kTilesOfRows = kDeltaChunk / 8;
constexpr int kTileRow = kDeltaChunk + 8;    ///< an odd number of 16 bytes: rows begin in different banks
using RowSums = float[kTilesOfRows][4];      ///< of a warp's columns and a chunk's rows

template <typename Rows>
struct Walk {
  static constexpr int kKeyRow = Rows::kKey + 8, kKeyTiles = Rows::kKey / 8;
  struct Gates {
    float rate[kDeltaChunk], decay[kDeltaChunk], left[kDeltaChunk];
  };
  struct alignas(16) Room {
    uint16_t k[2][kDeltaChunk][kKeyRow], q[kDeltaChunk][kKeyRow];
    uint16_t high[kDeltaChunk][kTileRow], low[kDeltaChunk][kTileRow], read[kDeltaChunk][kTileRow];
    float v[kDeltaChunk][kColumns + 4];
    Gates gates[2];
  };
  static_assert(sizeof(Room) <= kSharedOfEveryCard);

  const MoestroCudaDelta& a;
  const MoestroCudaDeltaSequence& sequence;
  const int head, first_column;  ///< the block's first of the head's
  Room& room;
  float s[kKeyTiles][4];

  // --- places of a lane's numbers, in fragments as mma.h has them ---

  /// Of the block's columns.
  __device__ static int column(int lane, int i) { return warp_id() * 16 + lane / 4 + i / 2 * 8; }
  /// Of keys or of a chunk's rows.
  __device__ static int place(int lane, int tile, int i) { return tile * 8 + lane % 4 * 2 + i % 2; }

  // --- states in memory ---

  /// The lane's numbers of a slot: each(tile, i, how far it is from the lane's first), of those that the head has.
  template <typename Each>
  __device__ void each_number(int lane, Each each) const {
    const auto keys = static_cast<int>(a.key_dim), values = static_cast<int>(a.value_dim);
    MOESTRO_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i)
        if (place(lane, tile, i) < keys && first_column + column(lane, i) < values)
          each(tile, i, (tile * 8 + i % 2) * values + i / 2 * 8);
    }
  }
  __device__ int64_t first_number(int lane) const {
    return delta_tail_floats(a) + (head * a.key_dim + place(lane, 0, 0)) * a.value_dim + first_column + column(lane, 0);
  }
  __device__ void load(const float* slot) {
    MOESTRO_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) s[tile][i] = 0.0f;
    }
    if (!slot) return;
    const int lane = not_hoisted(lane_id());
    const float* const from = slot + first_number(lane);
    each_number(lane, [&](int tile, int i, int at) { s[tile][i] = from[at]; });
  }
  __device__ void store(float* slot) const {
    const int lane = not_hoisted(lane_id());
    float* const to = slot + first_number(lane);
    each_number(lane, [&](int tile, int i, int at) { to[at] = s[tile][i]; });
  }

  // --- copies ---

  /// Calls copy(row, part) for 16 bytes of each row of a chunk, kParts of them; a thread has one part of some rows.
  template <int kParts, typename Copy>
  __device__ static void each_part(Copy copy) {
    static_assert(kThreads % kParts == 0);
    const int thread = not_hoisted(static_cast<int>(threadIdx.x)), part = thread % kParts;
    MOESTRO_UNROLL_BY(4)
    for (int row = thread / kParts; row < kDeltaChunk; row += kThreads / kParts) copy(row, part);
  }
  /// Tiles of 16 by 16 up to the diagonal.
  __device__ static void copy_tiles(const uint16_t (*from)[kDeltaChunk], uint16_t (*to)[kTileRow]) {
    each_part<kDeltaChunk / 8>([&](int row, int part) {
      if (part / 2 <= row / 16) copy_async16(&to[row][part * 8], &from[row][part * 8]);
    });
  }
  /// Rows of q or k, zeros behind the chunk's last. `first`: the head's of the chunk's first row.
  __device__ void copy_keys(const MoestroCudaDeltaChunk& chunk, const uint16_t* first, uint16_t (*to)[kKeyRow]) const {
    const int64_t stride = 2 * DeltaRecord<Rows>{a}.floats();
    each_part<Rows::kKey / 8>([&](int row, int part) {
      const bool there = row < chunk.rows;
      copy_async16(&to[row][part * 8], first + (there ? row * stride : 0) + part * 8, there ? 16 : 0);
    });
  }
  __device__ void copy_values(const MoestroCudaDeltaChunk& chunk) const {
    const DeltaRecord<Rows> record{a};
    const int64_t stride = record.floats();
    const int width = static_cast<int>(record.value_floats()) - first_column;
    const float* const from = record.v(chunk.first_row, head) + first_column;
    each_part<kColumns / 4>([&](int row, int part) {
      const bool there = row < chunk.rows && part * 4 < width;
      copy_async16(&room.v[row][part * 4], there ? from + row * stride + part * 4 : from, there ? 16 : 0);
    });
  }
  /// Each one group of copies, empty behind the last chunk.
  __device__ void begin_taking(int number) const {
    if (number < sequence.chunks) {
      const MoestroCudaDeltaChunk chunk = a.chunks[sequence.first_chunk + number];
      const DeltaChunkTiles& tiles = *delta_tiles(a, sequence.first_chunk + number, head);
      copy_keys(chunk, DeltaRecord<Rows>{a}.rounded_k(chunk.first_row, delta_key_head(a, head)), room.k[number % 2]);
      copy_values(chunk);
      copy_tiles(tiles.high, room.high);
      copy_tiles(tiles.low, room.low);
      static_assert(sizeof(Gates) == sizeof(DeltaChunkTiles) - offsetof(DeltaChunkTiles, rate));
      if (threadIdx.x < sizeof(Gates) / 16)
        copy_async16(room.gates[number % 2].rate + 4 * threadIdx.x, tiles.rate + 4 * threadIdx.x);
    }
    commit_copies();
  }
  __device__ void begin_reading(int number) const {
    if (number < sequence.chunks) {
      const MoestroCudaDeltaChunk chunk = a.chunks[sequence.first_chunk + number];
      copy_keys(chunk, DeltaRecord<Rows>{a}.rounded_q(chunk.first_row, delta_key_head(a, head)), room.q);
      copy_tiles(delta_tiles(a, sequence.first_chunk + number, head)->read, room.read);
    }
    commit_copies();
  }

  // --- products ---

  /// Adds x times 16 rows, eight for each of two sums. kParts: of x, 1 or 2.
  template <int kParts>
  __device__ static void multiply_16(const FragmentParts& x, const uint16_t* rows, float (&first)[4],
                                     float (&second)[4]) {
    uint32_t b[4];
    load_matrices(b, rows);
    const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
    multiply_tiles(first, x.high, left);
    multiply_tiles(second, x.high, right);
    if constexpr (kParts == 2) {
      multiply_tiles(first, x.low, left);
      multiply_tiles(second, x.low, right);
    }
  }
  /// Adds the state times rows of `keys`. kParts: of the state, 1 or 2.
  template <int kParts>
  __device__ void multiply_state(const uint16_t (*keys)[kKeyRow], RowSums& sums) const {
    const int lane = not_hoisted(lane_id());
    const uint16_t* const from = &keys[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
    MOESTRO_UNROLL
    for (int step = 0; step < Rows::kKey / 16; ++step) {
      const FragmentParts state = parts_of(s[2 * step], s[2 * step + 1]);
      MOESTRO_UNROLL
      for (int rows = 0; rows < kSteps; ++rows)
        multiply_16<kParts>(state, from + rows * 16 * kKeyRow + step * 16, sums[2 * rows], sums[2 * rows + 1]);
    }
  }
  /// Adds x times rows of `tiles`, whose tiles right of the diagonal are zeros. kParts: of x.
  template <int kParts>
  __device__ static void multiply_rows(const RowSums& x, const uint16_t (*tiles)[kTileRow], RowSums& sums) {
    const int lane = not_hoisted(lane_id());
    const uint16_t* const from = &tiles[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8];
    MOESTRO_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const FragmentParts parts = parts_of(x[2 * step], x[2 * step + 1]);
      MOESTRO_UNROLL
      for (int rows = step; rows < kSteps; ++rows)
        multiply_16<kParts>(parts, from + rows * 16 * kTileRow + step * 16, sums[2 * rows], sums[2 * rows + 1]);
    }
  }

  __device__ static void clear(RowSums& sums) {
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTilesOfRows; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) sums[tile][i] = 0.0f;
    }
  }

  /// What the chunk's rows add to the state.
  __device__ void take(int number, RowSums& d) const {
    const Gates& gates = room.gates[number % 2];
    const int lane = not_hoisted(lane_id());
    RowSums x;
    clear(x);
    multiply_state<2>(room.k[number % 2], x);
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTilesOfRows; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int row = place(lane, tile, i);
        const float v = room.v[row][column(lane, i)];
        x[tile][i] = gates.rate[row] * multiply_add(-gates.decay[row], x[tile][i], v);
      }
    }
    clear(d);
    multiply_rows<2>(x, room.high, d);
    multiply_rows<1>(x, room.low, d);
  }

  __device__ void read(int number, const RowSums& d) const {
    const Gates& gates = room.gates[number % 2];
    const MoestroCudaDeltaChunk chunk = a.chunks[sequence.first_chunk + number];
    const int lane = not_hoisted(lane_id());
    RowSums out;
    clear(out);
    multiply_state<1>(room.q, out);
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTilesOfRows; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) out[tile][i] *= gates.decay[place(lane, tile, i)];
    }
    multiply_rows<1>(d, room.read, out);
    const auto values = static_cast<int>(a.value_dim), width = static_cast<int>(a.value_heads) * values;
    float* const to = a.out + static_cast<int64_t>(chunk.first_row + place(lane, 0, 0)) * width + head * values +
                      first_column + column(lane, 0);
    const int left = values - first_column - column(lane, 0);  // columns from the lane's first on
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTilesOfRows; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i)
        if (place(lane, tile, i) < chunk.rows && i / 2 * 8 < left)
          to[(tile * 8 + i % 2) * width + i / 2 * 8] = out[tile][i];
    }
  }

  /// The state after the chunk.
  __device__ void add(int number, RowSums& d) {
    const Gates& gates = room.gates[number % 2];
    const float decay = gates.decay[kDeltaChunk - 1];
    const int lane = not_hoisted(lane_id());
    MOESTRO_UNROLL
    for (int tile = 0; tile < kKeyTiles; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) s[tile][i] *= decay;
    }
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTilesOfRows; ++tile) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) d[tile][i] *= gates.left[place(lane, tile, i)];
    }
    const uint16_t* const from = &room.k[number % 2][lane % 16][lane / 16 * 8];
    MOESTRO_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const FragmentParts parts = parts_of(d[2 * step], d[2 * step + 1]);
      MOESTRO_UNROLL
      for (int keys = 0; keys < Rows::kKey / 16; ++keys) {
        uint32_t b[4];
        load_matrices_turned(b, from + step * 16 * kKeyRow + keys * 16);
        const uint32_t left[2] = {b[0], b[1]}, right[2] = {b[2], b[3]};
        multiply_tiles(s[2 * keys], parts.high, left);
        multiply_tiles(s[2 * keys + 1], parts.high, right);
        multiply_tiles(s[2 * keys], parts.low, left);
        multiply_tiles(s[2 * keys + 1], parts.low, right);
      }
    }
  }
};

/// Blocks: columns of all heads, times the sequences with chunks.
template <typename Rows>
__global__ void __launch_bounds__(kThreads, 1) delta_walk_kernel(MoestroCudaDelta a) {
  using Of = Walk<Rows>;
  const auto parts = static_cast<int>(divided_up(a.value_dim, kColumns)), block = static_cast<int>(blockIdx.x);
  after_predecessors();
  let_next_begin();
  const MoestroCudaDeltaSequence sequence = a.sequences[a.singles + a.prompts + blockIdx.y];
  Of walk{a, sequence, block / parts, block % parts * kColumns,
          *reinterpret_cast<typename Of::Room*>(shared_memory()), {}};
  walk.begin_taking(0);
  walk.begin_reading(0);
  const float* const before = delta_before(a, sequence);
  const bool keeps = a.kept && !a.again && sequence.kept >= 0;
  walk.load(before);
  if (keeps) walk.store(a.kept + sequence.kept * delta_slot_floats(a));

  const MoestroCudaDeltaWrite* write = a.writes + sequence.first_write;
  const MoestroCudaDeltaWrite* const writes_end = write + sequence.writes;
  MOESTRO_NO_UNROLL
  for (int number = 0; number < sequence.chunks; ++number) {
    wait_copies<1>();  // of what is taken
    __syncthreads();
    RowSums d;
    walk.take(number, d);
    wait_copies<0>();  // of what is read
    __syncthreads();
    walk.begin_taking(number + 1);
    walk.read(number, d);
    __syncthreads();
    walk.begin_reading(number + 1);
    walk.add(number, d);
    const MoestroCudaDeltaChunk chunk = a.chunks[sequence.first_chunk + number];
    for (; write != writes_end && write->tokens == chunk.first_row + chunk.rows - sequence.first_row; ++write)
      walk.store(a.states + write->slot * delta_slot_floats(a));
  }
  wait_copies<0>();
  write_tails(a, sequence, before, keeps);
}

}  // namespace

int32_t delta_chunked(const MoestroCudaDelta& a, MoestroCudaStream stream) {
  if (a.chunked == 0) return 0;
  if (const int32_t error = delta_chunk_tiles(a, stream)) return error;
  const int64_t blocks = a.value_heads * divided_up(a.value_dim, kColumns);
  return with_delta_rows(a.key_dim, [&](auto rows) {
    using Rows = decltype(rows);
    return launch_early(delta_walk_kernel<Rows>, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(a.chunked)),
                        dim3(kThreads), sizeof(typename Walk<Rows>::Room), stream, a);
  });
}

}  // namespace moestro::kernels::cuda

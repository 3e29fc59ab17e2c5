// Latent attention on tensor cores, absorbed: up to 32 (query, head) pairs of one sequence meet the same latents, 32
// positions at a time. As many blocks as the device holds at once share the tiles of all units evenly; a unit that
// several of them have parts of is put together by merge_latent_tiles().
//
// Each of a block's four warps has a quarter of a latent's numbers and of the rotated key's, in shared memory of its
// own: it multiplies queries by them, and, once the four products are added up and have become weights, the weights by
// the same numbers. So latents are copied once, and warps wait for each other only for scores. Queries and weighted
// sums stay in registers. The next tile is on its way while one is used.
//
// Queries, latents and weights are rounded to bf16 for the products; scores, sums and what is kept are f32.

#include <type_traits>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/fast_math.h"
#include "kernels/cuda/latent.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/resident_blocks.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp, kKeys = kLatentTile;

/// kWidth: numbers of a latent, filled up with zeros. kTiles: of 16 pairs.
template <typename N, int kWidth, int kTiles>
struct TileBlock {
  using Stored = typename N::Stored;
  static constexpr bool kCopied = std::is_same_v<N, BF16>;  ///< as they are
  static constexpr int kPairs = 16 * kTiles;
  static constexpr int kSlice = kWidth / kWarps, kRopeSlice = kLatentRope / kWarps;  ///< numbers of a warp
  static constexpr int kSteps = (kSlice + kRopeSlice) / 16, kOutputs = kSlice / 8;
  static constexpr int kRow = kSlice + kRopeSlice + 8;  ///< an odd number of 16 bytes: rows begin in different banks
  static constexpr int kRowLanes = kThreads / kPairs, kMine = kKeys / kRowLanes;  ///< lanes of a row of scores
  static_assert(kRopeSlice == 16 && kRow / 8 % 2 == 1 && kKeys == 32);

  struct alignas(16) Room {
    uint16_t latents[2][kWarps][kKeys][kRow];
    float scores[kWarps][kPairs][kKeys];
    uint16_t weights[kPairs][kKeys + 8];
    float factors[kPairs];
  };
  static_assert(sizeof(Room) <= kSharedOfEveryCard);

  const MoestroCudaLatentAttention& a;
  Room& room;
  const int group;
  const int rank = static_cast<int>(a.latent.kv_rank), rope = static_cast<int>(a.latent.rope_dim);
  const int warp = warp_id();

  /// A tile of an item that is to be copied; the blocks of the cache where its positions lie.
  struct Cursor {
    int item = 0, tile = 0;
    LatentSpan unit = {};
    uint32_t blocks[2] = {};
  };
  Cursor next = {};
  /// What is computed.
  struct Work {
    int first_pair = 0, pairs = 0;
    int tile = 0, tiles = 0;
  };
  Work now = {};

  // Of the unit:
  uint32_t q[kTiles][kSteps][4] = {};
  float values[kTiles][kOutputs][4] = {};
  // Of the row of scores that the thread turns into weights:
  int row_position = -1;
  float top = -INFINITY, sum = 0.0f;

  __device__ int row() const { return static_cast<int>(threadIdx.x) / kRowLanes; }
  __device__ int row_key() const { return static_cast<int>(threadIdx.x) % kRowLanes * kMine; }
  /// Where a row of scores has a key: rows that are written together are in different banks.
  __device__ static int place(int row, int key) { return key ^ (row % 4 * 8); }

  // --- tiles ---

  __device__ Cursor cursor_at(int tile) const {
    Cursor c;
    c.item = latent_item_of(a, tile);
    c.unit = latent_span(a, c.item * a.groups + group);
    c.tile = tile - a.units[c.item * a.groups].first_tile;
    load_blocks(c);
    return c;
  }
  __device__ static Work work_of(const Cursor& c) {
    return {c.unit.first_pair, c.unit.pairs, c.tile, c.unit.tiles()};
  }
  __device__ void load_blocks(Cursor& c) const {
    MOESTRO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int first = c.tile * kKeys + i * kTokensOfBlock;
      c.blocks[i] = first <= c.unit.last_position ? c.unit.blocks[first / kTokensOfBlock] : 0;
    }
  }
  /// `more`: there is a tile after it.
  __device__ void advance(Cursor& c, bool more) const {
    if (!more) return;
    if (++c.tile == c.unit.tiles()) {
      c.tile = 0;
      ++c.item;
      c.unit = latent_span(a, c.item * a.groups + group);
    }
    load_blocks(c);
  }

  /// Eight numbers of a latent or key as bf16, zeros if `seen` is not set.
  __device__ void bring(const Stored* from, const float* scale, bool seen, uint16_t* to) const {
    if constexpr (kCopied) {
      copy_async16(to, from, seen ? 16 : 0);
    } else {
      float eight[8] = {};
      if (seen) {
        load8<N>(from, eight);
        if constexpr (sizeof(Stored) == 1) {
          MOESTRO_UNROLL
          for (int e = 0; e < 8; ++e) eight[e] *= *scale;
        }
      }
      Bytes16 words;
      MOESTRO_UNROLL
      for (int w = 0; w < 4; ++w) words.words[w] = bf16_pair(eight[2 * w], eight[2 * w + 1]);
      store_as(to, words);
    }
  }

  /// The warp's numbers of a tile; where they are copied, one group of copies in any case.
  __device__ void fill(const Cursor& c, int stage) const {
    const int lane = not_hoisted(lane_id());
    const LatentRows<N> low(a.latent, c.blocks[0]), high(a.latent, c.blocks[1]);
    constexpr int kChunks = kSlice / 8, kAtOnce = kWarp / kChunks;  // of a latent; latents
    const int d = warp * kSlice + lane % kChunks * 8;
    MOESTRO_UNROLL_BY(2)
    for (int first = 0; first < kKeys; first += kAtOnce) {
      const int key = first + lane / kChunks, slot = key % kTokensOfBlock;
      const LatentRows<N>& rows = key < kTokensOfBlock ? low : high;
      const bool seen = c.tile * kKeys + key <= c.unit.last_position && d < rank;
      bring(rows.latents + (seen ? slot * rank + d : 0), rows.scales + slot, seen,
            &room.latents[stage][warp][key][lane % kChunks * 8]);
    }
    const int r = warp * kRopeSlice + lane % 2 * 8;
    MOESTRO_UNROLL
    for (int key = lane / 2; key < kKeys; key += kTokensOfBlock) {
      const int slot = key % kTokensOfBlock;
      const LatentRows<N>& rows = key < kTokensOfBlock ? low : high;
      const bool seen = c.tile * kKeys + key <= c.unit.last_position && r < rope;
      bring(rows.keys + (seen ? slot * rope + r : 0), rows.scales + kTokensOfBlock + slot, seen,
            &room.latents[stage][warp][key][kSlice + lane % 2 * 8]);
    }
    if constexpr (kCopied) commit_copies();
  }

  // --- a unit ---

  /// Fragments of the absorbed queries: the warp's numbers.
  __device__ void enter() {
    const int lane = not_hoisted(lane_id());
    constexpr int kAbsorbed = kWidth + kLatentRope;
    const auto* absorbed = static_cast<const uint16_t*>(a.absorbed);
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      MOESTRO_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        const int d = (step < kSteps - 1 ? warp * kSlice + step * 16 : kWidth + warp * kRopeSlice) + lane % 4 * 2;
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int pair = tile * 16 + lane / 4 + i % 2 * 8;
          const uint16_t* from = absorbed + static_cast<int64_t>(now.first_pair + pair) * kAbsorbed + d + i / 2 * 8;
          q[tile][step][i] = pair < now.pairs ? load_as<uint32_t>(from) : 0u;
        }
      }
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) values[tile][n][i] = 0.0f;
      }
    }
    row_position = row() < now.pairs ? latent_query(a, now.first_pair + row()).position : -1;
    top = -INFINITY;
    sum = 0.0f;
  }

  /// The warp's share of the scores.
  __device__ void score(int stage) {
    const int lane = not_hoisted(lane_id());
    const int k_row = lane / 16 * 8 + lane % 8, k_place = lane / 8 % 2 * 8;
    MOESTRO_NO_UNROLL
    for (int half = 0; half < kKeys; half += 16) {
      float scores[kTiles][2][4] = {};
      MOESTRO_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        uint32_t k[4];
        load_matrices(k, &room.latents[stage][warp][half + k_row][step * 16 + k_place]);
        const uint32_t left[2] = {k[0], k[1]}, right[2] = {k[2], k[3]};
        MOESTRO_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_tiles(scores[tile][0], q[tile][step], left);
          multiply_tiles(scores[tile][1], q[tile][step], right);
        }
      }
      MOESTRO_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const int pair = tile * 16 + i % 2 * 8 + lane / 4, key = half + i / 2 * 8 + lane % 4 * 2;
          const float(&two)[4] = scores[tile][i / 2];
          store_as(&room.scores[warp][pair][place(pair, key)],
                   Bytes8{{float_to_bits(two[i % 2 * 2]), float_to_bits(two[i % 2 * 2 + 1])}});
        }
      }
    }
  }

  /// Adds up the warps' scores of the thread's keys, which become weights.
  __device__ void weigh() {
    const float scale = a.latent.scale * kLog2E;
    const int first = now.tile * kKeys + row_key();
    float scores[kMine];
    float most = top;
    MOESTRO_UNROLL
    for (int i = 0; i < kMine; ++i) {
      const int at = place(row(), row_key() + i);
      float score = room.scores[0][row()][at];
      MOESTRO_UNROLL
      for (int w = 1; w < kWarps; ++w) score += room.scores[w][row()][at];
      scores[i] = first + i <= row_position ? score * scale : -INFINITY;
      most = fmaxf(most, scores[i]);
    }
    MOESTRO_UNROLL
    for (int step = 1; step < kRowLanes; step *= 2) most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, step));
    const float shift = most == -INFINITY ? 0.0f : most;  // minus infinity: nothing seen yet
    const float before = fast_exp2(top - shift);
    float all = 0.0f;
    MOESTRO_UNROLL
    for (int i = 0; i < kMine; ++i) all += scores[i] = fast_exp2(scores[i] - shift);
    MOESTRO_UNROLL
    for (int step = 1; step < kRowLanes; step *= 2) all += __shfl_xor_sync(kWholeWarp, all, step);
    sum = multiply_add(sum, before, all);
    top = most;
    MOESTRO_UNROLL
    for (int i = 0; i < kMine; i += 2)
      store_as(&room.weights[row()][row_key() + i], bf16_pair(scores[i], scores[i + 1]));
    if (row_key() == 0) room.factors[row()] = before;
  }

  /// Multiplies what is kept of a pair by its number in room.factors.
  __device__ void multiply_values() {
    const int lane = not_hoisted(lane_id());
    float factors[kTiles * 2];
    bool changes = false;
    MOESTRO_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      factors[i] = room.factors[i * 8 + lane / 4];
      changes = changes || factors[i] != 1.0f;
    }
    if (__ballot_sync(kWholeWarp, changes) == 0) return;
    MOESTRO_UNROLL
    for (int tile = 0; tile < kTiles; ++tile) {
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) values[tile][n][i] *= factors[tile * 2 + i / 2];
      }
    }
  }

  __device__ void add_values(int stage) {
    const int lane = not_hoisted(lane_id());
    const int v_row = lane % 16, v_place = lane / 16 * 8;
    MOESTRO_UNROLL
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t w[kTiles][4];
      MOESTRO_UNROLL
      for (int tile = 0; tile < kTiles; ++tile)
        load_matrices(w[tile], &room.weights[tile * 16 + v_row][s * 16 + v_place]);
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; n += 2) {
        uint32_t v[4];
        load_matrices_turned(v, &room.latents[stage][warp][s * 16 + v_row][n * 8 + v_place]);
        const uint32_t left[2] = {v[0], v[1]}, right[2] = {v[2], v[3]};
        MOESTRO_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_tiles(values[tile][n], w[tile], left);
          multiply_tiles(values[tile][n + 1], w[tile], right);
        }
      }
    }
  }

  /// What a block has computed of a unit: all of it, or a part. The rows' tops and sums go through room.factors.
  __device__ void leave(int block, bool has_begun, bool has_ended) {
    const int lane = not_hoisted(lane_id());
    const bool whole = !has_begun && has_ended;
    __syncthreads();  // the factors have been read
    if (row_key() == 0) room.factors[row()] = whole ? 1.0f / sum : 1.0f;
    if (!whole && row_key() == 0 && row() < now.pairs) {
      float* to = latent_partial(a, block, has_begun, row());
      to[0] = top;
      to[1] = sum;
    }
    __syncthreads();
    multiply_values();
    MOESTRO_UNROLL
    for (int i = 0; i < kTiles * 2; ++i) {
      const int pair = i * 8 + lane / 4;
      if (pair >= now.pairs) continue;
      float* to = whole ? a.attended + static_cast<int64_t>(now.first_pair + pair) * rank
                        : latent_partial(a, block, has_begun, pair) + MOESTRO_CUDA_PARTIAL_HEAD;
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        const int d = warp * kSlice + n * 8 + lane % 4 * 2;
        const float(&four)[4] = values[i / 2][n];
        if (d < rank)
          store_as(to + d, Bytes8{{float_to_bits(four[i % 2 * 2]), float_to_bits(four[i % 2 * 2 + 1])}});
      }
    }
  }

  /// Tiles [begin, end) of the group. `block`: its number among the blocks of all groups.
  __device__ void run(int begin, int end, int block) {
    if (begin >= end) return;
    next = cursor_at(begin);
    fill(next, 0);
    bool has_begun = next.tile > 0;  // before this block
    int stage = 0;
    MOESTRO_NO_UNROLL
    for (int tile = begin; tile < end; ++tile, stage = 1 - stage) {
      now = work_of(next);
      if (tile == begin || now.tile == 0) enter();
      advance(next, tile + 1 < end);
      if constexpr (kCopied) wait_copies<0>();
      __syncwarp();  // the tile is there, and the warp is done with the one before it
      if (tile + 1 < end) fill(next, 1 - stage);
      score(stage);
      __syncthreads();
      weigh();
      __syncthreads();
      multiply_values();
      add_values(stage);
      const bool has_ended = now.tile + 1 == now.tiles;
      if (has_ended || tile + 1 == end) leave(block, has_begun, has_ended);
      if (has_ended) has_begun = false;
    }
  }
};

template <typename N, int kWidth, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) latent_tiles_kernel(MoestroCudaLatentAttention a, int blocks) {
  using Block = TileBlock<N, kWidth, kTiles>;
  const auto groups = static_cast<int>(a.groups);
  const int share = static_cast<int>(blockIdx.x) / groups;
  const LatentShares shares(a, blocks);
  if (share >= shares.blocks) return;
  Block block{a, *reinterpret_cast<typename Block::Room*>(shared_memory()), static_cast<int>(blockIdx.x) % groups};
  block.run(shares.first_of(share), shares.first_of(share + 1), static_cast<int>(blockIdx.x));
}

template <typename N, int kWidth, int kTiles>
MoestroCudaResult launch_tiles(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  constexpr auto kernel = latent_tiles_kernel<N, kWidth, kTiles>;
  constexpr auto kShared = static_cast<int64_t>(sizeof(typename TileBlock<N, kWidth, kTiles>::Room));
  const int64_t most = at_most<int64_t>(MOESTRO_CUDA_LATENT_BLOCKS, resident_blocks<kernel>(kThreads, kShared));
  const auto blocks = static_cast<int>(at_least<int64_t>(1, most / a.groups));
  const MoestroCudaResult result = launch(kernel, dim3(static_cast<unsigned>(blocks * a.groups)), dim3(kThreads),
                                          static_cast<uint64_t>(kShared), stream, a, blocks);
  if (result != 0 || blocks == 1) return result;
  return merge_latent_tiles(a, blocks, stream);
}

template <typename N, int kWidth>
MoestroCudaResult attend_width(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  return a.pairs_most <= 16 ? launch_tiles<N, kWidth, 1>(a, stream) : launch_tiles<N, kWidth, 2>(a, stream);
}
template <typename N>
MoestroCudaResult attend(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  if (a.latent.kv_rank <= kLatentHalfRank) return attend_width<N, kLatentHalfRank>(a, stream);
  return attend_width<N, 2 * kLatentHalfRank>(a, stream);
}

}  // namespace

MoestroCudaResult attend_latent_tiles(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  if (a.groups > MOESTRO_CUDA_LATENT_BLOCKS) return MOESTRO_CUDA_REFUSED;
  switch (a.latent.dtype) {
    case MOESTRO_CUDA_F32: return attend<F32>(a, stream);
    case MOESTRO_CUDA_BF16: return attend<BF16>(a, stream);
    case MOESTRO_CUDA_F16: return attend<F16>(a, stream);
    case MOESTRO_CUDA_INT8: return attend<Int8>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

#pragma once
// Attention of many queries on tensor cores (FlashAttention-2: Dao 2023): a block takes 128 (query, head) pairs of a
// sequence that share a KV head (64 of wide heads) and visits their keys 64 at a time, keeping of each pair the largest
// score, the sum of exponentials and the weighted values. Queries, keys, values and weights are rounded to bf16 for the
// products; scores, sums and what is kept are f32.
//
// The next keys and values are on their way while these are used. A warp has 32 pairs, so that each fragment of keys
// and values that it reads serves two products.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/attention_tasks.h"
#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/fast_math.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {

inline constexpr int kPrefillThreads = 128;

template <typename A, typename B>
inline constexpr bool kSame = false;
template <typename A>
inline constexpr bool kSame<A, A> = true;

/// kDims: head_dim, filled up with zeros. In shared memory the 16-byte chunks of a row change places with the row's
/// number, so that lanes that read the same chunk of different rows read from different banks.
template <typename N, int kDims, int kPairs, int kKeys, int kStages>
struct PrefillBlock {
  static constexpr int kTiles = kPairs / (kPrefillThreads / kWarp * 16);  ///< of 16 pairs, of a warp
  static constexpr int kRows = 2 * kTiles;  ///< of scores that a lane has a part of: 8 pairs apart
  static constexpr int kSteps = kDims / 16, kOutputs = kDims / 8, kScores = kKeys / 8, kChunks = kDims / 8;
  static constexpr bool kCopied = kSame<N, BF16>;  ///< as they are
  static_assert(kTiles >= 1 && kChunks % 4 == 0 && kKeys % 16 == 0 && (kKeys * kChunks) % kPrefillThreads == 0);

  struct alignas(16) Room {
    uint16_t q[kPairs][kDims];
    uint16_t k[kStages][kKeys][kDims];
    uint16_t v[kStages][kKeys][kDims];
    int position[kPairs], begin[kPairs];
  };

  const MoestroCudaAttention& a;
  Room& room;
  const MoestroCudaAttentionUnit unit;
  int kv_head;
  const uint32_t* blocks = nullptr;
  int warp = uniform(warp_id());
  int begin = 0, furthest = -1;  ///< of what any pair sees
  PairSight warp_first = {}, warp_last = {};  ///< of the warp's pairs, whose positions ascend

  // By row: 2 * tile + half.
  float top[kRows] = {};
  float sum[kRows] = {};  ///< of this lane's keys
  float values[kTiles][kOutputs][4] = {};

  /// Where a row has the number `d`, a multiple of 8.
  __device__ static int place(int row, int d) {
    return d ^ (kChunks % 8 == 0 ? row % 8 * 8 : row / 2 % 4 * 8);
  }
  __device__ static int t() { return lane_id() % 4; }
  __device__ int first_pair() const { return warp * kTiles * 16; }
  __device__ int pair_of(int row) const { return first_pair() + row * 8 + lane_id() / 4; }
  __device__ PairSight sight(int pair) const {
    return pair < unit.pairs ? sight_at(a, query_of(a, unit, pair).position) : PairSight{};
  }

  __device__ void load_queries() {
    const MoestroCudaQuery query = query_of(a, unit, 0);
    blocks = a.blocks + query.first_block;
    begin = sight_at(a, uniform(query.position)).begin;
    furthest = uniform(query_of(a, unit, unit.pairs - 1).position);
    warp_first = sight_at(a, uniform(sight(first_pair()).position));
    warp_last = sight_at(a, uniform(sight(at_most(first_pair() + kTiles * 16, unit.pairs) - 1).position));
    MOESTRO_UNROLL
    for (int row = 0; row < kRows; ++row) top[row] = -INFINITY;
    if (threadIdx.x < kPairs) {
      const PairSight mine = sight(static_cast<int>(threadIdx.x));
      room.position[threadIdx.x] = mine.position;
      room.begin[threadIdx.x] = mine.begin;
    }
    for (int i = static_cast<int>(threadIdx.x); i < kPairs * kChunks; i += kPrefillThreads) {
      const int pair = i / kChunks, d = i % kChunks * 8;
      float from[8] = {};
      if (pair < unit.pairs && d < a.kv.head_dim)
        load8<F32>(a.q + row_of(a, unit, kv_head, pair) * a.kv.head_dim + d, from);
      store_eight(&room.q[pair][place(pair, d)], from);
    }
  }

  __device__ static void store_eight(uint16_t* to, const float (&from)[8]) {
    Bytes16 words;
    MOESTRO_UNROLL
    for (int w = 0; w < 4; ++w) words.words[w] = bf16_pair(from[2 * w], from[2 * w + 1]);
    store_as(to, words);
  }

  /// Brings keys, values or both of the positions from `first` on, zeros where no pair sees them; bf16 arrive later, as
  /// one group of copies.
  template <bool kBringKeys, bool kBringValues>
  __device__ void fill(int stage, int first) const {
    const int dims = static_cast<int>(a.kv.head_dim), thread = not_hoisted(static_cast<int>(threadIdx.x)),
              rows = static_cast<int>(a.kv.kv_heads) * kTokensOfBlock;  // of a block: keys, then as many values
    MOESTRO_UNROLL_BY(2)
    for (int n = 0; n < kKeys * kChunks / kPrefillThreads; ++n) {
      const int i = n * kPrefillThreads + thread, key = i / kChunks, d = i % kChunks * 8, p = first + key,
                to = place(key, d), row = kv_head * kTokensOfBlock + p % kTokensOfBlock;
      const bool seen = p >= begin && p <= furthest && d < dims;
      const char* block = static_cast<const char*>(a.kv.data);
      if (seen) block += a.kv.block_bytes * blocks[p / kTokensOfBlock];
      const Row from{reinterpret_cast<const typename N::Stored*>(block) + (seen ? row * dims + d : 0), block, seen};
      if constexpr (kBringKeys) bring(from, row, &room.k[stage][key][to]);
      if constexpr (kBringValues) bring({from.eight + rows * dims, block, seen}, rows + row, &room.v[stage][key][to]);
    }
    if constexpr (kCopied) commit_copies();
  }

  /// Eight elements of a row of a block.
  struct Row {
    const typename N::Stored* eight;
    const char* block;
    bool seen;
  };
  __device__ void bring(const Row& from, int row, uint16_t* to) const {
    if constexpr (kCopied) {
      copy_async16(to, from.eight, from.seen ? 16 : 0);
    } else {
      float eight[8] = {};
      if (from.seen) load_scaled(from.eight, from.block, row, eight);
      store_eight(to, eight);
    }
  }

  __device__ void load_scaled(const typename N::Stored* from, const char* block, int row, float (&to)[8]) const {
    load8<N>(from, to);
    if constexpr (sizeof(typename N::Stored) == 1) {
      const float scale = reinterpret_cast<const float*>(block + a.kv.scales_offset)[row];
      MOESTRO_UNROLL
      for (int e = 0; e < 8; ++e) to[e] *= scale;
    }
  }

  /// Products with the keys from `first` on: [tile][8 keys][as multiply_tiles]; minus infinity where not seen.
  __device__ void score(const uint16_t (&keys)[kKeys][kDims], int first, float (&scores)[kTiles][kScores][4]) const {
    // Places of step 0; those of others differ in bits above 8's.
    const int q_row = lane_id() % 16, k_row = lane_id() / 16 * 8 + lane_id() % 8,
              q_place = not_hoisted(place(q_row, lane_id() / 16 * 8)),
              k_place = not_hoisted(place(k_row, lane_id() / 8 % 2 * 8));
    MOESTRO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      uint32_t q[kTiles][4];
      MOESTRO_UNROLL
      for (int tile = 0; tile < kTiles; ++tile)
        load_matrices(q[tile], &room.q[first_pair() + tile * 16 + q_row][q_place ^ (s * 16)]);
      MOESTRO_UNROLL
      for (int n = 0; n < kScores; n += 2) {
        uint32_t k[4];
        load_matrices(k, &keys[n * 8 + k_row][k_place ^ (s * 16)]);
        const uint32_t left[2] = {k[0], k[1]}, right[2] = {k[2], k[3]};
        MOESTRO_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_tiles(scores[tile][n], q[tile], left);
          multiply_tiles(scores[tile][n + 1], q[tile], right);
        }
      }
    }
    if (first + kKeys - 1 <= warp_first.position && first >= warp_last.begin) return;
    const int lane = not_hoisted(lane_id());
    MOESTRO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const int pair = first_pair() + row * 8 + lane / 4, position = room.position[pair], seen_from = room.begin[pair];
      MOESTRO_UNROLL
      for (int n = 0; n < kScores; ++n) {
        MOESTRO_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int p = first + n * 8 + lane % 4 * 2 + i;
          float& score = scores[row / 2][n][row % 2 * 2 + i];
          if (p > position || p < seen_from) score = -INFINITY;
        }
      }
    }
  }

  /// Scores become weights; what is kept is brought to the new largest score.
  __device__ void weigh(float (&scores)[kTiles][kScores][4]) {
    const float scale = a.kv.scale * kLog2E;
    MOESTRO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      const int tile = row / 2, at = row % 2 * 2;
      float most = top[row];
      MOESTRO_UNROLL
      for (int n = 0; n < kScores; ++n) most = fmaxf(most, fmaxf(scores[tile][n][at], scores[tile][n][at + 1]));
      most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 2));
      const float shift = most == -INFINITY ? 0.0f : most * scale;  // minus infinity: nothing seen yet
      const float before = fast_exp2(multiply_add(top[row], scale, -shift));
      top[row] = most;
      float all = 0.0f;
      MOESTRO_UNROLL
      for (int n = 0; n < kScores; ++n) {
        MOESTRO_UNROLL
        for (int i = at; i < at + 2; ++i) {
          scores[tile][n][i] = fast_exp2(multiply_add(scores[tile][n][i], scale, -shift));
          all += scores[tile][n][i];
        }
      }
      sum[row] = multiply_add(sum[row], before, all);
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        values[tile][n][at] *= before;
        values[tile][n][at + 1] *= before;
      }
    }
  }

  /// The weights of 16 keys, as they lie in scores, are what the next product takes on its left.
  __device__ void add_values(const uint16_t (&from_values)[kKeys][kDims],
                             const float (&weights)[kTiles][kScores][4]) {
    const int v_row = lane_id() % 16, v_place = not_hoisted(place(v_row, lane_id() / 16 * 8));
    MOESTRO_UNROLL
    for (int s = 0; s < kKeys / 16; ++s) {
      uint32_t w[kTiles][4];
      MOESTRO_UNROLL
      for (int tile = 0; tile < kTiles; ++tile) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float(&from)[4] = weights[tile][2 * s + i / 2];
          w[tile][i] = bf16_pair(from[i % 2 * 2], from[i % 2 * 2 + 1]);
        }
      }
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; n += 2) {
        uint32_t v[4];
        load_matrices_turned(v, &from_values[s * 16 + v_row][v_place ^ (n * 8)]);
        const uint32_t left[2] = {v[0], v[1]}, right[2] = {v[2], v[3]};
        MOESTRO_UNROLL
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_tiles(values[tile][n], w[tile], left);
          multiply_tiles(values[tile][n + 1], w[tile], right);
        }
      }
    }
  }

  __device__ bool sees(int first) const {
    return first_pair() < unit.pairs && first <= warp_last.position && first + kKeys > warp_first.begin;
  }

  /// The next keys and values come into the other half of the room.
  __device__ void run_in_two_stages() {
    int first = begin / kKeys * kKeys, stage = 0;
    fill<true, true>(stage, first);
    for (; first <= furthest; first += kKeys, stage = 1 - stage) {
      if constexpr (kCopied) wait_copies<0>();
      __syncthreads();  // the tile is there, and all warps are done with the one before it
      if (first + kKeys <= furthest) fill<true, true>(1 - stage, first + kKeys);
      if (!sees(first)) continue;
      float scores[kTiles][kScores][4] = {};
      score(room.k[stage], first, scores);
      weigh(scores);
      add_values(room.v[stage], scores);
    }
  }

  /// Values come while keys are used, and the next keys while values are.
  __device__ void run_in_one_stage() {
    int first = begin / kKeys * kKeys;
    fill<true, false>(0, first);
    for (; first <= furthest; first += kKeys) {
      fill<false, true>(0, first);
      if constexpr (kCopied) wait_copies<1>();
      __syncthreads();  // keys are there
      const bool seen = sees(first);
      float scores[kTiles][kScores][4] = {};
      if (seen) score(room.k[0], first, scores);
      __syncthreads();  // keys have been read
      if (first + kKeys <= furthest) fill<true, false>(0, first + kKeys);
      else if constexpr (kCopied) commit_copies();
      if (seen) weigh(scores);
      if constexpr (kCopied) wait_copies<1>();
      __syncthreads();  // values are there
      if (seen) add_values(room.v[0], scores);
      __syncthreads();  // values have been read
    }
    if constexpr (kCopied) wait_copies<0>();
  }

  __device__ void run() {
    load_queries();
    if constexpr (kStages == 2) run_in_two_stages();
    else run_in_one_stage();
    write();
  }

  __device__ void write() {
    MOESTRO_UNROLL
    for (int row = 0; row < kRows; ++row) {
      sum[row] += __shfl_xor_sync(kWholeWarp, sum[row], 1);
      sum[row] += __shfl_xor_sync(kWholeWarp, sum[row], 2);
      if (room.position[pair_of(row)] < 0) continue;
      const int64_t at = row_of(a, unit, kv_head, pair_of(row));
      if (a.sink_logits)
        sum[row] += fast_exp2(a.sink_logits[at % a.kv.heads] * kLog2E - top[row] * (a.kv.scale * kLog2E));
      const float part = 1.0f / sum[row];
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        const int d = n * 8 + 2 * t();
        const float(&from)[4] = values[row / 2][n];
        const Bytes8 two{{float_to_bits(from[row % 2 * 2] * part), float_to_bits(from[row % 2 * 2 + 1] * part)}};
        if (d < a.kv.head_dim) store_as(a.out + at * a.kv.head_dim + d, two);
      }
    }
  }
};

/// The longest units first, and their KV heads side by side.
template <typename N, int kDims, int kPairs, int kKeys, int kStages>
__global__ void __launch_bounds__(kPrefillThreads, 2) prefill_kernel(MoestroCudaAttention a) {
  using Block = PrefillBlock<N, kDims, kPairs, kKeys, kStages>;
  const auto heads = static_cast<unsigned>(a.kv.kv_heads);
  const MoestroCudaAttentionUnit unit = a.units[a.unit_count - 1 - blockIdx.x / heads];
  Block block{a, *reinterpret_cast<typename Block::Room*>(shared_memory()), unit,
              static_cast<int>(blockIdx.x % heads)};
  block.run();
}

/// Two where registers and shared memory suffice for them, and copies do not wait for the threads.
template <typename N, int kDims>
inline constexpr int kPrefillStages = kSame<N, BF16> && kDims <= 64 ? 2 : 1;

template <typename N, int kDims>
MoestroCudaResult launch_prefill(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  constexpr int kPairs =
      kDims <= MOESTRO_CUDA_PREFILL_NARROW ? MOESTRO_CUDA_PREFILL_PAIRS : MOESTRO_CUDA_PREFILL_PAIRS_WIDE;
  constexpr int kKeys = 64, kStages = kPrefillStages<N, kDims>;
  return launch(prefill_kernel<N, kDims, kPairs, kKeys, kStages>,
                dim3(static_cast<unsigned>(a.unit_count * a.kv.kv_heads)), dim3(kPrefillThreads),
                sizeof(typename PrefillBlock<N, kDims, kPairs, kKeys, kStages>::Room), stream, a);
}

template <typename N>
MoestroCudaResult prefill_of(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  if (a.kv.head_dim <= 64) return launch_prefill<N, 64>(a, stream);
  if (a.kv.head_dim <= 96) return launch_prefill<N, 96>(a, stream);
  if (a.kv.head_dim <= 128) return launch_prefill<N, 128>(a, stream);
  return a.kv.head_dim <= 192 ? launch_prefill<N, 192>(a, stream) : launch_prefill<N, 256>(a, stream);
}

// One source each, so that they compile in parallel.
MoestroCudaResult prefill_f32(const MoestroCudaAttention& a, MoestroCudaStream stream);
MoestroCudaResult prefill_bf16(const MoestroCudaAttention& a, MoestroCudaStream stream);
MoestroCudaResult prefill_f16(const MoestroCudaAttention& a, MoestroCudaStream stream);
MoestroCudaResult prefill_int8(const MoestroCudaAttention& a, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

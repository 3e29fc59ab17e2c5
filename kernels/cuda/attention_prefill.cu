// Attention of many queries on tensor cores (FlashAttention-2: Dao 2023): a block takes 64 (query, head) pairs of a
// sequence that share a KV head and visits their keys 64 at a time, keeping of each pair the largest score, the sum of
// exponentials and the weighted values. Queries, keys, values and weights are rounded to bf16 for the products; scores,
// sums and what is kept are f32.

#include "kernels/cuda/attention_kernel.h"
#include "kernels/cuda/attention_prefill.h"
#include "kernels/cuda/mma.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kPairs = MOESTRO_CUDA_PREFILL_PAIRS, kKeys = 64, kThreads = 128;
static_assert(kPairs == kThreads / kWarp * 16, "16 pairs a warp");

__device__ uint32_t packed(float low, float high) {
  return static_cast<uint32_t>(bf16_bits(low)) | static_cast<uint32_t>(bf16_bits(high)) << 16;
}

/// kDims: head_dim, filled up with zeros. Rows lie so far apart that a warp's lanes read from different banks.
template <typename N, int kDims>
struct PrefillBlock {
  static constexpr int kSteps = kDims / 16, kOutputs = kDims / 8, kScores = kKeys / 8;

  struct Room {
    uint16_t q[kPairs][kDims + 8];
    uint16_t k[kKeys][kDims + 8];
    uint16_t v[kDims][kKeys + 8];  ///< turned, so that a lane finds two keys side by side
    PairSight sight[kPairs];
  };

  const MoestroCudaAttention& a;
  Room& room;
  const uint32_t* blocks;
  int64_t kv_head;
  int64_t begin = 0, furthest = -1;  ///< of what any pair sees

  // Of the two pairs whose scores this lane has: lane / 4 of its warp's, and 8 further.
  float top[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  ///< of this lane's keys
  float values[kOutputs][4] = {};
  uint32_t q[kSteps][4] = {};
  PairSight mine[2] = {};

  __device__ static int g() { return lane_id() / 4; }
  __device__ static int t() { return lane_id() % 4; }
  __device__ static int pair_of(int half) { return warp_id() * 16 + g() + half * 8; }
  __device__ static uint32_t pair_at(const uint16_t* at) { return load_as<uint32_t>(at); }

  __device__ void begin_with(const MoestroCudaAttentionUnit& unit) {
    if (threadIdx.x < kPairs) room.sight[threadIdx.x] = sight_of(a, unit, kv_head, static_cast<int>(threadIdx.x));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kPairs * kDims; i += kThreads) {
      const int pair = i / kDims, d = i % kDims;
      const bool is = pair < unit.pairs && d < a.kv.head_dim;
      room.q[pair][d] = bf16_bits(is ? a.q[room.sight[pair].row * a.kv.head_dim + d] : 0.0f);
    }
    begin = room.sight[0].begin;  // pairs stand in the order of their positions
    furthest = room.sight[unit.pairs - 1].position;
    __syncthreads();
    for (int half = 0; half < 2; ++half) mine[half] = room.sight[pair_of(half)];
    MOESTRO_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) q[s][i] = pair_at(&room.q[pair_of(i % 2)][s * 16 + i / 2 * 8 + 2 * t()]);
    }
  }

  /// Eight numbers of a row of K or V; zeros where no pair sees it.
  __device__ void load_eight(int64_t position, int d, bool value, float (&to)[8]) const {
    if (position < begin || position > furthest || d >= a.kv.head_dim) return;
    const char* block = static_cast<const char*>(a.kv.data) + a.kv.block_bytes * blocks[position / kTokensOfBlock];
    const int64_t row = ((value ? a.kv.kv_heads : 0) + kv_head) * kTokensOfBlock + position % kTokensOfBlock;
    load8<N>(reinterpret_cast<const typename N::Stored*>(block) + row * a.kv.head_dim + d, to);
    if constexpr (sizeof(typename N::Stored) == 1) {
      const float scale = reinterpret_cast<const float*>(block + a.kv.scales_offset)[row];
      for (int i = 0; i < 8; ++i) to[i] *= scale;
    }
  }

  __device__ void load_keys(int64_t first) {
    for (int i = static_cast<int>(threadIdx.x); i < kKeys * (kDims / 8); i += kThreads) {
      const int key = i / (kDims / 8), d = i % (kDims / 8) * 8;
      float k[8] = {}, v[8] = {};
      load_eight(first + key, d, false, k);
      load_eight(first + key, d, true, v);
      Bytes16 words;
      for (int w = 0; w < 4; ++w) words.words[w] = packed(k[2 * w], k[2 * w + 1]);
      store_as(&room.k[key][d], words);
      for (int e = 0; e < 8; ++e) room.v[d + e][key] = bf16_bits(v[e]);
    }
    __syncthreads();
  }

  /// Scores of this lane's pairs with the keys from `first` on: [8 keys][as multiply_tiles]; minus infinity where not
  /// seen.
  __device__ void score(int64_t first, float (&scores)[kScores][4]) const {
    MOESTRO_UNROLL
    for (int n = 0; n < kScores; ++n) {
      MOESTRO_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        const uint16_t* k = &room.k[n * 8 + g()][s * 16 + 2 * t()];
        const uint32_t b[2] = {pair_at(k), pair_at(k + 8)};
        multiply_tiles(scores[n], q[s], b);
      }
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i)
        scores[n][i] = mine[i / 2].sees(first + n * 8 + 2 * t() + i % 2) ? scores[n][i] * a.kv.scale : -INFINITY;
    }
  }

  /// Scores become weights; what is kept is brought to the new largest score.
  __device__ void weigh(float (&scores)[kScores][4]) {
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      float most = top[half];
      MOESTRO_UNROLL
      for (int n = 0; n < kScores; ++n) most = fmaxf(most, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kWholeWarp, most, 2));
      const float shift = most == -INFINITY ? 0.0f : most;  // nothing seen yet
      const float before = expf(top[half] - shift);
      top[half] = most;
      float all = 0.0f;
      MOESTRO_UNROLL
      for (int n = 0; n < kScores; ++n) {
        MOESTRO_UNROLL
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = expf(scores[n][i] - shift);
          all += scores[n][i];
        }
      }
      sum[half] = multiply_add(sum[half], before, all);
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        values[n][2 * half] *= before;
        values[n][2 * half + 1] *= before;
      }
    }
  }

  /// The weights of 16 keys, as they lie in scores, are what the next product takes on its left.
  __device__ void add_values(const float (&weights)[kScores][4]) {
    MOESTRO_UNROLL
    for (int s = 0; s < kKeys / 16; ++s) {
      const uint32_t w[4] = {packed(weights[2 * s][0], weights[2 * s][1]), packed(weights[2 * s][2], weights[2 * s][3]),
                             packed(weights[2 * s + 1][0], weights[2 * s + 1][1]),
                             packed(weights[2 * s + 1][2], weights[2 * s + 1][3])};
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        const uint16_t* v = &room.v[n * 8 + g()][s * 16 + 2 * t()];
        const uint32_t b[2] = {pair_at(v), pair_at(v + 8)};
        multiply_tiles(values[n], w, b);
      }
    }
  }

  __device__ void run() {
    for (int64_t first = begin / kKeys * kKeys; first <= furthest; first += kKeys) {
      load_keys(first);
      float scores[kScores][4] = {};
      score(first, scores);
      weigh(scores);
      add_values(scores);
      __syncthreads();
    }
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(kWholeWarp, sum[half], 1);
      sum[half] += __shfl_xor_sync(kWholeWarp, sum[half], 2);
      if (mine[half].position < 0) continue;
      MOESTRO_UNROLL
      for (int n = 0; n < kOutputs; ++n) {
        MOESTRO_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int d = n * 8 + 2 * t() + i;
          if (d < a.kv.head_dim) a.out[mine[half].row * a.kv.head_dim + d] = values[n][2 * half + i] / sum[half];
        }
      }
    }
  }
};

template <typename N, int kDims>
__global__ void __launch_bounds__(kThreads) prefill_kernel(MoestroCudaAttention a) {
  using Block = PrefillBlock<N, kDims>;
  const MoestroCudaAttentionUnit unit = a.units[blockIdx.x];
  Block block{a, *reinterpret_cast<typename Block::Room*>(shared_memory()),
              a.blocks + a.queries[unit.first_query].first_block, blockIdx.y};
  block.begin_with(unit);
  block.run();
}

template <typename N, int kDims>
MoestroCudaResult launch_prefill(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(a.unit_count), static_cast<unsigned>(a.kv.kv_heads));
  return launch(prefill_kernel<N, kDims>, grid, dim3(kThreads), sizeof(typename PrefillBlock<N, kDims>::Room), stream,
                a);
}

template <typename N>
MoestroCudaResult prefill_of(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return a.kv.head_dim <= 64 ? launch_prefill<N, 64>(a, stream) : launch_prefill<N, 128>(a, stream);
}

}  // namespace

MoestroCudaResult attention_prefill(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  if (a.kv.head_dim > 128 || a.kv.head_dim % 8 != 0 || a.sink_q) return MOESTRO_CUDA_REFUSED;
  switch (a.kv.dtype) {
    case MOESTRO_CUDA_F32: return prefill_of<F32>(a, stream);
    case MOESTRO_CUDA_BF16: return prefill_of<BF16>(a, stream);
    case MOESTRO_CUDA_F16: return prefill_of<F16>(a, stream);
    case MOESTRO_CUDA_INT8: return prefill_of<Int8>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

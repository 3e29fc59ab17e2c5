// Latent attention in f32, absorbed: the scores and sums of up to 8 (query, head) pairs of one sequence over a part of
// its positions. Parts are anchored at position 0. Each of a block's warps takes 32 positions of a part; their results
// are put together in order, and so are the parts, by this block or by merge_latent_parts() with the same fold(). So a
// pair's result depends neither on that, nor on the other pairs, nor on where its prompt was cut.
//
// Lanes have 8 neighbouring numbers of every 256 of a latent, and two of the rotated key. Scores are in units of log 2.

#include "kernels/cuda/latent.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp, kPairs = MOESTRO_CUDA_LATENT_PAIRS;
constexpr int kKeys = 4;  ///< whose products with all pairs are added up over the lanes together
static_assert(kPart == kWarps * kWarp && kKeys * kPairs == kWarp && kTokensOfBlock % kKeys == 0);

/// Latents of up to kEights * 256 numbers.
template <typename N, int kEights>
struct PartBlock {
  using Stored = typename N::Stored;
  static constexpr bool kScaled = sizeof(Stored) == 1;
  static constexpr int kWidth = kEights * kLatentHalfRank;
  static constexpr int kQuads = kPairs * kWidth / 4 / kThreads;  ///< four neighbouring outputs, of a thread

  struct alignas(16) Room {
    float q[kPairs][kWidth + kLatentRope];
    float values[kWarps][kPairs][kWidth];
    float weights[kWarps][kWarp][kPairs];  ///< initially scores; negative: not seen
    Softmax part[kWarps][kPairs];
  };
  static_assert(sizeof(Room) <= kSharedOfEveryCard);

  const MoestroCudaLatentAttention& a;
  Room& room;
  const LatentSpan unit;
  const int rank = static_cast<int>(a.latent.kv_rank), rope = static_cast<int>(a.latent.rope_dim);
  const int warp = warp_id();

  __device__ static int number(int eight) { return (eight * kWarp + lane_id()) * 8; }

  __device__ void load_queries() {
    constexpr int kRow = kWidth + kLatentRope;
    const auto* from = static_cast<const float*>(a.absorbed) + static_cast<int64_t>(unit.first_pair) * kRow;
    float* to = &room.q[0][0];
    for (int i = static_cast<int>(threadIdx.x) * 4; i < unit.pairs * kRow; i += kThreads * 4)
      store_as(to + i, load_as<Bytes16>(from + i));
    for (int i = unit.pairs * kRow + static_cast<int>(threadIdx.x); i < kPairs * kRow; i += kThreads) to[i] = 0.0f;
    __syncthreads();
  }

  /// This lane's numbers of a latent.
  __device__ void load_latent(const Stored* row, int eight, float (&to)[8]) const {
    const int d = number(eight);
    if (rank % 8 == 0 && d < rank) load8<N>(row + d, to);
    else load8_some<N>(row + d, rank - d, to);
  }

  /// Products of four keys with all pairs; unwritten positions are not read.
  __device__ void score_keys(const LatentRows<N>& rows, int slot, int count, float (&dots)[kKeys * kPairs]) const {
    MOESTRO_UNROLL
    for (int eight = 0; eight < kEights; ++eight) {
      float k[kKeys][8] = {};
      MOESTRO_UNROLL
      for (int i = 0; i < kKeys; ++i)
        if (i < count) load_latent(rows.latents + (slot + i) * rank, eight, k[i]);
      MOESTRO_UNROLL
      for (int pair = 0; pair < kPairs; ++pair) {
        float q[8];
        load8<F32>(&room.q[pair][number(eight)], q);
        MOESTRO_UNROLL
        for (int i = 0; i < kKeys; ++i) {
          MOESTRO_UNROLL
          for (int e = 0; e < 8; ++e) dots[i * kPairs + pair] = multiply_add(q[e], k[i][e], dots[i * kPairs + pair]);
        }
      }
    }
    if constexpr (kScaled) {
      MOESTRO_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        const float scale = i < count ? rows.scales[slot + i] : 0.0f;
        MOESTRO_UNROLL
        for (int pair = 0; pair < kPairs; ++pair) dots[i * kPairs + pair] *= scale;
      }
    }
    MOESTRO_UNROLL
    for (int d = lane_id(); d < kLatentRope; d += kWarp) {
      MOESTRO_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        if (d >= rope || i >= count) continue;
        float k = N::value(rows.keys[(slot + i) * rope + d]);
        if constexpr (kScaled) k *= rows.scales[kTokensOfBlock + slot + i];
        MOESTRO_UNROLL
        for (int pair = 0; pair < kPairs; ++pair)
          dots[i * kPairs + pair] = multiply_add(room.q[pair][kWidth + d], k, dots[i * kPairs + pair]);
      }
    }
  }

  /// The warp's 32 scores of each pair, from position `first` on.
  __device__ void score(int first) {
    MOESTRO_NO_UNROLL
    for (int key = 0; key < kWarp; key += kKeys) {
      const int p = first + key, count = at_most(kKeys, unit.last_position + 1 - p);
      float dots[kKeys * kPairs] = {};
      if (count > 0)
        score_keys(LatentRows<N>(a.latent, unit.blocks[p / kTokensOfBlock]), p % kTokensOfBlock, count, dots);
      reduce_scatter<kKeys * kPairs, 1, kWarp / 2>(dots);
      room.weights[warp][key + lane_id() / kPairs][lane_id() % kPairs] = dots[0] * (a.latent.scale * kLog2E);
    }
  }

  /// Scores become weights, a lane for each position.
  __device__ void weigh(int first) {
    MOESTRO_NO_UNROLL
    for (int pair = 0; pair < unit.pairs; ++pair) {
      const bool sees = first + lane_id() <= latent_query(a, unit.first_pair + pair).position;
      float& score = room.weights[warp][lane_id()][pair];
      const float top = warp_max(sees ? score : -INFINITY), weight = sees ? exp2f(score - top) : -1.0f,
                  sum = warp_sum(sees ? weight : 0.0f);
      score = weight;
      if (lane_id() == 0) room.part[warp][pair] = {top, sum};
    }
  }

  /// Leaves the warp's weighted latents in room.values.
  __device__ void add_values(int first) {
    const int count = at_most(kWarp, unit.last_position + 1 - first);
    const bool whole = first + kWarp - 1 <= unit.first_position;
    float sums[kPairs][kEights][8] = {};
    MOESTRO_NO_UNROLL
    for (int key = 0; key < count; ++key) {
      const int p = first + key, slot = p % kTokensOfBlock;
      const LatentRows<N> rows(a.latent, unit.blocks[p / kTokensOfBlock]);
      float v[kEights][8];
      MOESTRO_UNROLL
      for (int eight = 0; eight < kEights; ++eight) load_latent(rows.latents + slot * rank, eight, v[eight]);
      MOESTRO_UNROLL
      for (int pair = 0; pair < kPairs; ++pair) {
        if (pair >= unit.pairs) continue;
        float weight = room.weights[warp][key][pair];
        if (!whole && weight < 0.0f) continue;
        if constexpr (kScaled) weight *= rows.scales[slot];
        MOESTRO_UNROLL
        for (int eight = 0; eight < kEights; ++eight) {
          MOESTRO_UNROLL
          for (int e = 0; e < 8; ++e) sums[pair][eight][e] = multiply_add(weight, v[eight][e], sums[pair][eight][e]);
        }
      }
    }
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      MOESTRO_UNROLL
      for (int eight = 0; eight < kEights; ++eight) {
        MOESTRO_UNROLL
        for (int e = 0; e < 8; e += 4) {
          Bytes16 four;
          MOESTRO_UNROLL
          for (int w = 0; w < 4; ++w) four.words[w] = float_to_bits(sums[pair][eight][e + w]);
          store_as(&room.values[warp][pair][number(eight) + e], four);
        }
      }
    }
  }

  // --- results: four neighbouring numbers of a pair, kQuads times ---

  __device__ static int pair_of(int quad) { return (quad * kThreads + static_cast<int>(threadIdx.x)) / (kWidth / 4); }
  __device__ static int first_of(int quad) {
    return (quad * kThreads + static_cast<int>(threadIdx.x)) % (kWidth / 4) * 4;
  }
  __device__ bool owns(int quad) const { return pair_of(quad) < unit.pairs && first_of(quad) < rank; }

  /// Puts the warps' results together.
  __device__ Softmax part_result(int quad, float (&values)[4]) const {
    const int pair = pair_of(quad);
    Softmax all;
    MOESTRO_UNROLL
    for (int w = 0; w < kWarps; ++w) all.top = fmaxf(all.top, room.part[w][pair].top);
    MOESTRO_UNROLL
    for (int w = 0; w < kWarps; ++w) {
      const Softmax of_warp = room.part[w][pair];
      const float factor = of_warp.sum == 0.0f ? 0.0f : exp2f(of_warp.top - all.top);
      all.sum = multiply_add(of_warp.sum, factor, all.sum);
      const float* from = &room.values[w][pair][first_of(quad)];
      MOESTRO_UNROLL
      for (int e = 0; e < 4; ++e) values[e] = multiply_add(from[e], factor, values[e]);
    }
    return all;
  }

  __device__ void write(float* to, const float (&values)[4], int first) const {
    MOESTRO_UNROLL
    for (int e = 0; e < 4; ++e)
      if (first + e < rank) to[first + e] = values[e];
  }

  /// Leaves the results of its warps in the room.
  __device__ void compute(int part) {
    const int first = part * kPart + warp * kWarp;
    score(first);
    __syncwarp();
    weigh(first);
    __syncwarp();
    add_values(first);
    __syncthreads();
  }

  __device__ void keep(int part) {
    for (int quad = 0; quad < kQuads; ++quad) {
      if (!owns(quad)) continue;
      float values[4] = {};
      const Softmax all = part_result(quad, values);
      const int64_t pair = unit.first_pair + pair_of(quad);
      float* to = a.partial + (pair * a.parts + part) * latent_part_floats(rank);
      if (first_of(quad) == 0) to[0] = all.top, to[1] = all.sum;
      write(to + MOESTRO_CUDA_PARTIAL_HEAD, values, first_of(quad));
    }
  }

  /// One part after another.
  __device__ void run() {
    Softmax seen[kQuads];
    float total[kQuads][4] = {};
    for (int part = 0; part <= unit.last_position / kPart; ++part) {
      compute(part);
      MOESTRO_UNROLL
      for (int quad = 0; quad < kQuads; ++quad) {
        if (!owns(quad)) continue;
        float values[4] = {};
        const Softmax all = part_result(quad, values);
        fold(seen[quad], total[quad], all, values);
      }
      __syncthreads();
    }
    MOESTRO_UNROLL
    for (int quad = 0; quad < kQuads; ++quad) {
      if (!owns(quad)) continue;
      MOESTRO_UNROLL
      for (int e = 0; e < 4; ++e) total[quad][e] /= seen[quad].sum;
      write(a.attended + static_cast<int64_t>(unit.first_pair + pair_of(quad)) * rank, total[quad], first_of(quad));
    }
  }
};

/// A block for each unit, and, where parts are computed in parallel, for each part.
template <typename N, int kEights>
__global__ void __launch_bounds__(kThreads) latent_parts_kernel(MoestroCudaLatentAttention a) {
  using Block = PartBlock<N, kEights>;
  const LatentSpan unit = latent_span(a, blockIdx.x);
  const int part = static_cast<int>(blockIdx.y);
  if (part * kPart > unit.last_position) return;
  Block block{a, *reinterpret_cast<typename Block::Room*>(shared_memory()), unit};
  block.load_queries();
  if (!a.partial) return block.run();
  block.compute(part);
  block.keep(part);
}

template <typename N>
MoestroCudaResult attend(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(a.unit_count), a.partial ? static_cast<unsigned>(a.parts) : 1);
  if (a.latent.kv_rank <= kLatentHalfRank)
    return launch(latent_parts_kernel<N, 1>, grid, dim3(kThreads), sizeof(typename PartBlock<N, 1>::Room), stream, a);
  return launch(latent_parts_kernel<N, 2>, grid, dim3(kThreads), sizeof(typename PartBlock<N, 2>::Room), stream, a);
}

}  // namespace

MoestroCudaResult attend_latent_parts(const MoestroCudaLatentAttention& a, MoestroCudaStream stream) {
  MoestroCudaResult result = MOESTRO_CUDA_REFUSED;
  switch (a.latent.dtype) {
    case MOESTRO_CUDA_F32: result = attend<F32>(a, stream); break;
    case MOESTRO_CUDA_BF16: result = attend<BF16>(a, stream); break;
    case MOESTRO_CUDA_F16: result = attend<F16>(a, stream); break;
    case MOESTRO_CUDA_INT8: result = attend<Int8>(a, stream); break;
    default: break;
  }
  if (result != 0 || !a.partial) return result;
  return merge_latent_parts(a, stream);
}

}  // namespace moestro::kernels::cuda

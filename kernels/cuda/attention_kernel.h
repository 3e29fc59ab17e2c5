#pragma once
// Attention over the paged cache. A block computes up to kPairs (query, head) pairs of one sequence and KV head, which
// share the loads of keys and values. Positions are visited in parts of kPart, anchored at 0. A part gives scores,
// their maximum m, the sum l of their exponentials, and the weighted values. Parts are merged in order, by this block
// or, if they were computed in parallel, by a second kernel with the same merge(). So a query's result does not depend
// on that, on the other pairs, or on where its prompt was cut.
//
// Eight lanes share a key: each loads 8 of its elements at once, so that a warp reads four whole rows. (Flash decoding:
// Dao et al. 2023.)

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

inline constexpr int kAttentionThreads = 128;
inline constexpr int kKeyLanes = 8;                              // that share a key
inline constexpr int kKeysAtOnce = kAttentionThreads / kKeyLanes;
inline constexpr int kAttentionWarps = kAttentionThreads / kWarp;
inline constexpr int kPart = MOESTRO_CUDA_ATTENTION_PART;
inline constexpr int64_t kTokensOfBlock = 16;                    // kKvBlockTokens

/// The positions that a pair sees: those up to its own that are not before `begin`, and sinks.
struct PairSight {
  int64_t position = -1, begin = 0, sinks = 0;
  int64_t row = 0;  ///< row * heads + head: place of its query and its output

  __device__ bool sees(int64_t p) const { return p <= position && (p >= begin || p < sinks); }
  /// Whether it sees any of positions [first, first + kPart).
  __device__ bool sees_part(int64_t first) const {
    return first <= position && (first + kPart > begin || first < sinks);
  }
};

__device__ inline PairSight sight_of(const MoestroCudaAttention& a, const MoestroCudaAttentionUnit& unit,
                                     int64_t kv_head, int pair) {
  if (pair >= unit.pairs) return {};
  const int64_t group = a.kv.heads / a.kv.kv_heads, at = unit.first_pair + pair;
  const MoestroCudaQuery query = a.queries[unit.first_query + at / group];
  PairSight s;
  s.position = query.position;
  s.row = query.row * a.kv.heads + kv_head * group + at % group;
  if (a.kv.window > 0 && s.position >= a.kv.sinks + a.kv.window) {  // AttentionShape::has_gap
    s.begin = s.position - a.kv.window + 1;
    s.sinks = a.kv.sinks;
  }
  return s;
}

/// The last position of the unit's queries, whose positions ascend.
__device__ inline int64_t last_position(const MoestroCudaAttention& a, const MoestroCudaAttentionUnit& unit) {
  return a.queries[unit.first_query + (unit.first_pair + unit.pairs - 1) / (a.kv.heads / a.kv.kv_heads)].position;
}

/// m and l as above; initially minus infinity and 0.
struct Softmax {
  float top = -INFINITY, sum = 0.0f;
};

/// Merges the result so far, and one element of its values, with those of the next part.
__device__ inline void merge(Softmax& seen, float& value, Softmax part, float part_value) {
  if (part.sum == 0.0f) return;  // nothing of it is seen: else the largest score adds 1, or NaN
  if (seen.sum == 0.0f) {
    seen = part;
    value = part_value;
    return;
  }
  const float top = fmaxf(seen.top, part.top), before = expf(seen.top - top), now = expf(part.top - top);
  seen.top = top;
  seen.sum = multiply_add(seen.sum, before, part.sum * now);
  value = multiply_add(value, before, part_value * now);
}

/// The place of a pair's results by part: for each part top, sum, and head_dim values.
__device__ inline float* partial_of(const MoestroCudaAttention& a, int64_t row, int64_t part) {
  return a.partial + (row * a.parts + part) * (a.kv.head_dim + 2);
}

template <typename N, int kElements, int kPairs>
struct AttentionBlock {
  static constexpr int kDims = kElements * kKeyLanes;  ///< head_dim, padded with zeros
  static constexpr int kOwned = (kPairs * kDims + kAttentionThreads - 1) / kAttentionThreads;  ///< outputs of a thread

  /// Shared memory.
  struct Room {
    float q[2][kPairs][kDims];  ///< rotated for other keys, and for sinks
    float weights[kPairs][kPart];  ///< initially scores
    float values[kAttentionWarps][kPairs][kDims];
    Softmax part[kPairs];
    PairSight sight[kPairs];
  };

  const MoestroCudaAttention& a;
  Room& room;
  const uint32_t* blocks;  ///< of the sequence
  int64_t kv_head;
  int64_t furthest = -1;  ///< position that any pair sees

  __device__ void load_queries(const MoestroCudaAttentionUnit& unit) {
    if (threadIdx.x < kPairs) room.sight[threadIdx.x] = sight_of(a, unit, kv_head, static_cast<int>(threadIdx.x));
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kPairs * kDims; i += kAttentionThreads) {
      const int pair = i / kDims, d = i % kDims;
      const bool is = pair < unit.pairs && d < a.kv.head_dim;
      const int64_t at = room.sight[pair].row * a.kv.head_dim + d;
      room.q[0][pair][d] = is ? a.q[at] : 0.0f;
      room.q[1][pair][d] = is && a.sink_q ? a.sink_q[at] : 0.0f;
    }
    for (int pair = 0; pair < kPairs; ++pair) furthest = at_least(furthest, room.sight[pair].position);
    __syncthreads();
  }

  __device__ bool any_sees(int64_t position) const {
    bool any = false;
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) any = any || room.sight[pair].sees(position);
    return any;
  }
  __device__ bool any_sees_part(int64_t first) const {
    bool any = false;
    for (int pair = 0; pair < kPairs; ++pair) any = any || room.sight[pair].sees_part(first);
    return any;
  }

  /// This lane's elements of K or V at `position`, and the row's scale.
  __device__ float load_row(int64_t position, bool value, float (&to)[kElements]) const {
    const char* block = static_cast<const char*>(a.kv.data) + a.kv.block_bytes * blocks[position / kTokensOfBlock];
    const int64_t row = ((value ? a.kv.kv_heads : 0) + kv_head) * kTokensOfBlock + position % kTokensOfBlock;
    const auto* numbers = reinterpret_cast<const typename N::Stored*>(block) + row * a.kv.head_dim;
    const bool aligned = a.kv.head_dim % 8 == 0;
    MOESTRO_UNROLL
    for (int c = 0; c < kElements / 8; ++c) {
      const int64_t d = first_of(c);
      float eight[8];
      if (aligned && d < a.kv.head_dim) load8<N>(numbers + d, eight);
      else load8_some<N>(numbers + d, a.kv.head_dim - d, eight);
      MOESTRO_UNROLL
      for (int i = 0; i < 8; ++i) to[c * 8 + i] = eight[i];
    }
    return sizeof(typename N::Stored) == 1 ? reinterpret_cast<const float*>(block + a.kv.scales_offset)[row] : 1.0f;
  }
  /// Element of the head that is this lane's c-th eight's first.
  __device__ static int first_of(int c) { return (c * kKeyLanes + static_cast<int>(threadIdx.x) % kKeyLanes) * 8; }

  /// Calls `visit` with each key of the part that belongs to this lane and its group of eight. Stops when no lane of
  /// the warp has a visible key.
  template <typename Visit>
  __device__ void each_key(int64_t first, Visit visit) {
    for (int key = static_cast<int>(threadIdx.x) / kKeyLanes; key < kPart; key += kKeysAtOnce) {
      const int of_warp = key - key % (kWarp / kKeyLanes);
      if (first + of_warp > furthest) break;
      visit(key, first + key);
    }
  }

  __device__ void score_keys(int64_t first) {
    each_key(first, [&](int key, int64_t position) {
      float k[kElements] = {};
      float scale = a.kv.scale;
      if (any_sees(position)) scale *= load_row(position, false, k);
      float dots[kPairs] = {};
      MOESTRO_UNROLL
      for (int pair = 0; pair < kPairs; ++pair) {
        const float* q = room.q[position < room.sight[pair].sinks ? 1 : 0][pair];
        MOESTRO_UNROLL
        for (int e = 0; e < kElements; ++e) dots[pair] = multiply_add(q[first_of(e / 8) + e % 8], k[e], dots[pair]);
      }
      const int pair = sum_dots(dots);
      if (pair >= 0) room.weights[pair][key] = dots[0] * scale;
    });
    __syncthreads();
  }

  /// dots[0]: the whole dot product of the pair that is returned; -1 in lanes that need not write it. Both ways add the
  /// lanes in one order.
  __device__ static int sum_dots(float (&dots)[kPairs]) {
    static_assert(kPairs == 1 || kPairs == 4);
    if constexpr (kPairs == 1) {
      dots[0] = warp_sum<kKeyLanes>(dots[0]);
      return lane_id() % kKeyLanes == 0 ? 0 : -1;
    } else {
      halve_sums<4>(dots, 4);
      halve_sums<2>(dots, 2);
      dots[0] += __shfl_xor_sync(kWholeWarp, dots[0], 1);
      return lane_id() % 2 == 0 ? lane_id() % kKeyLanes / 2 : -1;
    }
  }

  /// Turns scores into weights; one warp for each pair.
  __device__ void weigh(int64_t first) {
    for (int pair = warp_id(); pair < kPairs; pair += kAttentionWarps) {
      Softmax s;
      for (int key = lane_id(); key < kPart; key += kWarp)
        if (room.sight[pair].sees(first + key)) s.top = fmaxf(s.top, room.weights[pair][key]);
      s.top = warp_max(s.top);
      for (int key = lane_id(); key < kPart; key += kWarp) {
        if (!room.sight[pair].sees(first + key)) continue;
        const float weight = expf(room.weights[pair][key] - s.top);
        room.weights[pair][key] = weight;
        s.sum += weight;
      }
      s.sum = warp_sum(s.sum);
      if (lane_id() == 0) room.part[pair] = s;
    }
    __syncthreads();
  }

  __device__ void add_values(int64_t first) {
    float sums[kPairs][kElements] = {};
    each_key(first, [&](int key, int64_t position) {
      if (!any_sees(position)) return;
      float v[kElements];
      const float scale = load_row(position, true, v);
      MOESTRO_UNROLL
      for (int pair = 0; pair < kPairs; ++pair) {
        if (!room.sight[pair].sees(position)) continue;
        const float weight = room.weights[pair][key] * scale;
        MOESTRO_UNROLL
        for (int e = 0; e < kElements; ++e) sums[pair][e] = multiply_add(weight, v[e], sums[pair][e]);
      }
    });
    MOESTRO_UNROLL
    for (int pair = 0; pair < kPairs; ++pair) {
      halve_sums<kElements>(sums[pair], kKeyLanes);
      halve_sums<kElements / 2>(sums[pair], 2 * kKeyLanes);
      const int kept = lane_id() / kKeyLanes % 2 * (kElements / 2) + lane_id() / kKeyLanes / 2 * (kElements / 4);
      MOESTRO_UNROLL
      for (int i = 0; i < kElements / 4; ++i)
        room.values[warp_id()][pair][first_of((kept + i) / 8) + (kept + i) % 8] = sums[pair][i];
    }
    __syncthreads();
  }

  __device__ void run(int64_t first_part, int64_t parts) {
    Softmax seen[kOwned];
    float values[kOwned] = {};
    for (int64_t part = first_part; part < first_part + parts && part * kPart <= furthest; ++part) {
      if (!any_sees_part(part * kPart)) continue;
      score_keys(part * kPart);
      weigh(part * kPart);
      add_values(part * kPart);
      MOESTRO_UNROLL
      for (int i = 0; i < kOwned; ++i) take(i, seen[i], values[i], part);
      __syncthreads();
    }
    if (a.partial) return;
    MOESTRO_UNROLL
    for (int i = 0; i < kOwned; ++i)
      if (const int pair = owned(i) / kDims, d = owned(i) % kDims; is_output(pair, d))
        a.out[room.sight[pair].row * a.kv.head_dim + d] = values[i] / seen[i].sum;
  }

  __device__ static int owned(int i) { return static_cast<int>(threadIdx.x) + i * kAttentionThreads; }
  __device__ bool is_output(int pair, int d) const {
    return pair < kPairs && d < a.kv.head_dim && room.sight[pair].position >= 0;
  }

  /// Merges the warps' results of this part into the result so far, or writes them for the second kernel.
  __device__ void take(int i, Softmax& seen, float& value, int64_t part) {
    const int pair = owned(i) / kDims, d = owned(i) % kDims;
    if (!is_output(pair, d)) return;
    float sum = 0.0f;
    MOESTRO_UNROLL
    for (int w = 0; w < kAttentionWarps; ++w) sum += room.values[w][pair][d];
    if (!a.partial) return merge(seen, value, room.part[pair], sum);
    float* to = partial_of(a, room.sight[pair].row, part);
    if (d == 0) {
      to[0] = room.part[pair].top;
      to[1] = room.part[pair].sum;
    }
    to[2 + d] = sum;
  }
};

template <typename N, int kElements, int kPairs>
__global__ void __launch_bounds__(kAttentionThreads) attention_kernel(MoestroCudaAttention a, int64_t parts) {
  using Block = AttentionBlock<N, kElements, kPairs>;
  const MoestroCudaAttentionUnit unit = a.units[blockIdx.x];
  const int64_t first = static_cast<int64_t>(blockIdx.z) * parts;
  if (first * kPart > last_position(a, unit)) return;
  Block block{a, *reinterpret_cast<typename Block::Room*>(shared_memory()),
              a.blocks + a.queries[unit.first_query].first_block, blockIdx.y};
  block.load_queries(unit);
  block.run(first, parts);
}

template <typename N, int kElements, int kPairs>
MoestroCudaResult launch_attention(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  const dim3 grid(static_cast<unsigned>(a.unit_count), static_cast<unsigned>(a.kv.kv_heads),
                  a.partial ? static_cast<unsigned>(a.parts) : 1u);
  return launch(attention_kernel<N, kElements, kPairs>, grid, dim3(kAttentionThreads),
                sizeof(typename AttentionBlock<N, kElements, kPairs>::Room), stream, a,
                a.partial ? int64_t{1} : a.parts);
}

template <typename N, int kPairs>
MoestroCudaResult attention_of_dims(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  if (a.kv.head_dim <= 64) return launch_attention<N, 8, kPairs>(a, stream);
  if (a.kv.head_dim <= 128) return launch_attention<N, 16, kPairs>(a, stream);
  return launch_attention<N, 32, kPairs>(a, stream);
}

/// `single`: every unit has one pair.
template <typename N>
MoestroCudaResult attention_of(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream) {
  return single ? attention_of_dims<N, 1>(a, stream) : attention_of_dims<N, MOESTRO_CUDA_ATTENTION_PAIRS>(a, stream);
}

// One source each, so that they compile in parallel.
MoestroCudaResult attention_f32(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream);
MoestroCudaResult attention_bf16(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream);
MoestroCudaResult attention_f16(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream);
MoestroCudaResult attention_int8(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

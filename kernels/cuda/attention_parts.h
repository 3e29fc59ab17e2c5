#pragma once
// What kernels of attention have in common: which positions a (query, head) pair sees, and how the results of parts of
// the positions are put together.

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda {

inline constexpr int kPart = MOESTRO_CUDA_ATTENTION_PART;
inline constexpr int kTokensOfBlock = 16;                  // kKvBlockTokens
inline constexpr float kLog2E = 1.4426950408889634f;

/// The positions that a pair sees: those up to its own that are not before `begin`, and sinks.
struct PairSight {
  int position = -1, begin = 0, sinks = 0;

  __device__ bool sees(int p) const { return p <= position && (p >= begin || p < sinks); }
};

__device__ inline PairSight sight_at(const MoestroCudaAttention& a, int position) {
  PairSight s;
  s.position = position;
  if (a.kv.window > 0 && position >= a.kv.sinks + a.kv.window) {  // AttentionShape::has_gap
    s.begin = position - static_cast<int>(a.kv.window) + 1;
    s.sinks = static_cast<int>(a.kv.sinks);
  }
  return s;
}

/// Heads that share a KV head. (A division of 64 bits would be a hundred instructions.)
__device__ inline int group_of(const MoestroCudaAttention& a) {
  return static_cast<int>(a.kv.heads) / static_cast<int>(a.kv.kv_heads);
}
__device__ inline MoestroCudaQuery query_of(const MoestroCudaAttention& a, const MoestroCudaAttentionUnit& unit,
                                            int pair) {
  return a.queries[unit.first_query + (unit.first_pair + pair) / group_of(a)];
}
/// row * heads + head: place of a pair's query and output.
__device__ inline int64_t row_of(const MoestroCudaAttention& a, const MoestroCudaAttentionUnit& unit, int kv_head,
                                 int pair) {
  const int group = group_of(a);
  return query_of(a, unit, pair).row * a.kv.heads + kv_head * group + (unit.first_pair + pair) % group;
}

/// The parts that are seen, in order: those of the sinks, then those from the window's begin on.
struct SeenParts {
  int sunk, begin, count;

  __device__ int part(int i) const { return i < sunk ? i : begin + i - sunk; }
};
__device__ inline SeenParts seen_parts(int begin, int sinks, int position) {
  SeenParts p;
  p.begin = begin / kPart;
  p.sunk = at_most((sinks + kPart - 1) / kPart, p.begin);
  p.count = p.sunk + position / kPart - p.begin + 1;
  return p;
}

/// m and l as above; initially minus infinity and 0.
struct Softmax {
  float top = -INFINITY, sum = 0.0f;
};

/// What the result so far and a part's are multiplied with when they are put together.
struct Factors {
  float before, now;
};
__device__ inline Factors factors_of(float seen_top, float part_top) {
  const float top = fmaxf(seen_top, part_top);
  return {exp2f(seen_top - top), exp2f(part_top - top)};
}
/// Adds a part to the result so far. The largest score of a part of which anything is seen adds 1 to its sum, or NaN.
template <int kCount>
__device__ inline void fold(Softmax& seen, float (&values)[kCount], Softmax part, const float (&part_values)[kCount]) {
  if (part.sum == 0.0f) return;
  const Factors f = factors_of(seen.top, part.top);
  seen.top = fmaxf(seen.top, part.top);
  seen.sum = multiply_add(seen.sum, f.before, part.sum * f.now);
  MOESTRO_UNROLL
  for (int i = 0; i < kCount; ++i) values[i] = multiply_add(values[i], f.before, part_values[i] * f.now);
}
/// The logit of a head that has no value.
template <int kCount>
__device__ inline void fold_logit(const MoestroCudaAttention& a, int64_t row, Softmax& seen, float (&values)[kCount]) {
  if (a.sink_logits == nullptr) return;
  const float none[kCount] = {};
  fold(seen, values, {a.sink_logits[row % a.kv.heads] * kLog2E, 1.0f}, none);
}

/// The place of a pair's results by part: for each part top, sum, two unused, and head_dim values.
__device__ inline float* partial_of(const MoestroCudaAttention& a, int64_t row, int64_t part) {
  return a.partial + (row * a.parts + part) * (a.kv.head_dim + MOESTRO_CUDA_PARTIAL_HEAD);
}

}  // namespace moestro::kernels::cuda

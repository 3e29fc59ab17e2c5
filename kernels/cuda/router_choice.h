#pragma once
// A router's choice for one token, by a warp, with scores in shared memory. Comparisons go through keys (rank_key.h):
// so ids are distinct and in range whatever the logits.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/rank_key.h"

namespace moestro::kernels::cuda {

/// Shared memory of one warp.
struct ChoiceRoom {
  float *scores, *choice, *rates;
};
__host__ __device__ inline int64_t choice_floats(const MoestroCudaRouter& a) { return 2 * a.experts + a.groups; }

/// The scores, not yet divided by what is returned; NaN where a logit is.
__device__ inline float score_experts(const MoestroCudaRouter& a, const float* logits, float* scores) {
  float top = -INFINITY;
  for (int64_t e = lane_id(); e < a.experts; e += kWarp) top = fmaxf(top, logits[e]);
  top = warp_max(top);
  float sum = 0.0f;
  for (int64_t e = lane_id(); e < a.experts; e += kWarp) {
    scores[e] = a.scores == MOESTRO_CUDA_SIGMOID ? 1.0f / (1.0f + expf(-logits[e])) : expf(logits[e] - top);
    sum += scores[e];
  }
  sum = warp_sum(sum);
  return a.scores == MOESTRO_CUDA_SIGMOID && !isnan(sum) ? 1.0f : sum;
}

/// Of a group the sum of its best experts.
__device__ inline float rate_group(const MoestroCudaRouter& a, const float* choice, int64_t group) {
  const int64_t width = a.experts / a.groups, first = group * width, count = at_most(width, a.group_best);
  RankKey last = ~RankKey{0};
  float sum = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    RankKey best = 0;
    for (int64_t e = first; e < first + width; ++e) {
      const RankKey key = key_of(choice[e], e);
      if (key < last) best = at_least(best, key);
    }
    sum += choice[id_of(best)];
    last = best;
  }
  return sum;
}

/// A rate of NaN is neither better nor worse than another: more groups may then be kept, never fewer.
__device__ inline bool is_kept(const MoestroCudaRouter& a, const float* rates, int64_t group) {
  int64_t better = 0;
  for (int64_t other = 0; other < a.groups; ++other)
    better += rates[other] > rates[group] || (rates[other] == rates[group] && other < group) ? 1 : 0;
  return better < a.groups_kept;
}

/// The best of the kept groups' experts whose key is below `last`, in every lane.
__device__ inline RankKey best_below(const MoestroCudaRouter& a, const ChoiceRoom& room, RankKey last) {
  const int64_t width = a.experts / a.groups;
  RankKey best = 0;
  for (int64_t e = lane_id(); e < a.experts; e += kWarp) {
    if (a.groups > 1 && room.rates[e / width] == 0.0f) continue;
    const RankKey key = key_of(room.choice[e], e);
    if (key < last) best = at_least(best, key);
  }
  return warp_best(best);
}

__device__ inline void choose_groups(const MoestroCudaRouter& a, const ChoiceRoom& room) {
  for (int64_t g = lane_id(); g < a.groups; g += kWarp) room.rates[g] = rate_group(a, room.choice, g);
  __syncwarp();
  // Each lane's answers first, then all are written: is_kept reads every rate. Bit by bit, for there may be more groups
  // than lanes.
  uint32_t kept = 0;
  int bit = 0;
  for (int64_t g = lane_id(); g < a.groups; g += kWarp, ++bit)
    kept |= static_cast<uint32_t>(is_kept(a, room.rates, g)) << bit;
  __syncwarp();
  bit = 0;
  for (int64_t g = lane_id(); g < a.groups; g += kWarp, ++bit) room.rates[g] = static_cast<float>(kept >> bit & 1u);
  __syncwarp();
}

/// Of SparseMixer: the best expert but `taken`, and its weight: its share among those that are near it.
struct MixedExpert {
  int64_t id;
  float weight;
};
__device__ inline MixedExpert mix_sparsely(const MoestroCudaRouter& a, const float* logits, int64_t taken) {
  RankKey best = 0;
  for (int64_t e = lane_id(); e < a.experts; e += kWarp)
    if (e != taken) best = at_least(best, key_of(logits[e], e));
  const int64_t id = id_of(warp_best(best));
  const float top = logits[id];
  float sum = 0.0f;
  for (int64_t e = lane_id(); e < a.experts; e += kWarp) {
    const bool is_far = (top - logits[e]) / fmaxf(fabsf(logits[e]), top) > 2.0f * a.jitter;
    if (e != taken && !is_far) sum += expf(logits[e] - top);
  }
  return {id, 1.0f / warp_sum(sum)};
}

__device__ inline void choose_two_sparsely(const MoestroCudaRouter& a, int64_t t, const float* logits) {
  int64_t taken = -1;
  for (int64_t i = 0; i < 2; ++i) {
    const MixedExpert mixed = mix_sparsely(a, logits, taken);
    taken = mixed.id;
    if (lane_id() != 0) continue;
    a.ids[t * 2 + i] = static_cast<int32_t>(mixed.id);
    a.weights[t * 2 + i] = mixed.weight;
  }
}

/// Token t's experts and their weights, from its logits. `floats`: choice_floats() of shared memory.
__device__ inline void choose_experts(const MoestroCudaRouter& a, int64_t t, const float* logits, float* floats) {
  if (a.scores == MOESTRO_CUDA_SPARSE_MIXER) return choose_two_sparsely(a, t, logits);
  const ChoiceRoom room{floats, floats + a.experts, floats + 2 * a.experts};
  // A sigmoid rounds large logits to 1, and its choice would be the first of them.
  const bool by_logit = a.scores == MOESTRO_CUDA_SIGMOID && !a.bias && a.groups == 1;
  const float unit = score_experts(a, logits, room.scores);
  for (int64_t e = lane_id(); e < a.experts; e += kWarp)
    room.choice[e] = a.bias ? room.scores[e] / unit + a.bias[e] : by_logit ? logits[e] : room.scores[e];
  __syncwarp();
  if (a.groups > 1) choose_groups(a, room);
  int32_t* ids = a.ids + t * a.top_k;
  float* weights = a.weights + t * a.top_k;
  RankKey last = ~RankKey{0};
  float chosen = 0.0f;
  int64_t own = 0;  // of lane i, the expert of rank i, and of the last rank with that remainder
  for (int64_t i = 0; i < a.top_k; ++i) {
    last = best_below(a, room, last);
    chosen += room.scores[id_of(last)];
    if (lane_id() == i % kWarp) ids[i] = static_cast<int32_t>(own = id_of(last));
  }
  const float divisor = a.normalise && !isnan(unit) ? chosen : unit;
  for (int64_t i = lane_id(); i < a.top_k; i += kWarp) {
    const int64_t expert = a.top_k <= kWarp ? own : ids[i];
    weights[i] = room.scores[expert] / divisor * a.scale;
  }
}

}  // namespace moestro::kernels::cuda

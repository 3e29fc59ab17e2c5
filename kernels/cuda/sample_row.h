#pragma once
// What the kernels that draw tokens share: a row's slices, its weights and its workspace. A slice is what one block
// reads of a row.

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/rank_key.h"

namespace moestro::kernels::cuda::drawing {

constexpr unsigned kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kOfThread = 16;  ///< logits of a slice
constexpr int64_t kSlice = int64_t{kThreads} * kOfThread;
constexpr int kSlicesMax = 256;
constexpr int64_t kVocabularyMax = kSlice * kSlicesMax;
constexpr int kBinBits = 10, kBins = 1 << kBinBits;
constexpr int64_t kFew = 8192;  ///< candidates that are listed; more are looked up in the whole row

/// A weight in steps of 2^-44; those of kVocabularyMax candidates do not overflow. Integers have the same sum in any
/// order.
using Fixed = unsigned long long;

/// To the nearest step, a half up. `weight` is in [0, 1]. Integers throughout: many cards have few units for f64.
__device__ inline Fixed fixed_of(float weight) {
  const uint32_t bits = float_to_bits(weight);
  const Fixed digits = (bits & 0x7fffffu) | 0x800000u;
  const int right = 106 - static_cast<int>(bits >> 23);
  if (right <= 0) return digits << -right;
  return right < 25 ? (digits + (Fixed{1} << (right - 1))) >> right : 0;
}

/// Workspace of one row.
struct RowRoom {
  RankKey best[kSlicesMax];  ///< of each slice; 0: some logit of it is not finite
  Fixed sums[kSlicesMax];    ///< weights of a slice that can be drawn, where they are too many for a list
  Fixed weights[kBins];      ///< of candidates by how far they are from the best
  uint32_t counts[kBins];
  uint32_t few_count, is_wide;  ///< is_wide: the slices' sums of candidates from `least` on are still to be made
  RankKey least;
  RankKey few[kFew];  ///< the list, in any order
};
static_assert(sizeof(RowRoom) == MOESTRO_CUDA_SAMPLE_ROW_BYTES);

/// Which candidates can be drawn, before min_p.
enum class Way { kBest, kAll, kByCount, kByWeight };

__device__ inline Way way_of(const MoestroCudaSampling& how, int64_t vocabulary) {
  if (!(how.temperature > 0.0f) || how.top_k == 1) return Way::kBest;
  if (how.top_k > 0 && how.top_k < vocabulary) return Way::kByCount;
  return how.top_p < 1.0f ? Way::kByWeight : Way::kAll;
}

constexpr float kFactorMax = 1e30f;  // as the host's sampler

struct Row {
  const float* logits;
  int64_t vocabulary;
  float top, factor;  ///< factor: 1 / temperature, within bounds

  __device__ float weight(float logit) const { return exponential(logit, top, factor); }
  __device__ float weight_of(RankKey key) const { return weight(value_of(key)); }
  /// Never falls from a logit to a lower one. kBins: the weight is 0. Bins are narrow near the best, where a high
  /// temperature puts all, and wider where a low one leaves little.
  __device__ int bin(float logit) const {
    constexpr float kNear = 8.0f, kFurthest = 32.0f;  // e^-32 is less than half a step
    constexpr int kNearBins = kBins / 4 * 3;
    const float distance = (top - logit) * factor;
    if (!(distance < kFurthest)) return kBins;
    if (distance < kNear) return static_cast<int>(distance * (kNearBins / kNear));
    return kNearBins + at_most(static_cast<int>((distance - kNear) * ((kBins - kNearBins) / (kFurthest - kNear))),
                               kBins - kNearBins - 1);
  }
};

__device__ inline Row row_of(const MoestroCudaSample& a, int64_t row, RankKey best, const MoestroCudaSampling& how) {
  return {a.logits + row * a.vocabulary, a.vocabulary, value_of(best), fminf(1.0f / how.temperature, kFactorMax)};
}

/// This thread's logits of a slice: groups of four neighbours, kThreads groups apart.
struct SliceOfThread {
  float logits[kOfThread];

  __device__ static int64_t id(int64_t slice, int i) {
    return slice * kSlice + (int64_t{i / 4} * kThreads + threadIdx.x) * 4 + i % 4;
  }
  /// Those behind the row are NaN.
  __device__ void load(const float* row, int64_t vocabulary, int64_t slice) {
    // A row may begin anywhere if the vocabulary is odd.
    const bool aligned = reinterpret_cast<uintptr_t>(row) % sizeof(Bytes16) == 0;
    MOESTRO_UNROLL
    for (int i = 0; i < kOfThread; i += 4) {
      const int64_t first = id(slice, i);
      if (aligned && first + 4 <= vocabulary) {
        const Bytes16 four = load_as<Bytes16>(row + first);
        for (int k = 0; k < 4; ++k) logits[i + k] = bits_to_float(four.words[k]);
      } else {
        for (int k = 0; k < 4; ++k) logits[i + k] = first + k < vocabulary ? row[first + k] : NAN;
      }
    }
  }
};

/// The highest of the keys in every thread; 0 where any thread's is 0. `room`: of kWarps keys, free after the next
/// barrier.
__device__ inline RankKey block_best(RankKey key, RankKey* room) {
  const uint32_t none = __ballot_sync(kWholeWarp, key == 0);
  key = none != 0 ? 0 : warp_best(key);
  if (lane_id() == 0) room[warp_id()] = key;
  __syncthreads();
  RankKey best = room[0];
  bool any = best == 0;
  for (int w = 1; w < static_cast<int>(blockDim.x) / kWarp; ++w) {
    any = any || room[w] == 0;
    best = at_least(best, room[w]);
  }
  return any ? 0 : best;
}

/// The row's best candidate, from its slices'. By every warp for itself, without a barrier.
__device__ inline RankKey row_best(const RowRoom& of, int64_t slices) {
  RankKey best = of.best[0];
  bool none = best == 0;
  for (int64_t i = lane_id(); i < slices; i += kWarp) {
    none = none || of.best[i] == 0;
    best = at_least(best, of.best[i]);
  }
  best = warp_best(best);
  return __ballot_sync(kWholeWarp, none) != 0 ? 0 : best;
}

}  // namespace moestro::kernels::cuda::drawing

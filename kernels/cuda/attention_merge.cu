// Puts together the parts of attention that were computed in parallel. Lanes compute the factors of a part each; only
// the sums follow the parts' order, so that the result is fold()'s, one part after another.

#include "kernels/cuda/attention_merge.h"

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/attention_tasks.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/unroll.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / kWarp;
constexpr int kHead = MOESTRO_CUDA_PARTIAL_HEAD;
/// With more parts a block takes one pair instead of one for each warp.
constexpr int kFewParts = 16;

/// A (query, head) pair whose result is computed.
struct Pair {
  int64_t row;
  SeenParts parts;
};
__device__ Pair pair_of(const MoestroCudaAttention& a, int pair) {
  const MoestroCudaAttentionUnit unit = a.units[blockIdx.x];
  if (pair >= unit.pairs) return {-1, {}};
  const PairSight sight = sight_at(a, query_of(a, unit, pair).position);
  return {row_of(a, unit, static_cast<int>(blockIdx.y), pair),
          seen_parts(sight.begin, sight.sinks, sight.position)};
}

/// Up to 32 parts, one of each lane.
struct Chunk {
  Factors mine;
  float sum;

  /// `seen`: what is before them.
  __device__ Chunk(Softmax part, Softmax& seen) : sum(part.sum) {
    float top = fmaxf(part.top, seen.top);  // of this part and all before it
    MOESTRO_UNROLL
    for (int step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_sync(kWholeWarp, top, lane_id() - step);
      if (lane_id() >= step) top = fmaxf(top, other);
    }
    const float before = __shfl_sync(kWholeWarp, top, lane_id() - 1);
    mine = factors_of(lane_id() == 0 ? seen.top : before, part.top);
    seen.top = __shfl_sync(kWholeWarp, top, kWarp - 1);
  }
  /// Adds the i-th part; of it the lane has these values.
  template <int kCount>
  __device__ void add(int i, Softmax& seen, float (&values)[kCount], const float (&of_part)[kCount]) const {
    const Factors f{__shfl_sync(kWholeWarp, mine.before, i), __shfl_sync(kWholeWarp, mine.now, i)};
    seen.sum = multiply_add(seen.sum, f.before, __shfl_sync(kWholeWarp, sum, i) * f.now);
    MOESTRO_UNROLL
    for (int e = 0; e < kCount; ++e) values[e] = multiply_add(values[e], f.before, of_part[e] * f.now);
  }
};

/// A warp for each pair; a lane has four elements of every 128.
__global__ void __launch_bounds__(kThreads) merge_few_kernel(MoestroCudaAttention a) {
  const auto [row, parts] = pair_of(a, static_cast<int>(blockIdx.z) * kWarps + warp_id());
  if (row < 0) return;
  const int count = uniform(parts.count), dims = static_cast<int>(a.kv.head_dim);
  for (int first = 0; first < dims; first += 4 * kWarp) {
    const int d = first + lane_id() * 4;
    Softmax seen;
    float values[4] = {};
    for (int base = 0; base < count; base += kFewParts) {
      Softmax part;
      if (lane_id() < at_most(kFewParts, count - base)) {
        const float* from = partial_of(a, row, parts.part(base + lane_id()));
        part = {from[0], from[1]};
      }
      float read[kFewParts][4] = {};
      MOESTRO_UNROLL
      for (int i = 0; i < kFewParts; ++i) {
        if (base + i >= count) continue;
        const float* from = partial_of(a, row, parts.part(base + i)) + kHead + d;
        if (dims % 4 == 0 && d < dims) {
          const Bytes16 four = load_as<Bytes16>(from);
          MOESTRO_UNROLL
          for (int e = 0; e < 4; ++e) read[i][e] = bits_to_float(four.words[e]);
        } else if (dims % 4 != 0) {
          MOESTRO_UNROLL
          for (int e = 0; e < 4; ++e) read[i][e] = d + e < dims ? from[e] : 0.0f;
        }
      }
      const Chunk chunk(part, seen);
      MOESTRO_UNROLL
      for (int i = 0; i < kFewParts; ++i)
        if (base + i < count) chunk.add(i, seen, values, read[i]);
    }
    fold_logit(a, row, seen, values);
    MOESTRO_UNROLL
    for (int e = 0; e < 4; ++e)
      if (d + e < dims) a.out[row * dims + d + e] = values[e] / seen.sum;
  }
}

/// A block for each pair; a thread has an element of every 128, at most two. Parts come through shared memory, 32 at a
/// time, with two such chunks on their way. head_dim is a multiple of 4.
constexpr int kStages = 3;
static_assert(MOESTRO_CUDA_HEAD_DIM_MAX <= 2 * kThreads);
__global__ void __launch_bounds__(kThreads) merge_many_kernel(MoestroCudaAttention a) {
  const auto [row, parts] = pair_of(a, static_cast<int>(blockIdx.z));
  if (row < 0) return;
  const int count = uniform(parts.count), dims = static_cast<int>(a.kv.head_dim), stride = dims + kHead,
            thread = static_cast<int>(threadIdx.x);
  auto* room = reinterpret_cast<float*>(shared_memory());
  const auto bring = [&, row = row, parts = parts](int base, int stage) {
    for (int i = warp_id(); i < at_most(kWarp, count - base); i += kWarps) {
      const float* from = partial_of(a, row, parts.part(base + i));
      float* to = room + (stage * kWarp + i) * stride;
      for (int at = lane_id() * 4; at < stride; at += kWarp * 4) copy_async16(to + at, from + at);
    }
    commit_copies();
  };
  Softmax seen;
  float values[2] = {};  // the second of heads that are wider than 128
  for (int i = 0; i < kStages - 1; ++i) bring(i * kWarp, i);
  int stage = 0;
  for (int base = 0; base < count; base += kWarp) {
    wait_copies<kStages - 2>();
    __syncthreads();
    bring(base + (kStages - 1) * kWarp, (stage + kStages - 1) % kStages);
    const float* from = room + stage * kWarp * stride;
    const int here = at_most(kWarp, count - base);
    Softmax part;
    if (lane_id() < here) part = {from[lane_id() * stride], from[lane_id() * stride + 1]};
    const Chunk chunk(part, seen);
    MOESTRO_UNROLL_BY(8)
    for (int i = 0; i < here; ++i) {
      const float* of_part = from + i * stride + kHead;
      const float read[2] = {thread < dims ? of_part[thread] : 0.0f,
                             thread + kThreads < dims ? of_part[thread + kThreads] : 0.0f};
      chunk.add(i, seen, values, read);
    }
    stage = (stage + 1) % kStages;
  }
  wait_copies<0>();
  fold_logit(a, row, seen, values);
  MOESTRO_UNROLL
  for (int e = 0; e < 2; ++e) {
    const int d = thread + e * kThreads;
    if (d < dims) a.out[row * dims + d] = values[e] / seen.sum;
  }
}

}  // namespace

MoestroCudaResult merge_parts(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  const auto units = static_cast<unsigned>(a.unit_count), heads = static_cast<unsigned>(a.kv.kv_heads),
             pairs = static_cast<unsigned>(a.pairs_most);
  if (a.parts <= kFewParts || a.kv.head_dim % 4 != 0)
    return launch(merge_few_kernel, dim3(units, heads, (pairs + kWarps - 1) / kWarps), dim3(kThreads), 0, stream, a);
  const int64_t bytes = kStages * kWarp * (a.kv.head_dim + kHead) * static_cast<int64_t>(sizeof(float));
  return launch(merge_many_kernel, dim3(units, heads, pairs), dim3(kThreads), static_cast<uint64_t>(bytes), stream, a);
}

}  // namespace moestro::kernels::cuda

// Which attention kernel; and the one that puts together parts that were computed in parallel.

#include "kernels/cuda/attention_kernel.h"
#include "kernels/cuda/attention_prefill.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kPartsAtOnce = kWarp;  // one for each lane

/// The results so far of one pair and element. Lanes compute the factors of a part each, as fold() would one after
/// another; only the sums follow the parts' order.
struct Merged {
  Softmax seen;
  float value = 0.0f;

  __device__ void add_parts(Softmax part, const float (&values)[kPartsAtOnce], int count) {
    float top = fmaxf(part.top, seen.top);  // of this part and all before it
    for (int step = 1; step < kWarp; step *= 2) {
      const float other = __shfl_sync(kWholeWarp, top, lane_id() - step);
      if (lane_id() >= step) top = fmaxf(top, other);
    }
    const float before = __shfl_sync(kWholeWarp, top, lane_id() - 1);
    const Factors mine = factors_of(lane_id() == 0 ? seen.top : before, part.top);
    MOESTRO_UNROLL
    for (int i = 0; i < kPartsAtOnce; ++i) {
      const Factors f{__shfl_sync(kWholeWarp, mine.before, i), __shfl_sync(kWholeWarp, mine.now, i)};
      const float sum = __shfl_sync(kWholeWarp, part.sum, i);
      if (i >= count) continue;
      seen.sum = multiply_add(seen.sum, f.before, sum * f.now);
      value = multiply_add(value, f.before, values[i] * f.now);
    }
    seen.top = __shfl_sync(kWholeWarp, top, kWarp - 1);
  }
};

/// A block for each unit, KV head and pair, a thread for each element of its output.
__global__ void __launch_bounds__(kAttentionThreads) merge_parts_kernel(MoestroCudaAttention a) {
  const MoestroCudaAttentionUnit unit = a.units[blockIdx.x];
  const auto pair = static_cast<int>(blockIdx.z);
  if (pair >= unit.pairs) return;
  const PairSight sight = sight_at(a, query_of(a, unit, pair).position);
  const SeenParts parts = seen_parts(sight.begin, sight.sinks, sight.position);
  const int64_t row = row_of(a, unit, static_cast<int>(blockIdx.y), pair);
  for (int64_t first = 0; first < a.kv.head_dim; first += kAttentionThreads) {
    const int64_t d = first + threadIdx.x;
    Merged merged;
    for (int base = 0; base < parts.count; base += kPartsAtOnce) {
      const int count = at_most(kPartsAtOnce, parts.count - base);
      Softmax part;
      if (lane_id() < count) {
        const float* from = partial_of(a, row, parts.part(base + lane_id()));
        part = {from[0], from[1]};
      }
      float values[kPartsAtOnce] = {};
      MOESTRO_UNROLL
      for (int i = 0; i < kPartsAtOnce; ++i)
        if (i < count && d < a.kv.head_dim)
          values[i] = partial_of(a, row, parts.part(base + i))[MOESTRO_CUDA_PARTIAL_HEAD + d];
      merged.add_parts(part, values, count);
    }
    float value[1] = {merged.value};
    fold_logit(a, row, merged.seen, value);
    if (d < a.kv.head_dim) a.out[row * a.kv.head_dim + d] = value[0] / merged.seen.sum;
  }
}

}  // namespace

MoestroCudaResult attention(const MoestroCudaAttention* a, MoestroCudaStream stream) {
  if (a->kv.head_dim > MOESTRO_CUDA_HEAD_DIM_MAX || a->kv.heads % a->kv.kv_heads != 0) return MOESTRO_CUDA_REFUSED;
  if (a->rounded) return attention_prefill(*a, stream);
  if (a->pairs_most > MOESTRO_CUDA_ATTENTION_PAIRS) return MOESTRO_CUDA_REFUSED;
  if (a->partial && a->unit_count > MOESTRO_CUDA_PARALLEL_UNITS) return MOESTRO_CUDA_REFUSED;
  MoestroCudaResult result = MOESTRO_CUDA_REFUSED;
  switch (a->kv.dtype) {
    case MOESTRO_CUDA_F32: result = attention_f32(*a, stream); break;
    case MOESTRO_CUDA_BF16: result = attention_bf16(*a, stream); break;
    case MOESTRO_CUDA_F16: result = attention_f16(*a, stream); break;
    case MOESTRO_CUDA_INT8: result = attention_int8(*a, stream); break;
    default: break;
  }
  if (result != 0 || !a->partial) return result;
  const dim3 grid(static_cast<unsigned>(a->unit_count), static_cast<unsigned>(a->kv.kv_heads),
                  static_cast<unsigned>(a->pairs_most));
  return launch(merge_parts_kernel, grid, dim3(kAttentionThreads), 0, stream, *a);
}

}  // namespace moestro::kernels::cuda

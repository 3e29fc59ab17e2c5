// Which attention kernel; and the one that puts together parts that were computed side by side.

#include "kernels/cuda/attention_kernel.h"
#include "kernels/cuda/attention_prefill.h"

namespace moestro::kernels::cuda {
namespace {

/// A block for each unit and KV head, a thread for each element of its outputs.
__global__ void merge_parts_kernel(MoestroCudaAttention a) {
  const MoestroCudaAttentionUnit unit = a.units[blockIdx.x];
  for (int64_t i = threadIdx.x; i < unit.pairs * a.kv.head_dim; i += blockDim.x) {
    const PairSight sight = sight_of(a, unit, blockIdx.y, static_cast<int>(i / a.kv.head_dim));
    const int64_t d = i % a.kv.head_dim;
    Softmax seen;
    float value = 0.0f;
    for (int64_t part = 0; part * kPart <= sight.position; ++part) {
      if (!sight.sees_part(part * kPart)) continue;
      const float* from = partial_of(a, sight.row, part);
      Softmax next;
      next.top = from[0];
      next.sum = from[1];
      merge(seen, value, next, from[2 + d]);
    }
    a.out[sight.row * a.kv.head_dim + d] = value / seen.sum;
  }
}

}  // namespace

MoestroCudaResult attention(const MoestroCudaAttention* a, MoestroCudaStream stream) {
  if (a->kv.head_dim > MOESTRO_CUDA_HEAD_DIM_MAX || a->kv.heads % a->kv.kv_heads != 0) return MOESTRO_CUDA_REFUSED;
  if (a->rounded) return attention_prefill(*a, stream);
  const bool single = a->pairs_most == 1;
  MoestroCudaResult result = MOESTRO_CUDA_REFUSED;
  switch (a->kv.dtype) {
    case MOESTRO_CUDA_F32: result = attention_f32(*a, single, stream); break;
    case MOESTRO_CUDA_BF16: result = attention_bf16(*a, single, stream); break;
    case MOESTRO_CUDA_F16: result = attention_f16(*a, single, stream); break;
    case MOESTRO_CUDA_INT8: result = attention_int8(*a, single, stream); break;
    default: break;
  }
  if (result != 0 || !a->partial) return result;
  const dim3 grid(static_cast<unsigned>(a->unit_count), static_cast<unsigned>(a->kv.kv_heads));
  return launch(merge_parts_kernel, grid, dim3(kAttentionThreads), 0, stream, *a);
}

}  // namespace moestro::kernels::cuda

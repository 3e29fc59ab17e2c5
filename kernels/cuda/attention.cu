// Which attention kernel.

#include "kernels/cuda/attention_kernel.h"
#include "kernels/cuda/attention_merge.h"
#include "kernels/cuda/attention_prefill.h"

namespace moestro::kernels::cuda {

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
  return merge_parts(*a, stream);
}

}  // namespace moestro::kernels::cuda

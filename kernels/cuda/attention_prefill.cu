#include "kernels/cuda/attention_prefill.h"

#include "kernels/cuda/attention_prefill_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_prefill(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  if (a.kv.head_dim % 8 != 0 || a.sink_q) return MOESTRO_CUDA_REFUSED;
  switch (a.kv.dtype) {
    case MOESTRO_CUDA_F32: return prefill_f32(a, stream);
    case MOESTRO_CUDA_BF16: return prefill_bf16(a, stream);
    case MOESTRO_CUDA_F16: return prefill_f16(a, stream);
    case MOESTRO_CUDA_INT8: return prefill_int8(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

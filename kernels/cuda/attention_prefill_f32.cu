#include "kernels/cuda/attention_prefill_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult prefill_f32(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return prefill_of<F32>(a, stream);
}

}  // namespace moestro::kernels::cuda

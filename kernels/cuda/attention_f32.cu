#include "kernels/cuda/attention_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_f32(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return attention_of<F32>(a, stream);
}

}  // namespace moestro::kernels::cuda

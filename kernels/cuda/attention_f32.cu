#include "kernels/cuda/attention_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_f32(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream) {
  return attention_of<F32>(a, single, stream);
}

}  // namespace moestro::kernels::cuda

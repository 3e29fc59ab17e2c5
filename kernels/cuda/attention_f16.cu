#include "kernels/cuda/attention_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_f16(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return attention_of<F16>(a, stream);
}

}  // namespace moestro::kernels::cuda

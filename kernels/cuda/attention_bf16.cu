#include "kernels/cuda/attention_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_bf16(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return attention_of<BF16>(a, stream);
}

}  // namespace moestro::kernels::cuda

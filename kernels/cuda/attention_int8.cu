#include "kernels/cuda/attention_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_int8(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return attention_of<Int8>(a, stream);
}

}  // namespace moestro::kernels::cuda

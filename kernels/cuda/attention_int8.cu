#include "kernels/cuda/attention_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult attention_int8(const MoestroCudaAttention& a, bool single, MoestroCudaStream stream) {
  return attention_of<Int8>(a, single, stream);
}

}  // namespace moestro::kernels::cuda

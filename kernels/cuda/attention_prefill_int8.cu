#include "kernels/cuda/attention_prefill_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult prefill_int8(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return prefill_of<Int8>(a, stream);
}

}  // namespace moestro::kernels::cuda

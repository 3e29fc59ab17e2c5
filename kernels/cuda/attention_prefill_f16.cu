#include "kernels/cuda/attention_prefill_kernel.h"

namespace moestro::kernels::cuda {

MoestroCudaResult prefill_f16(const MoestroCudaAttention& a, MoestroCudaStream stream) {
  return prefill_of<F16>(a, stream);
}

}  // namespace moestro::kernels::cuda

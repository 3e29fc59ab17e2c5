#pragma once

#include "kernels/cuda/op_abi.h"

namespace moestro::kernels::cuda {

/// `attention` on tensor cores. Refused where there are sinks, and for heads wider than 128 or not of whole eights.
MoestroCudaResult attention_prefill(const MoestroCudaAttention& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

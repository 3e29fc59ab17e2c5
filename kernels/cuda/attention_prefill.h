#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// `attention` on tensor cores. Refused with sinks, and for heads that are wider than 128 or not a multiple of 8.
MoestroCudaResult attention_prefill(const MoestroCudaAttention& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

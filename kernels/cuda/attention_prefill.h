#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// `attention` on tensor cores. Refused with sink_q, and for heads whose width is not a multiple of 8.
MoestroCudaResult attention_prefill(const MoestroCudaAttention& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

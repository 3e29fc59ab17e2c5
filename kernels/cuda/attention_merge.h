#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// Puts together parts that were computed in parallel.
MoestroCudaResult merge_parts(const MoestroCudaAttention& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// `experts` and `matmul` on tensor cores. Refused for weights of f32.
MoestroCudaResult experts_many(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_many(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// `experts` and `matmul` in f32, for rows of whole slots (few_products.h). Other shapes are refused.
MoestroCudaResult experts_few(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_few(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

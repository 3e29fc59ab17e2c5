#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// experts_many and matmul_many with bf16 weights on Hopper. MOESTRO_CUDA_REFUSED: the device is not one, or other
/// kernels suit the arguments better; nothing was queued.
MoestroCudaResult experts_hopper(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_hopper(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

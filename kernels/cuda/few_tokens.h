#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// `experts` and `matmul` in f32, for rows of whole slots (few_products.h). Other shapes are refused.
MoestroCudaResult experts_few(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_few(const MoestroCudaMatmulGroup& arguments, MoestroCudaStream stream);

/// The same on tensor cores, activations and weights rounded as in MoestroCudaExperts::rounded_tokens. Refused for f32.
MoestroCudaResult experts_few_rounded(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_few_rounded(const MoestroCudaMatmulGroup& arguments, MoestroCudaStream stream);

/// The most tokens of a matrix, and the mean of a layer's experts, for which the kernels for few tokens are taken
/// instead of those for many (many_tokens.h). They read weights from memory straight into registers, and up to 32
/// tokens share them. An expert with more than that has its weights read again, so the mean leaves room for experts
/// with more than their share.
inline constexpr int64_t kFewRoundedMean = 16, kFewRoundedTokens = MOESTRO_CUDA_GROUP_ROUNDED;

}  // namespace moestro::kernels::cuda

#pragma once

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

/// `experts` and `matmul` in f32, for rows of whole slots (few_products.h). Other shapes are refused.
MoestroCudaResult experts_few(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_few(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

/// The same on tensor cores, activations and weights rounded as in MoestroCudaExperts::rounded_tokens. Refused for f32
/// and f16 too.
MoestroCudaResult experts_few_rounded(const MoestroCudaExperts& arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_few_rounded(const MoestroCudaMatmul& arguments, MoestroCudaStream stream);

/// Up to as many tokens of a matrix, on average, weights are read from memory once by the kernels for few tokens, and
/// memory is what limits them. Those for many tokens (many_tokens.h) read weights through shared memory, which begins
/// to pay when they are multiplied with more.
inline constexpr int64_t kFewRoundedTokens = 32;

}  // namespace moestro::kernels::cuda

#pragma once
// The operations of op_abi.h by name; each is defined with its kernels.

#include "kernels/plugin/op_abi.h"

namespace moestro::kernels::cuda {

MoestroCudaResult matmul(const MoestroCudaMatmul* arguments, MoestroCudaStream stream);
MoestroCudaResult matmul_group(const MoestroCudaMatmulGroup* arguments, MoestroCudaStream stream);
MoestroCudaResult gather(const MoestroCudaGather* arguments, MoestroCudaStream stream);
MoestroCudaResult norm(const MoestroCudaNorm* arguments, MoestroCudaStream stream);
MoestroCudaResult sum_squares(const MoestroCudaSumSquares* arguments, MoestroCudaStream stream);
MoestroCudaResult residual(const MoestroCudaResidual* arguments, MoestroCudaStream stream);
MoestroCudaResult rope(const MoestroCudaRope* arguments, MoestroCudaStream stream);
MoestroCudaResult silu_mul(const MoestroCudaSiluMul* arguments, MoestroCudaStream stream);
MoestroCudaResult exponentials(const MoestroCudaExponentials* arguments, MoestroCudaStream stream);
MoestroCudaResult add_scaled(const MoestroCudaAddScaled* arguments, MoestroCudaStream stream);
MoestroCudaResult clamp(const MoestroCudaClamp* arguments, MoestroCudaStream stream);
MoestroCudaResult combine(const MoestroCudaCombine* arguments, MoestroCudaStream stream);
MoestroCudaResult kv_write(const MoestroCudaKvWrite* arguments, MoestroCudaStream stream);
MoestroCudaResult place_heads(const MoestroCudaPlaceHeads* arguments, MoestroCudaStream stream);
MoestroCudaResult attention(const MoestroCudaAttention* arguments, MoestroCudaStream stream);
MoestroCudaResult router(const MoestroCudaRouter* arguments, MoestroCudaStream stream);
MoestroCudaResult sort_routes(const MoestroCudaSortRoutes* arguments, MoestroCudaStream stream);
MoestroCudaResult route(const MoestroCudaRoute* arguments, MoestroCudaStream stream);
MoestroCudaResult experts(const MoestroCudaExperts* arguments, MoestroCudaStream stream);
MoestroCudaResult sample(const MoestroCudaSample* arguments, MoestroCudaStream stream);
MoestroCudaResult delta(const MoestroCudaDelta* arguments, MoestroCudaStream stream);
MoestroCudaResult gated_norm(const MoestroCudaGatedNorm* arguments, MoestroCudaStream stream);
MoestroCudaResult sigmoid_mul(const MoestroCudaSigmoidMul* arguments, MoestroCudaStream stream);
MoestroCudaResult scale_rows(const MoestroCudaScaleRows* arguments, MoestroCudaStream stream);
MoestroCudaResult latent_write(const MoestroCudaLatentWrite* arguments, MoestroCudaStream stream);
MoestroCudaResult latent_attention(const MoestroCudaLatentAttention* arguments, MoestroCudaStream stream);

/// All of them, for the plugin's table.
MoestroCudaOps all_ops();

}  // namespace moestro::kernels::cuda

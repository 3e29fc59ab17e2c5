// Dense products on many tokens, by the format of their weights.

#include "kernels/cuda/many_tokens.h"
#include "kernels/cuda/matmul_tiles.h"

namespace moestro::kernels::cuda {

MoestroCudaResult matmul_many(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  switch (a.dtype) {
    case MOESTRO_CUDA_BF16: return matmul_on_tiles<Bf16Tiles>(a, stream);
    case MOESTRO_CUDA_F16: return matmul_on_tiles<F16Tiles>(a, stream);
    case MOESTRO_CUDA_INT8: return matmul_on_tiles<Int8Tiles>(a, stream);
    case MOESTRO_CUDA_INT4: return matmul_on_tiles<Int4Tiles>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

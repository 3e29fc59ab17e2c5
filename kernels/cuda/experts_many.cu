// The experts of a layer on many tokens, by the format of their weights; each has a file, so that they are compiled
// side by side.

#include "kernels/cuda/experts_tiles.h"
#include "kernels/cuda/many_tokens.h"

namespace moestro::kernels::cuda {

extern template MoestroCudaResult experts_on_tiles<Bf16Tiles>(const MoestroCudaExperts&, MoestroCudaStream);
extern template MoestroCudaResult experts_on_tiles<F16Tiles>(const MoestroCudaExperts&, MoestroCudaStream);
extern template MoestroCudaResult experts_on_tiles<Int8Tiles>(const MoestroCudaExperts&, MoestroCudaStream);
extern template MoestroCudaResult experts_on_tiles<Int4Tiles>(const MoestroCudaExperts&, MoestroCudaStream);

MoestroCudaResult experts_many(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  switch (a.layout.dtype) {
    case MOESTRO_CUDA_BF16: return experts_on_tiles<Bf16Tiles>(a, stream);
    case MOESTRO_CUDA_F16: return experts_on_tiles<F16Tiles>(a, stream);
    case MOESTRO_CUDA_INT8: return experts_on_tiles<Int8Tiles>(a, stream);
    case MOESTRO_CUDA_INT4: return experts_on_tiles<Int4Tiles>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

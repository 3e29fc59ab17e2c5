// The experts of a layer on many tokens, weights of f16.

#include "kernels/cuda/experts_tiles.h"

namespace moestro::kernels::cuda {

template MoestroCudaResult experts_on_tiles<F16Tiles>(const MoestroCudaExperts&, MoestroCudaStream);

}  // namespace moestro::kernels::cuda

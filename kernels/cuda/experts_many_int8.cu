// The experts of a layer on many tokens, weights of int8.

#include "kernels/cuda/experts_tiles.h"

namespace moestro::kernels::cuda {

template MoestroCudaResult experts_on_tiles<Int8Tiles>(const MoestroCudaExperts&, MoestroCudaStream);

}  // namespace moestro::kernels::cuda

// The experts of a layer on many tokens, weights of int4.

#include "kernels/cuda/experts_tiles.h"

namespace moestro::kernels::cuda {

template MoestroCudaResult experts_on_tiles<Int4Tiles>(const MoestroCudaExperts&, MoestroCudaStream);

}  // namespace moestro::kernels::cuda

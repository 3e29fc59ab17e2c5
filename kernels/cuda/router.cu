// A router's choice: a warp for each token.

#include "kernels/cuda/router_choice.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

__global__ void router_kernel(MoestroCudaRouter a) {
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  after_predecessors();
  let_next_begin();
  if (t >= a.n) return;
  float* floats = reinterpret_cast<float*>(shared_memory()) + warp_id() * choice_floats(a);
  choose_experts(a, t, a.logits + t * a.experts, floats);
}

}  // namespace

MoestroCudaResult router(const MoestroCudaRouter* a, MoestroCudaStream stream) {
  if (a->experts > MOESTRO_CUDA_EXPERTS_MAX) return MOESTRO_CUDA_REFUSED;
  const uint64_t shared_bytes = kWarps * static_cast<uint64_t>(choice_floats(*a)) * sizeof(float);
  return launch_early(router_kernel, dim3(static_cast<unsigned>(divided_up(a->n, kWarps))), dim3(kWarps * kWarp),
                      shared_bytes, stream, *a);
}

}  // namespace moestro::kernels::cuda

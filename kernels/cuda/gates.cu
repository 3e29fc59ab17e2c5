// Gates on what a mixer gives: a norm of each head times SiLU of a gate, and sigmoids of gates.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_norm.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// A warp for each row. Heads are narrow: what is read twice is in the nearest cache.
__global__ void __launch_bounds__(kThreads) gated_norm_kernel(MoestroCudaGatedNorm a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + warp_id();
  after_predecessors();
  let_next_begin();
  if (row >= a.n) return;
  const float* const x = a.x + row * a.dim;
  float* const gate = a.gate + row * a.dim;
  float squares = 0.0f;
  for (int64_t i = lane_id(); i < a.dim; i += kWarp) squares = multiply_add(x[i], x[i], squares);
  const float scale = norm_scale(warp_sum(squares), a.dim, a.eps);
  for (int64_t i = lane_id(); i < a.dim; i += kWarp)
    gate[i] = x[i] * scale * a.weight[i] * (gate[i] / (1.0f + expf(-gate[i])));
}

__global__ void sigmoid_mul_kernel(MoestroCudaSigmoidMul a) {
  after_predecessors();
  let_next_begin();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < a.count) a.x[i] = a.x[i] / (1.0f + expf(-a.gate[i]));
}

}  // namespace

MoestroCudaResult gated_norm(const MoestroCudaGatedNorm* a, MoestroCudaStream stream) {
  constexpr int64_t kRows = kThreads / kWarp;
  return launch_early(gated_norm_kernel, dim3(static_cast<unsigned>(divided_up(a->n, kRows))), dim3(kThreads), 0,
                      stream, *a);
}

MoestroCudaResult sigmoid_mul(const MoestroCudaSigmoidMul* a, MoestroCudaStream stream) {
  return launch_early(sigmoid_mul_kernel, dim3(static_cast<unsigned>(divided_up(a->count, kThreads))), dim3(kThreads),
                      0, stream, *a);
}

}  // namespace moestro::kernels::cuda

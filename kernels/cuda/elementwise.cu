// What treats each element, or each pair of a rotation, for itself: a thread for each.

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

dim3 grid_for(int64_t count) { return dim3(static_cast<unsigned>(divided_up(count, kThreads))); }
__device__ int64_t element() {
  after_predecessors();
  let_next_begin();
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__global__ void rope_kernel(MoestroCudaRope a) {
  const int64_t half = a.rotary_dim / 2, i = element();
  if (i >= a.n * a.heads * half) return;
  const int64_t j = i % half, head = i / half, t = head / a.heads;
  float* x = a.x + head * a.head_dim + j;
  const float c = a.cos[t * half + j], s = a.sin[t * half + j], first = x[0], second = x[half];
  x[0] = rotated_first(first, second, c, s);
  x[half] = rotated_second(first, second, c, s);
}

__global__ void silu_mul_kernel(MoestroCudaSiluMul a) {
  const int64_t i = element();
  if (i >= a.count) return;
  const float g = a.gate[i];
  a.gate[i] = g / (1.0f + expf(-g)) * a.up[i];
}

__global__ void exponentials_kernel(MoestroCudaExponentials a) {
  const int64_t i = element();
  if (i < a.count) a.y[i] = exponential(a.x[i], a.shift, a.factor);
}

__global__ void add_scaled_kernel(MoestroCudaAddScaled a) {
  const int64_t i = element();
  if (i >= a.n * a.dim) return;
  const float scale = a.logit ? 1.0f / (1.0f + expf(-a.logit[i / a.dim])) : 1.0f;
  a.y[i] = multiply_add(scale, a.x[i], a.y[i]);
}

__global__ void clamp_kernel(MoestroCudaClamp a) {
  const int64_t i = element();
  if (i >= a.count) return;
  const float x = a.x[i];
  a.x[i] = x < -a.limit ? -a.limit : x > a.limit ? a.limit : x;  // NaN stays
}

__global__ void scale_rows_kernel(MoestroCudaScaleRows a) {
  const int64_t i = element(), row = i / a.dim;
  if (row >= a.n * a.each) return;
  a.y[i] = a.x[row / a.each * a.dim + i % a.dim] * (a.factors ? a.factor * a.factors[row] : a.factor);
}

__global__ void combine_kernel(MoestroCudaCombine a) {
  const int64_t i = element();
  if (i >= a.n * a.hidden) return;
  const int64_t t = i / a.hidden, column = i % a.hidden;
  float sum = 0.0f;
  for (int64_t r = 0; r < a.top_k; ++r) {
    const int64_t row = t * a.top_k + r;
    sum = multiply_add(a.weights[row], a.rows[row * a.hidden + column], sum);
  }
  a.y[i] = a.base[i] + sum;
}

template <typename N>
__global__ void gather_kernel(MoestroCudaGather a) {
  const int64_t i = element();
  if (i >= a.count * a.cols) return;
  const auto* row = static_cast<const typename N::Stored*>(a.table) + a.ids[i / a.cols] * a.cols;
  a.y[i] = N::value(row[i % a.cols]);
}

}  // namespace

MoestroCudaResult rope(const MoestroCudaRope* a, MoestroCudaStream stream) {
  return launch_early(rope_kernel, grid_for(a->n * a->heads * (a->rotary_dim / 2)), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult silu_mul(const MoestroCudaSiluMul* a, MoestroCudaStream stream) {
  return launch_early(silu_mul_kernel, grid_for(a->count), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult exponentials(const MoestroCudaExponentials* a, MoestroCudaStream stream) {
  return launch_early(exponentials_kernel, grid_for(a->count), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult add_scaled(const MoestroCudaAddScaled* a, MoestroCudaStream stream) {
  return launch_early(add_scaled_kernel, grid_for(a->n * a->dim), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult clamp(const MoestroCudaClamp* a, MoestroCudaStream stream) {
  return launch_early(clamp_kernel, grid_for(a->count), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult scale_rows(const MoestroCudaScaleRows* a, MoestroCudaStream stream) {
  return launch_early(scale_rows_kernel, grid_for(a->n * a->each * a->dim), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult combine(const MoestroCudaCombine* a, MoestroCudaStream stream) {
  return launch_early(combine_kernel, grid_for(a->n * a->hidden), dim3(kThreads), 0, stream, *a);
}
MoestroCudaResult gather(const MoestroCudaGather* a, MoestroCudaStream stream) {
  const dim3 grid = grid_for(a->count * a->cols);
  switch (a->dtype) {
    case MOESTRO_CUDA_F32: return launch_early(gather_kernel<F32>, grid, dim3(kThreads), 0, stream, *a);
    case MOESTRO_CUDA_BF16: return launch_early(gather_kernel<BF16>, grid, dim3(kThreads), 0, stream, *a);
    case MOESTRO_CUDA_F16: return launch_early(gather_kernel<F16>, grid, dim3(kThreads), 0, stream, *a);
    default: return is_block_format(a->dtype) ? gather_blocks(*a, stream) : MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

// RMSNorm, LayerNorm, sums of squares and the guard that is made of them: a block for each row.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {
namespace {

/// Of a block for a row of `dim`: so that it depends on nothing else, and a row's sums are always in the same order.
unsigned threads_for(int64_t dim) {
  return static_cast<unsigned>(at_most<int64_t>(256, divided_up(at_least<int64_t>(dim, 1), 4 * kWarp) * kWarp));
}
uint64_t room_for(unsigned threads) { return threads / kWarp * sizeof(float); }

__device__ float square_sum(const float* row, int64_t dim, float mean, float* room) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < dim; i += blockDim.x) {
    const float d = row[i] - mean;
    sum = multiply_add(d, d, sum);
  }
  return block_sum(sum, room);
}

__global__ void norm_kernel(MoestroCudaNorm a) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  const float* x = a.x + static_cast<int64_t>(blockIdx.x) * a.dim;
  float* y = a.y + static_cast<int64_t>(blockIdx.x) * a.dim;
  const auto count = static_cast<float>(a.dim);
  float mean = 0.0f;
  if (a.centred) {
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) sum += x[i];
    mean = block_sum(sum, room) / count;
  }
  const float scale = 1.0f / sqrtf(square_sum(x, a.dim, mean, room) / count + a.eps);
  // In place: each thread writes what it alone reads.
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) {
    const float normed = (x[i] - mean) * scale * a.weight[i];
    y[i] = a.bias ? normed + a.bias[i] : normed;
  }
}

__global__ void sum_squares_kernel(MoestroCudaSumSquares a) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  const int64_t row = blockIdx.x;
  float* x = a.x + row * a.dim;
  const float sum = square_sum(x, a.dim, 0.0f, room);
  if (threadIdx.x == 0 && a.sums) a.sums[row] = sum;
  if (!a.bad_layer || isfinite(sum)) return;
  for (int64_t i = threadIdx.x; i < a.dim; i += blockDim.x) x[i] = 0.0f;
  if (threadIdx.x == 0 && a.bad_layer[row] < 0) a.bad_layer[row] = a.layer;
}

}  // namespace

MoestroCudaResult norm(const MoestroCudaNorm* a, MoestroCudaStream stream) {
  const unsigned threads = threads_for(a->dim);
  return launch(norm_kernel, dim3(static_cast<unsigned>(a->n)), dim3(threads), room_for(threads), stream, *a);
}

MoestroCudaResult sum_squares(const MoestroCudaSumSquares* a, MoestroCudaStream stream) {
  const unsigned threads = threads_for(a->dim);
  return launch(sum_squares_kernel, dim3(static_cast<unsigned>(a->n)), dim3(threads), room_for(threads), stream, *a);
}

}  // namespace moestro::kernels::cuda

// y = x w^T + bias: which kernel computes it, and one for shapes that no other takes, in f32, with a warp for each row
// of a matrix.

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/dense_library.h"
#include "kernels/cuda/few_tokens.h"
#include "kernels/cuda/hopper_many.h"
#include "kernels/cuda/many_tokens.h"
#include "kernels/cuda/matmul_group.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_products.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

template <typename W>
__global__ void matmul_kernel(MoestroCudaMatmulGroup a) {
  const auto [matrix, first_row] = group_place(a, kWarps);
  const int64_t r = first_row + warp_id();
  after_predecessors();
  let_next_begin();
  if (r >= matrix.rows) return;
  const WeightRow row[1] = {{static_cast<const char*>(matrix.weight) + r * W::row_bytes(a.cols),
                             matrix.parameters + r * W::row_parameters(a.cols), a.cols}};
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kTokensAtOnce;
  Tokens tokens{};
  tokens.count = static_cast<int>(at_most<int64_t>(kTokensAtOnce, a.n - first));
  MOESTRO_UNROLL
  for (int t = 0; t < kTokensAtOnce; ++t) tokens.x[t] = a.x + (first + at_most(t, tokens.count - 1)) * a.cols;
  float sums[1][kTokensAtOnce] = {};
  for (int64_t unit = lane_id(); unit < W::units(a.cols); unit += kWarp)
    add_unit<W>(row, unit, tokens, loads_whole(a.x, a.cols), sums);
  sum_lanes(tokens.count, sums);
  if (lane_id() != 0) return;
  MOESTRO_UNROLL
  for (int t = 0; t < kTokensAtOnce; ++t)
    if (t < tokens.count) write_product(a, matrix, first + t, r, sums[0][t]);
}

template <typename W>
MoestroCudaResult launch_matmul(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  const int64_t chunks = divided_up(a.n, kTokensAtOnce);
  if (chunks > 65535) return MOESTRO_CUDA_REFUSED;
  const dim3 grid(group_blocks(a, kWarps), static_cast<unsigned>(chunks));
  return launch_early(matmul_kernel<W>, grid, dim3(kWarps * kWarp), 0, stream, a);
}

MoestroCudaResult matmul_of_any_shape(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  switch (a.dtype) {
    case MOESTRO_CUDA_F32: return launch_matmul<PlainWeights<F32>>(a, stream);
    case MOESTRO_CUDA_BF16: return launch_matmul<PlainWeights<BF16>>(a, stream);
    case MOESTRO_CUDA_F16: return launch_matmul<PlainWeights<F16>>(a, stream);
    case MOESTRO_CUDA_INT8: return launch_matmul<Int8Weights>(a, stream);
    case MOESTRO_CUDA_INT4: return launch_matmul<Int4Weights>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

MoestroCudaMatmulGroup group_of(const MoestroCudaMatmul& a) {
  MoestroCudaMatmulGroup group{};
  group.x = a.x, group.n = a.n, group.cols = a.cols;
  group.dtype = a.dtype, group.rounded = a.rounded;
  group.count = 1;
  group.matrices[0] = {a.weight, a.parameters, a.rows, a.bias, a.y};
  return group;
}

/// The first that takes it, from the fastest on. On Hopper cuBLASLt is no faster than kernels of its own, where these
/// have enough tiles to fill the device (docs/perf/gpu.md).
MoestroCudaResult matmul_rounded(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  using Kernel = MoestroCudaResult (*)(const MoestroCudaMatmul&, MoestroCudaStream);
  constexpr Kernel kMany[] = {matmul_hopper, matmul_by_library, matmul_many};
  MoestroCudaResult result = MOESTRO_CUDA_REFUSED;
  if (a.n <= kFewRoundedTokens) {
    result = matmul_few_rounded(group_of(a), stream);
    return result != MOESTRO_CUDA_REFUSED ? result : matmul_many(a, stream);
  }
  for (const Kernel kernel : kMany)
    if (result == MOESTRO_CUDA_REFUSED) result = kernel(a, stream);
  return result;
}

}  // namespace

/// A group that no kernel on tensor cores takes is not rounded.
MoestroCudaResult matmul_group(const MoestroCudaMatmulGroup* a, MoestroCudaStream stream) {
  if (is_block_format(a->dtype)) return matmul_blocks_few(*a, stream);
  if (a->rounded && a->n <= kFewRoundedTokens) {
    const MoestroCudaResult result = matmul_few_rounded(*a, stream);
    if (result != MOESTRO_CUDA_REFUSED) return result;
  }
  const MoestroCudaResult result = matmul_few(*a, stream);
  return result != MOESTRO_CUDA_REFUSED ? result : matmul_of_any_shape(*a, stream);
}

MoestroCudaResult matmul(const MoestroCudaMatmul* a, MoestroCudaStream stream) {
  if (a->rounded) return is_block_format(a->dtype) ? matmul_blocks_many(*a, stream) : matmul_rounded(*a, stream);
  const MoestroCudaMatmulGroup group = group_of(*a);
  return matmul_group(&group, stream);
}

}  // namespace moestro::kernels::cuda

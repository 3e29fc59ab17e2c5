// y = x w^T + bias: which kernel computes it, and one for shapes that no other takes, in f32, with a warp for each row
// of w.

#include "kernels/cuda/dense_library.h"
#include "kernels/cuda/few_tokens.h"
#include "kernels/cuda/hopper_many.h"
#include "kernels/cuda/many_tokens.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_products.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

template <typename W>
__global__ void matmul_kernel(MoestroCudaMatmul a) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  if (r >= a.rows) return;
  const WeightRow row[1] = {{static_cast<const char*>(a.weight) + r * W::row_bytes(a.cols),
                             a.parameters + r * W::row_parameters(a.cols), a.cols}};
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kTokensAtOnce;
  Tokens tokens{};
  tokens.count = static_cast<int>(at_most<int64_t>(kTokensAtOnce, a.n - first));
  for (int t = 0; t < tokens.count; ++t) tokens.x[t] = a.x + (first + t) * a.cols;
  float sums[1][kTokensAtOnce] = {};
  for (int64_t unit = lane_id(); unit < W::units(a.cols); unit += kWarp)
    add_unit<W>(row, unit, tokens, loads_whole(a.x, a.cols), sums);
  sum_lanes(tokens.count, sums);
  if (lane_id() != 0) return;
  const float bias = a.bias ? a.bias[r] : 0.0f;
  for (int t = 0; t < tokens.count; ++t) a.y[(first + t) * a.rows + r] = sums[0][t] + bias;
}

template <typename W>
MoestroCudaResult launch_matmul(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const int64_t chunks = divided_up(a.n, kTokensAtOnce);
  if (chunks > 65535) return MOESTRO_CUDA_REFUSED;
  const dim3 grid(static_cast<unsigned>(divided_up(a.rows, kWarps)), static_cast<unsigned>(chunks));
  return launch(matmul_kernel<W>, grid, dim3(kWarps * kWarp), 0, stream, a);
}

/// The first that takes it, from the fastest on. On Hopper cuBLASLt is no faster than kernels of its own, where these
/// have enough tiles to fill the device (docs/perf/gpu.md).
MoestroCudaResult matmul_rounded(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  using Kernel = MoestroCudaResult (*)(const MoestroCudaMatmul&, MoestroCudaStream);
  constexpr Kernel kFew[] = {matmul_few_rounded, matmul_many};
  constexpr Kernel kMany[] = {matmul_hopper, matmul_by_library, matmul_many};
  MoestroCudaResult result = MOESTRO_CUDA_REFUSED;
  if (a.n <= kFewRoundedTokens) {
    for (const Kernel kernel : kFew)
      if (result == MOESTRO_CUDA_REFUSED) result = kernel(a, stream);
  } else {
    for (const Kernel kernel : kMany)
      if (result == MOESTRO_CUDA_REFUSED) result = kernel(a, stream);
  }
  return result;
}

}  // namespace

MoestroCudaResult matmul(const MoestroCudaMatmul* a, MoestroCudaStream stream) {
  if (a->rounded) return matmul_rounded(*a, stream);
  if (const MoestroCudaResult result = matmul_few(*a, stream); result != MOESTRO_CUDA_REFUSED) return result;
  switch (a->dtype) {
    case MOESTRO_CUDA_F32: return launch_matmul<PlainWeights<F32>>(*a, stream);
    case MOESTRO_CUDA_BF16: return launch_matmul<PlainWeights<BF16>>(*a, stream);
    case MOESTRO_CUDA_F16: return launch_matmul<PlainWeights<F16>>(*a, stream);
    case MOESTRO_CUDA_INT8: return launch_matmul<Int8Weights>(*a, stream);
    case MOESTRO_CUDA_INT4: return launch_matmul<Int4Weights>(*a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

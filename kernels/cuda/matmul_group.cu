// Products of up to four matrices with the same few tokens in one launch, as matmul in f32: a warp for each row of each
// matrix. A product may be added to what its output has.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/row_products.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

int64_t all_rows(const MoestroCudaMatmulGroup& a) {
  int64_t rows = 0;
  for (int32_t i = 0; i < a.count; ++i) rows += a.matrices[i].rows;
  return rows;
}

template <typename W>
__global__ void matmul_group_kernel(MoestroCudaMatmulGroup a) {
  int64_t r = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  int m = 0;
  while (m < a.count && r >= a.matrices[m].rows) r -= a.matrices[m++].rows;
  after_predecessors();
  let_next_begin();
  if (m == a.count) return;
  const MoestroCudaGroupMatrix& matrix = a.matrices[m];
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
  const float bias = matrix.bias ? matrix.bias[r] : 0.0f;
  MOESTRO_UNROLL
  for (int t = 0; t < kTokensAtOnce; ++t) {
    if (t >= tokens.count) break;
    float& y = matrix.y[(first + t) * matrix.rows + r];
    const float product = sums[0][t] + bias;
    y = a.onto ? y + product : product;
  }
}

template <typename W>
MoestroCudaResult launch_group(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  const int64_t chunks = divided_up(a.n, kTokensAtOnce);
  if (chunks > 65535) return MOESTRO_CUDA_REFUSED;
  const dim3 grid(static_cast<unsigned>(divided_up(all_rows(a), kWarps)), static_cast<unsigned>(chunks));
  return launch_early(matmul_group_kernel<W>, grid, dim3(kWarps * kWarp), 0, stream, a);
}

}  // namespace

MoestroCudaResult matmul_group(const MoestroCudaMatmulGroup* a, MoestroCudaStream stream) {
  switch (a->dtype) {
    case MOESTRO_CUDA_F32: return launch_group<PlainWeights<F32>>(*a, stream);
    case MOESTRO_CUDA_BF16: return launch_group<PlainWeights<BF16>>(*a, stream);
    case MOESTRO_CUDA_F16: return launch_group<PlainWeights<F16>>(*a, stream);
    case MOESTRO_CUDA_INT8: return launch_group<Int8Weights>(*a, stream);
    case MOESTRO_CUDA_INT4: return launch_group<Int4Weights>(*a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

// y = x w^T + bias on tensor cores: a block for each tile of tokens and of rows.

#include "kernels/cuda/many_tokens.h"
#include "kernels/cuda/product_tile.h"

namespace moestro::kernels::cuda {
namespace {

template <typename W>
struct DenseSource {
  const MoestroCudaMatmul& a;
  int64_t first_token, first_row;

  __device__ int64_t depth() const { return a.cols; }
  __device__ const float* x(int token) const {
    return first_token + token < a.n ? a.x + (first_token + token) * a.cols : nullptr;
  }
  __device__ bool w(int, int row, int64_t&, WeightRow& out) const {
    const int64_t r = first_row + row;
    if (r >= a.rows) return false;
    out = {static_cast<const char*>(a.weight) + r * W::row_bytes(a.cols), a.parameters + r * W::row_parameters(a.cols),
           a.cols};
    return true;
  }
};

template <typename W>
__global__ void __launch_bounds__(kTileThreads) matmul_many_kernel(MoestroCudaMatmul a) {
  const DenseSource<W> source{a, static_cast<int64_t>(blockIdx.y) * kTileTokens,
                              static_cast<int64_t>(blockIdx.x) * kTileRows};
  ProductTile<W, 1, DenseSource<W>> tile{source, *reinterpret_cast<ProductRoom<1>*>(shared_memory()), {}, {}, {}};
  tile.run();
  tile.each_sum([&](int token, int row, float sum, float) {
    const int64_t t = source.first_token + token, r = source.first_row + row;
    if (t < a.n && r < a.rows) a.y[t * a.rows + r] = sum + (a.bias ? a.bias[r] : 0.0f);
  });
}

template <typename W>
MoestroCudaResult launch_many(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const int64_t token_tiles = divided_up(a.n, kTileTokens);
  if (token_tiles > 65535) return MOESTRO_CUDA_REFUSED;
  const dim3 grid(static_cast<unsigned>(divided_up(a.rows, kTileRows)), static_cast<unsigned>(token_tiles));
  return launch(matmul_many_kernel<W>, grid, dim3(kTileThreads), sizeof(ProductRoom<1>), stream, a);
}

}  // namespace

MoestroCudaResult matmul_many(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  switch (a.dtype) {
    case MOESTRO_CUDA_BF16: return launch_many<PlainWeights<BF16>>(a, stream);
    case MOESTRO_CUDA_INT8: return launch_many<Int8Weights>(a, stream);
    case MOESTRO_CUDA_INT4: return launch_many<Int4Weights>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

// y = x w^T + bias for up to 32 tokens at once on tensor cores, for rows of whole slots.

#include "kernels/cuda/few_rounded.h"
#include "kernels/cuda/few_tokens.h"

namespace moestro::kernels::cuda {
namespace {

template <typename S, int kEights>
__global__ void __launch_bounds__(kRoundedThreads, 2) matmul_few_rounded_kernel(MoestroCudaMatmul a, int across) {
  using Products = FewRounded<S, float, kEights>;
  constexpr int kSize = kRoundedRows * Products::kTokens;
  const WarpGrid warps = WarpGrid::of_block(across);
  const int rows = across * kRoundedRows;
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * rows,
                own_row = first_row + warps.row_warp() * kRoundedRows,
                first = static_cast<int64_t>(blockIdx.y) * Products::kTokens;
  Products products{};
  products.loads.m = tiled_rows<S>(0, a.cols);
  products.columns = static_cast<int32_t>(a.cols);
  products.count = static_cast<int>(at_most<int64_t>(Products::kTokens, a.n - first));
  MOESTRO_UNROLL
  for (int r = 0; r < Products::kRows; ++r)
    products.loads.set_row(r, static_cast<const char*>(a.weight), reinterpret_cast<const char*>(a.parameters),
                           at_most(own_row + r * 8 + Products::Loads::row_of_lane(), a.rows - 1));
  products.set_x([&](int token) { return a.x + (first + token) * a.cols; });
  const Run run = warps.run(segments_of<kQuad>(products.loads.m));
  products.add(run.first, run.end);

  auto* room = reinterpret_cast<float*>(shared_memory());
  products.store(room + warp_id() * kSize);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * products.count; i += static_cast<int>(blockDim.x)) {
    const int row = i % rows, t = i / rows;
    if (first_row + row >= a.rows) continue;
    a.y[(first + t) * a.rows + first_row + row] =
        warps.sum(room, kSize, row / kRoundedRows, row % kRoundedRows * Products::kTokens + t) +
        (a.bias ? a.bias[first_row + row] : 0.0f);
  }
}

template <typename S, int kEights>
MoestroCudaResult launch_with(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  const int64_t passes = divided_up(a.n, 8 * kEights);
  if (passes > 65535) return MOESTRO_CUDA_REFUSED;
  const int across = warps_across(a.rows);
  const dim3 grid(static_cast<unsigned>(divided_up(a.rows, across * kRoundedRows)), static_cast<unsigned>(passes));
  return launch(matmul_few_rounded_kernel<S, kEights>, grid, dim3(kRoundedThreads), rounded_room(8 * kEights), stream,
                a, across);
}

template <typename S>
MoestroCudaResult launch_few(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  if (!has_whole_slots<S>(a.cols) || !is_aligned16(a.x) || !is_aligned16(a.weight)) return MOESTRO_CUDA_REFUSED;
  if (a.n <= 8) return launch_with<S, 1>(a, stream);
  return a.n <= 16 ? launch_with<S, 2>(a, stream) : launch_with<S, 4>(a, stream);
}

}  // namespace

MoestroCudaResult matmul_few_rounded(const MoestroCudaMatmul& a, MoestroCudaStream stream) {
  switch (a.dtype) {
    case MOESTRO_CUDA_BF16: return launch_few<PlainSlot<BF16>>(a, stream);
    case MOESTRO_CUDA_F16: return launch_few<PlainSlot<F16>>(a, stream);
    case MOESTRO_CUDA_INT8: return launch_few<Int8Slot>(a, stream);
    case MOESTRO_CUDA_INT4: return launch_few<Int4Slot>(a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

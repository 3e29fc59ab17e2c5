// y = x w^T + bias for up to 32 tokens at once on tensor cores, for rows of whole slots.

#include "kernels/cuda/few_rounded.h"
#include "kernels/cuda/few_tokens.h"
#include "kernels/cuda/matmul_group.h"

namespace moestro::kernels::cuda {
namespace {

template <typename S, int kEights>
__global__ void __launch_bounds__(kRoundedThreads, 2) matmul_few_rounded_kernel(MoestroCudaMatmulGroup a, int across) {
  using Products = FewRounded<S, float, kEights>;
  constexpr int kSize = kRoundedRows * Products::kTokens;
  const WarpGrid warps = WarpGrid::of_block(across);
  const int rows = across * kRoundedRows;
  const auto [matrix, first_row] = group_place(a, rows);
  const int64_t own_row = first_row + warps.row_warp() * kRoundedRows,
                first = static_cast<int64_t>(blockIdx.y) * Products::kTokens;
  Products products{};
  products.loads.m = tiled_rows<S>(0, a.cols);
  products.columns = static_cast<int32_t>(a.cols);
  products.count = static_cast<int>(at_most<int64_t>(Products::kTokens, a.n - first));
  MOESTRO_UNROLL
  for (int r = 0; r < Products::kRows; ++r)
    products.loads.set_row(r, static_cast<const char*>(matrix.weight),
                           reinterpret_cast<const char*>(matrix.parameters),
                           at_most(own_row + r * 8 + Products::Loads::row_of_lane(), matrix.rows - 1));
  products.set_x([&](int token) { return a.x + (first + token) * a.cols; });
  const Run run = warps.run(segments_of<kQuad>(products.loads.m));
  products.loads.prefetch_from(run.first);
  after_predecessors();
  let_next_begin();
  products.add(run.first, run.end);

  auto* room = reinterpret_cast<float*>(shared_memory());
  products.store(room + warp_id() * kSize);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * products.count; i += static_cast<int>(blockDim.x)) {
    const int row = i % rows, t = i / rows;
    if (first_row + row >= matrix.rows) continue;
    write_product(a, matrix, first + t, first_row + row,
                  warps.sum(room, kSize, row / kRoundedRows, row % kRoundedRows * Products::kTokens + t));
  }
}

template <typename S, int kEights>
MoestroCudaResult launch_with(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  const int64_t passes = divided_up(a.n, 8 * kEights);
  if (passes > 65535) return MOESTRO_CUDA_REFUSED;
  const int across = warps_across(group_rows(a));
  const dim3 grid(group_blocks(a, across * kRoundedRows), static_cast<unsigned>(passes));
  return launch_early(matmul_few_rounded_kernel<S, kEights>, grid, dim3(kRoundedThreads), rounded_room(8 * kEights),
                      stream, a, across);
}

template <typename S>
MoestroCudaResult launch_few(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  if (!has_whole_slots<S>(a.cols) || !is_aligned16(a.x) || !are_aligned16(a)) return MOESTRO_CUDA_REFUSED;
  if (a.n <= 8) return launch_with<S, 1>(a, stream);
  return a.n <= 16 ? launch_with<S, 2>(a, stream) : launch_with<S, 4>(a, stream);
}

}  // namespace

MoestroCudaResult matmul_few_rounded(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  return with_slot<true>(a.dtype, [&](auto slot) { return launch_few<decltype(slot)>(a, stream); });
}

}  // namespace moestro::kernels::cuda

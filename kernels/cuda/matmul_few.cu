// y = x w^T + bias in f32, for rows of whole slots: a block for some rows of a matrix and up to 8 tokens.

#include "kernels/cuda/few_products.h"
#include "kernels/cuda/few_tokens.h"
#include "kernels/cuda/matmul_group.h"

namespace moestro::kernels::cuda {
namespace {

template <typename S, int kRows, int kTokens>
using DenseProducts = FewProducts<S, S::kLanes, kRows, kTokens>;

template <typename S, int kRows, int kTokens>
__global__ void __launch_bounds__(kFewThreadsMax, 2) matmul_few_kernel(MoestroCudaMatmulGroup a, FewRoom room) {
  using Products = DenseProducts<S, kRows, kTokens>;
  constexpr int kOut = Products::kRowsOfWarp;
  const auto [matrix, first_row] = group_place(a, kOut);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kTokens;
  Products products{};
  products.m = tiled_rows<S>(0, a.cols);
  products.count = static_cast<int>(at_most<int64_t>(kTokens, a.n - first));
  products.columns = a.cols;
  products.staged = room.of_warp();
  products.set_x(a.x + first * a.cols, a.cols);
  MOESTRO_UNROLL
  for (int r = 0; r < kRows; ++r)
    products.set_row(r, static_cast<const char*>(matrix.weight), reinterpret_cast<const char*>(matrix.parameters),
                     at_most(first_row + r * Products::kRowsApart + Products::Loads::row_of_lane(), matrix.rows - 1));
  const Run run = run_of_warp(segments_of<S::kLanes>(products.m));
  products.prefetch_from(run.first);
  after_predecessors();
  let_next_begin();
  products.add(run.first, run.end);

  products.store(room.of_warp());
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kOut * products.count; i += static_cast<int>(blockDim.x)) {
    const int64_t row = first_row + i % kOut;
    const int t = i / kOut;
    if (row >= matrix.rows) continue;
    write_product(a, matrix, first + t, row, room.sum(i % kOut * kTokens + t));
  }
}

template <typename S, int kRows, int kTokens>
MoestroCudaResult launch_with(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  constexpr int64_t kOut = DenseProducts<S, kRows, kTokens>::kRowsOfWarp;
  const int64_t passes = divided_up(a.n, kTokens);
  if (passes > 65535) return MOESTRO_CUDA_REFUSED;
  const int64_t segments = segments_of<S::kLanes>(tiled_rows<S>(0, a.cols));
  const unsigned threads = few_threads(static_cast<int32_t>(segments));
  const FewRoom room = kTokens == 1 ? few_room(segments, S::kLanes * S::kColumns, kOut)
                                    : FewRoom{static_cast<int32_t>(kOut * kTokens), 0};
  const dim3 grid(group_blocks(a, kOut), static_cast<unsigned>(passes));
  return launch_early(matmul_few_kernel<S, kRows, kTokens>, grid, dim3(threads), room.bytes(threads), stream, a, room);
}

/// Matrices of fewer rows are cut finer, so that all of a device reads them.
constexpr int64_t kBlocksWanted = 256;

template <typename S, int kTokens>
MoestroCudaResult launch_for(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  if (group_rows(a) >= kBlocksWanted * DenseProducts<S, 4, kTokens>::kRowsOfWarp)
    return launch_with<S, 4, kTokens>(a, stream);
  return launch_with<S, 2, kTokens>(a, stream);
}

template <typename S>
bool stages_one(int64_t cols) {
  return few_room(segments_of<S::kLanes>(tiled_rows<S>(0, cols)), S::kLanes * S::kColumns, 1).stages != 0;
}

template <typename S>
MoestroCudaResult launch_few(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  if (!has_whole_slots<S>(a.cols) || !is_aligned16(a.x) || !are_aligned16(a)) return MOESTRO_CUDA_REFUSED;
  if (a.n == 1 && stages_one<S>(a.cols)) return launch_for<S, 1>(a, stream);
  if constexpr (S::kTokensMax > 4) {
    if (a.n > 4) return launch_for<S, S::kTokensMax>(a, stream);
  }
  return launch_for<S, 4>(a, stream);
}

}  // namespace

MoestroCudaResult matmul_few(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  return with_slot<false>(a.dtype, [&](auto slot) { return launch_few<decltype(slot)>(a, stream); });
}

}  // namespace moestro::kernels::cuda

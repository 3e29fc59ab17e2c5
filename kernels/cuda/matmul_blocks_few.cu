// y = x w^T + bias in f32, weights of blocks: a thread block for 16 rows of a matrix and up to 4 tokens, whatever the
// format.

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/few_blocks.h"
#include "kernels/cuda/matmul_group.h"

namespace moestro::kernels::cuda {
namespace {

template <int kTokens>
__global__ void __launch_bounds__(kFewThreadsMax, 2) matmul_blocks_kernel(MoestroCudaMatmulGroup a,
                                                                          FewBlocksRoom room) {
  const auto [matrix, first_row] = group_place(a, kBlockRowsOfWarp);
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kTokens;
  const DenseRows source{
      room.format, static_cast<const char*>(matrix.weight) + first_row * room.format.bytes_of(a.cols),
      matrix.rows - 1 - first_row, static_cast<int32_t>(a.cols)};
  FewBlocks<kTokens, DenseRows> products(source, room);
  products.count = static_cast<int>(at_most<int64_t>(kTokens, a.n - first));
  products.x_columns = a.cols;
  products.set_x(a.x + first * a.cols, a.cols);
  const Run run = run_of_warp(room.format.spans_of(a.cols));
  products.begin(run);
  after_predecessors();
  let_next_begin();
  products.add(run);
  products.store();
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRowsOfWarp * products.count;
       i += static_cast<int>(blockDim.x)) {
    const int64_t row = first_row + i % kBlockRowsOfWarp;
    const int t = i / kBlockRowsOfWarp;
    if (row < matrix.rows)
      write_product(a, matrix, first + t, row, room.room.sum(i % kBlockRowsOfWarp * kTokens + t));
  }
}

template <int kTokens>
MoestroCudaResult launch_blocks(const MoestroCudaMatmulGroup& a, const FewBlocksRoom& room, unsigned threads,
                                MoestroCudaStream stream) {
  const int64_t passes = divided_up(a.n, kTokens);
  if (passes > 65535) return MOESTRO_CUDA_REFUSED;
  const dim3 grid(group_blocks(a, kBlockRowsOfWarp), static_cast<unsigned>(passes));
  return launch_early(matmul_blocks_kernel<kTokens>, grid, dim3(threads), room.room.bytes(threads), stream, a, room);
}

}  // namespace

MoestroCudaResult matmul_blocks_few(const MoestroCudaMatmulGroup& a, MoestroCudaStream stream) {
  const BlockFormat format = block_format(a.dtype);
  if (!is_whole_blocks(format, a.cols) || !is_aligned16(a.x) || !are_aligned16(a)) return MOESTRO_CUDA_REFUSED;
  const int64_t spans = format.spans_of(a.cols);
  const FewBlocksRoom room = few_blocks_room(format, spans, a.cols);
  const unsigned threads = few_blocks_threads(spans);
  if (a.n == 1 && room.room.stages != 0) return launch_blocks<1>(a, room, threads, stream);
  return launch_blocks<kBlockTokensMax>(a, room, threads, stream);
}

}  // namespace moestro::kernels::cuda

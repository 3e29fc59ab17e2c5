// Rows of a table of blocks, such as an embedding, as f32.

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/simt.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

/// A thread for eight numbers of a row.
__global__ void gather_blocks_kernel(MoestroCudaGather a, BlockFormat format) {
  after_predecessors();
  let_next_begin();
  const int64_t of_row = divided_up(a.cols, kBlockPiece) * 8,
                unit = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, index = unit / of_row;
  if (index >= a.count) return;
  const auto in_row = static_cast<int32_t>(unit - index * of_row);
  const int column = in_row / 8 * kBlockPiece + first_column(format.half, in_row % 8);
  if (column >= a.cols) return;
  const char* row = static_cast<const char*>(a.table) + int64_t{a.ids[index]} * format.bytes_of(a.cols);
  float numbers[8] = {};
  with_block(format.dtype, [&](auto block) {
    using B = decltype(block);
    B::decode(row + int64_t{column / B::kColumns} * B::kBytes, column % B::kColumns, numbers);
  });
  float* to = a.y + index * a.cols + column;
  MOESTRO_UNROLL
  for (int i = 0; i < 8; ++i) to[i % 4 + i / 4 * format.half] = numbers[i];
}

}  // namespace

MoestroCudaResult gather_blocks(const MoestroCudaGather& a, MoestroCudaStream stream) {
  const BlockFormat format = block_format(a.dtype);
  if (!is_whole_blocks(format, a.cols)) return MOESTRO_CUDA_REFUSED;
  const int64_t units = a.count * divided_up(a.cols, kBlockPiece) * 8;
  return launch_early(gather_blocks_kernel, dim3(static_cast<unsigned>(divided_up(units, kThreads))), dim3(kThreads), 0,
                      stream, a, format);
}

}  // namespace moestro::kernels::cuda

#pragma once
// What the kernels of blocks have in common that compute a layer's experts in f32: all tokens of an expert in passes.

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/experts_unit.h"
#include "kernels/cuda/few_blocks.h"

namespace moestro::kernels::cuda {

/// Some tokens of an expert.
struct BlocksPass {
  const char* blob;
  int32_t first;  ///< of `sorted`
  int count;
};

/// Multiplies all of the thread block's rows; the sums are in `room` then.
template <typename Products>
__device__ inline void run_all(Products& products, int64_t spans) {
  const Run run = run_of_warp(static_cast<int32_t>(spans));
  products.begin(run);
  products.add(run);
  products.store();
  __syncthreads();
}

/// The tokens of a pass as x has them.
template <typename Products>
__device__ inline void set_gathered(Products& products, const MoestroCudaExperts& a, const BlocksPass& pass) {
  products.count = pass.count;
  products.x_columns = a.layout.hidden;
  MOESTRO_UNROLL
  for (int t = 0; t < Products::kTokensOf; ++t)
    products.x[t] = a.x + a.sorted[pass.first + at_most(t, pass.count - 1)].token * a.layout.hidden;
}

/// `Part` on all tokens of this block's expert.
template <typename Part>
__global__ void __launch_bounds__(kFewThreadsMax, 2) few_blocks_kernel(MoestroCudaExperts a, FewBlocksRoom room) {
  const ExpertWork work = expert_work(a);
  if (work.blob == nullptr) return;
  for (int32_t first = work.begin; first < work.end; first += kBlockTokensMax) {
    if (first > work.begin) __syncthreads();  // the room is read
    const BlocksPass pass{work.blob, first, at_most(kBlockTokensMax, static_cast<int>(work.end - first))};
    if (pass.count == 1 && room.room.stages != 0)
      Part::template run<1>(a, pass, room);
    else
      Part::template run<kBlockTokensMax>(a, pass, room);
  }
}

template <typename Part>
MoestroCudaResult launch_part(const MoestroCudaExperts& a, const BlockFormat& format, int64_t rows, int64_t spans,
                              int64_t columns_most, MoestroCudaStream stream) {
  const FewBlocksRoom room = few_blocks_room(format, spans, columns_most);
  const unsigned threads = few_blocks_threads(spans);
  const dim3 grid(static_cast<unsigned>(divided_up(rows, kBlockRowsOfWarp)), static_cast<unsigned>(a.active_max));
  return launch(few_blocks_kernel<Part>, grid, dim3(threads), room.room.bytes(threads), stream, a, room);
}

}  // namespace moestro::kernels::cuda

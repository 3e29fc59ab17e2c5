// Gate and up of a layer's experts in f32 where they have different formats, of which one at least is of blocks: one
// after the other.

#include "kernels/cuda/experts_blocks_few.h"

namespace moestro::kernels::cuda {
namespace {

/// Rows of gate, whose sums are kept, or of up, which are joined with them.
template <bool kGate>
struct Apart {
  template <int kTokens>
  __device__ static void run(const MoestroCudaExperts& a, const BlocksPass& pass, const FewBlocksRoom& room) {
    const auto first_f = static_cast<int32_t>(blockIdx.x) * kBlockRowsOfWarp;
    const DenseRows source = ffn_rows(a.layout, room.format, pass.blob, first_f, kGate);
    FewBlocks<kTokens, DenseRows> products(source, room);
    set_gathered(products, a, pass);
    run_all(products, room.format.spans_of(a.layout.hidden));
    for (int i = static_cast<int>(threadIdx.x); i < kBlockRowsOfWarp * pass.count; i += static_cast<int>(blockDim.x)) {
      const int row = i % kBlockRowsOfWarp, t = i / kBlockRowsOfWarp;
      if (first_f + row >= a.layout.ffn) continue;
      float& to = a.activated[(pass.first + t) * a.layout.ffn + first_f + row];
      const float sum = room.room.sum(row * kTokens + t);
      to = kGate ? sum : activated<ExactSigmoid>(a, pass.blob, first_f + row, to, sum);
    }
  }
};

}  // namespace

MoestroCudaResult gate_up_blocks_apart(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const MoestroCudaExpertLayout& l = a.layout;
  const BlockFormat gate = block_format(l.gate_dtype), up = block_format(l.up_dtype);
  const MoestroCudaResult result =
      launch_part<Apart<true>>(a, gate, l.ffn, gate.spans_of(l.hidden), l.hidden, stream);
  return result != 0 ? result : launch_part<Apart<false>>(a, up, l.ffn, up.spans_of(l.hidden), l.hidden, stream);
}

}  // namespace moestro::kernels::cuda

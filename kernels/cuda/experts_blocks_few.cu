// The experts of a layer in f32, weights of blocks: two kernels for all formats, act(gate x) * (up x), and down.
// Weights are read once for each 4 tokens of an expert.

#include "kernels/cuda/experts_blocks_few.h"

namespace moestro::kernels::cuda {
namespace {

struct GateUp {
  template <int kTokens>
  __device__ static void run(const MoestroCudaExperts& a, const BlocksPass& pass, const FewBlocksRoom& room) {
    constexpr int kHalf = kBlockRowsOfWarp / 2;
    const auto first_f = static_cast<int32_t>(blockIdx.x) * kHalf;
    const GateUpRows<kHalf> source(a.layout, room.format, pass.blob, first_f);
    FewBlocks<kTokens, GateUpRows<kHalf>> products(source, room);
    set_gathered(products, a, pass);
    run_all(products, room.format.spans_of(a.layout.hidden));
    for (int i = static_cast<int>(threadIdx.x); i < kHalf * pass.count; i += static_cast<int>(blockDim.x)) {
      const int row = i % kHalf, t = i / kHalf;
      if (first_f + row >= a.layout.ffn) continue;
      a.activated[(pass.first + t) * a.layout.ffn + first_f + row] =
          activated<ExactSigmoid>(a, pass.blob, first_f + row, room.room.sum(row * kTokens + t),
                                  room.room.sum((kHalf + row) * kTokens + t));
    }
  }
};

struct Down {
  template <int kTokens>
  __device__ static void run(const MoestroCudaExperts& a, const BlocksPass& pass, const FewBlocksRoom& room) {
    const auto first_h = static_cast<int32_t>(blockIdx.x) * kBlockRowsOfWarp;
    const DownRows source(a.layout, room.format, pass.blob, first_h);
    FewBlocks<kTokens, DownRows> products(source, room);
    products.count = pass.count;
    products.x_columns = a.layout.ffn;
    products.set_x(a.activated + pass.first * a.layout.ffn, a.layout.ffn);
    run_all(products, DownRows::spans(a.layout, room.format));
    for (int i = static_cast<int>(threadIdx.x); i < kBlockRowsOfWarp * pass.count; i += static_cast<int>(blockDim.x)) {
      const int row = i % kBlockRowsOfWarp, t = i / kBlockRowsOfWarp;
      if (first_h + row >= a.layout.hidden) continue;
      out_row(a, a.sorted[pass.first + t])[first_h + row] =
          with_down_bias(a, pass.blob, first_h + row, room.room.sum(row * kTokens + t));
    }
  }
};

}  // namespace

MoestroCudaResult experts_blocks_few(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const MoestroCudaExpertLayout& l = a.layout;
  const BlockFormat gate = block_format(l.gate_dtype), down = block_format(l.down_dtype);
  if (!block_experts_fit(l) || !is_aligned16(a.x) || !is_aligned16(a.activated)) return MOESTRO_CUDA_REFUSED;
  const MoestroCudaResult result =
      l.gate_dtype == l.up_dtype
          ? launch_part<GateUp>(a, gate, 2 * l.ffn, gate.spans_of(l.hidden), l.hidden, stream)
          : gate_up_blocks_apart(a, stream);
  return result != 0 ? result
                     : launch_part<Down>(a, down, l.hidden, DownRows::spans(l, down), l.full.ffn, stream);
}

}  // namespace moestro::kernels::cuda

// The experts of a layer: which kernels compute them, and those for shapes that no other kernel takes, in f32. These
// are two kernels with all of a layer's active experts in each, act(gate x) * (up x) and down. Weights of an expert are
// read once for each kTokensAtOnce of its tokens.

#include "kernels/cuda/blocks.h"
#include "kernels/cuda/experts_unit.h"
#include "kernels/cuda/few_tokens.h"
#include "kernels/cuda/many_tokens.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kWarps = 4;

/// A warp for each row of gate and up.
template <typename W>
__global__ void gate_up_kernel(MoestroCudaExperts a) {
  const ExpertWork work = expert_work(a);
  const int64_t f = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id(), hidden = a.layout.hidden;
  if (work.blob == nullptr || f >= a.layout.ffn) return;
  const int64_t tile = f / a.layout.tile_ffn, index = f % a.layout.tile_ffn;
  const MoestroCudaTile& at = tile_at(a.layout, tile);
  const char* base = work.blob + tile * a.layout.tile_bytes;
  const WeightRow rows[2] = {row_in<W>(base, at.gate, at.gate_scales, index, hidden),
                             row_in<W>(base, at.up, at.up_scales, index, hidden)};
  for (int64_t first = work.begin; first < work.end; first += kTokensAtOnce) {
    Tokens tokens{};
    tokens.count = static_cast<int>(at_most<int64_t>(kTokensAtOnce, work.end - first));
    for (int t = 0; t < tokens.count; ++t) tokens.x[t] = a.x + a.sorted[first + t].token * hidden;
    float sums[2][kTokensAtOnce] = {};
    for (int64_t unit = lane_id(); unit < W::units(hidden); unit += kWarp)
      add_unit<W>(rows, unit, tokens, loads_whole(a.x, hidden), sums);
    sum_lanes(tokens.count, sums);
    if (lane_id() != 0) continue;
    for (int t = 0; t < tokens.count; ++t)
      a.activated[(first + t) * a.layout.ffn + f] =
          activated<ExactSigmoid>(a, work.blob, f, sums[0][t], sums[1][t]);
  }
}

/// A warp for each row of down; its lanes share the units of all tiles, so that narrow tiles fill the warp.
template <typename W>
__global__ void down_kernel(MoestroCudaExperts a) {
  const ExpertWork work = expert_work(a);
  const int64_t h = static_cast<int64_t>(blockIdx.x) * kWarps + warp_id();
  if (work.blob == nullptr || h >= a.layout.hidden) return;
  const int64_t full_units = W::units(a.layout.full.ffn),
                units = (a.layout.tiles - 1) * full_units + W::units(a.layout.last.ffn);
  const bool aligned = loads_whole(a.activated, a.layout.ffn) && a.layout.tile_ffn % 4 == 0;
  for (int64_t first = work.begin; first < work.end; first += kTokensAtOnce) {
    const int count = static_cast<int>(at_most<int64_t>(kTokensAtOnce, work.end - first));
    float sums[1][kTokensAtOnce] = {};
    for (int64_t i = lane_id(); i < units; i += kWarp) {
      const int64_t tile = at_most(i / full_units, a.layout.tiles - 1);
      const MoestroCudaTile& at = tile_at(a.layout, tile);
      const WeightRow row[1] = {row_in<W>(work.blob + tile * a.layout.tile_bytes, at.down, at.down_scales, h, at.ffn)};
      Tokens tokens{};
      tokens.count = count;
      for (int t = 0; t < count; ++t) tokens.x[t] = a.activated + (first + t) * a.layout.ffn + tile * a.layout.tile_ffn;
      add_unit<W>(row, i - tile * full_units, tokens, aligned, sums);
    }
    sum_lanes(count, sums);
    if (lane_id() != 0) continue;
    for (int t = 0; t < count; ++t)
      out_row(a, a.sorted[first + t])[h] = with_down_bias(a, work.blob, h, sums[0][t]);
  }
}

template <typename W>
MoestroCudaResult launch_experts(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const auto grid_of = [&](int64_t rows) {
    return dim3(static_cast<unsigned>(divided_up(rows, kWarps)), static_cast<unsigned>(a.active_max));
  };
  const MoestroCudaResult result = launch(gate_up_kernel<W>, grid_of(a.layout.ffn), dim3(kWarps * kWarp), 0, stream, a);
  return result != 0 ? result : launch(down_kernel<W>, grid_of(a.layout.hidden), dim3(kWarps * kWarp), 0, stream, a);
}

}  // namespace

MoestroCudaResult experts(const MoestroCudaExperts* a, MoestroCudaStream stream) {
  if (has_block_experts(a->layout)) {
    const MoestroCudaResult result = a->rounded_tokens > 0 ? experts_blocks_many(*a, stream) : MOESTRO_CUDA_REFUSED;
    return result != MOESTRO_CUDA_REFUSED ? result : experts_blocks_few(*a, stream);
  }
  if (a->rounded_tokens > 0) {
    if (a->rows <= kFewRoundedMean * a->active_max) {
      const MoestroCudaResult result = experts_few_rounded(*a, stream);
      if (result != MOESTRO_CUDA_REFUSED) return result;
    }
    return experts_many(*a, stream);
  }
  if (const MoestroCudaResult result = experts_few(*a, stream); result != MOESTRO_CUDA_REFUSED) return result;
  switch (a->layout.dtype) {
    case MOESTRO_CUDA_F32: return launch_experts<PlainWeights<F32>>(*a, stream);
    case MOESTRO_CUDA_BF16: return launch_experts<PlainWeights<BF16>>(*a, stream);
    case MOESTRO_CUDA_F16: return launch_experts<PlainWeights<F16>>(*a, stream);
    case MOESTRO_CUDA_INT8: return launch_experts<Int8Weights>(*a, stream);
    case MOESTRO_CUDA_INT4: return launch_experts<Int4Weights>(*a, stream);
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

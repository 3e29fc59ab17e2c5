// The experts of a layer on few tokens each, on tensor cores: as experts_few.cu, with weights read once for up to 32
// tokens of an expert. Between the two kernels, activations are bf16.

#include "kernels/cuda/experts_unit.h"
#include "kernels/cuda/few_rounded.h"
#include "kernels/cuda/few_tokens.h"

namespace moestro::kernels::cuda {
namespace {

/// Some tokens of an expert.
struct Pass {
  const char* blob;
  int32_t first;  ///< of `sorted`
  int count;
};

__device__ uint16_t* activated_row(const MoestroCudaExperts& a, int64_t row) {
  return a.rounded_activated +
         row * divided_up(a.layout.ffn, MOESTRO_CUDA_ROUNDED_COLUMNS) * MOESTRO_CUDA_ROUNDED_COLUMNS;
}

/// Rows of gate and the same rows of up: they are the two halves of a side, so a lane has both sums.
template <typename S, bool kPlain>
struct GateUp {
  template <int kEights>
  __device__ static void run(const MoestroCudaExperts& a, const WarpGrid& warps, const Pass& pass) {
    using Products = FewRounded<S, float, kEights>;
    constexpr int kFfn = kRoundedRows / 2, kSize = kRoundedRows * Products::kTokens;
    const int32_t first_f = static_cast<int32_t>(blockIdx.x) * warps.across * kFfn,
                  own_f = at_most(first_f + warps.row_warp() * kFfn, static_cast<int32_t>(a.layout.ffn) - 1),
                  tile = own_f / static_cast<int32_t>(a.layout.tile_ffn),
                  in_tile = own_f - tile * static_cast<int32_t>(a.layout.tile_ffn);
    const MoestroCudaTile& at = tile_at(a.layout, tile);
    const char* base = pass.blob + tile * a.layout.tile_bytes;
    Products products{};
    products.loads.m = tiled_rows<S>(0, a.layout.hidden);
    products.columns = static_cast<int32_t>(a.layout.hidden);
    products.count = pass.count;
    MOESTRO_UNROLL
    for (int side = 0; side < 2; ++side) {
      const int64_t row = at_most<int64_t>(in_tile + side * 8 + Products::Loads::row_of_lane(), at.ffn - 1);
      products.loads.set_row(side * 2, base + at.gate, base + at.gate_scales, row);
      products.loads.set_row(side * 2 + 1, base + at.up, base + at.up_scales, row);
    }
    products.set_x([&](int token) { return a.x + a.sorted[pass.first + token].token * a.layout.hidden; });
    const Run run = warps.run(segments_of<kQuad>(products.loads.m));
    products.add(run.first, run.end);

    auto* room = reinterpret_cast<float*>(shared_memory());
    products.store(room + warp_id() * kSize);
    __syncthreads();
    const int ffn = warps.across * kFfn;
    for (int i = static_cast<int>(threadIdx.x); i < ffn * pass.count; i += static_cast<int>(blockDim.x)) {
      const int f = i % ffn, t = i / ffn, row = f % kFfn / 8 * 16 + f % 8;
      if (first_f + f >= a.layout.ffn) continue;
      const float gate = warps.sum(room, kSize, f / kFfn, row * Products::kTokens + t),
                  up = warps.sum(room, kSize, f / kFfn, (row + 8) * Products::kTokens + t);
      activated_row(a, pass.first + t)[first_f + f] =
          bf16_bits(activated<FastSigmoid, kPlain>(a, pass.blob, first_f + f, gate, up));
    }
  }
};

/// Rows of down, through all tiles. The last tile may be narrower than the others.
template <typename S, bool kPlain>
struct Down {
  template <typename Products>
  __device__ static void add_tiles(const MoestroCudaExperts& a, const WarpGrid& warps, const Pass& pass,
                                   int32_t first_h, Products& products) {
    const MoestroCudaExpertLayout& l = a.layout;
    const bool narrow = l.last.ffn != l.full.ffn;
    const int64_t equal_tiles = l.tiles - (narrow ? 1 : 0);
    const int32_t equal = static_cast<int32_t>(equal_tiles) * segments_of<kQuad>(tiled_rows<S>(0, l.full.ffn)),
                  rest = narrow ? segments_of<kQuad>(tiled_rows<S>(0, l.last.ffn)) : 0;
    const Run run = warps.run(equal + rest);
    for (int part = 0; part < 2; ++part) {
      const int32_t before = part == 0 ? 0 : equal, first = at_least(run.first, before) - before,
                    end = (part == 0 ? at_most(run.end, equal) : run.end) - before;
      if (first >= end) continue;
      const MoestroCudaTile& at = part == 0 ? l.full : l.last;
      const int64_t tile = part == 0 ? 0 : equal_tiles;
      const char* base = pass.blob + tile * l.tile_bytes;
      products.loads.m = tiled_rows<S>(l.tile_bytes, at.ffn);
      MOESTRO_UNROLL
      for (int r = 0; r < Products::kRows; ++r)
        products.loads.set_row(r, base + at.down, base + at.down_scales,
                               at_most<int64_t>(first_h + r * 8 + Products::Loads::row_of_lane(), l.hidden - 1));
      products.columns = static_cast<int32_t>(l.ffn - tile * l.tile_ffn);
      products.set_x([&](int token) { return activated_row(a, pass.first + token) + tile * l.tile_ffn; });
      products.add(first, end);
    }
  }

  template <int kEights>
  __device__ static void run(const MoestroCudaExperts& a, const WarpGrid& warps, const Pass& pass) {
    using Products = FewRounded<S, uint16_t, kEights>;
    constexpr int kSize = kRoundedRows * Products::kTokens;
    const int32_t first_h = static_cast<int32_t>(blockIdx.x) * warps.across * kRoundedRows;
    Products products{};
    products.count = pass.count;
    add_tiles(a, warps, pass, first_h + warps.row_warp() * kRoundedRows, products);
    auto* room = reinterpret_cast<float*>(shared_memory());
    products.store(room + warp_id() * kSize);
    __syncthreads();
    const int rows = warps.across * kRoundedRows;
    for (int i = static_cast<int>(threadIdx.x); i < rows * pass.count; i += static_cast<int>(blockDim.x)) {
      const int row = i % rows, t = i / rows;
      if (first_h + row >= a.layout.hidden) continue;
      const float sum = warps.sum(room, kSize, row / kRoundedRows, row % kRoundedRows * Products::kTokens + t);
      out_row(a, a.sorted[pass.first + t])[first_h + row] = with_down_bias<kPlain>(a, pass.blob, first_h + row, sum);
    }
  }
};

/// `Part` on all tokens of this block's expert.
template <typename Part>
__global__ void __launch_bounds__(kRoundedThreads, 2) few_rounded_kernel(MoestroCudaExperts a, int across) {
  const ExpertWork work = expert_work(a);
  if (work.blob == nullptr) return;
  const WarpGrid warps = WarpGrid::of_block(across);
  for (int32_t first = work.begin; first < work.end; first += kRoundedTokensAtOnce) {
    if (first > work.begin) __syncthreads();  // the room is read
    const Pass pass{work.blob, first, at_most(kRoundedTokensAtOnce, static_cast<int>(work.end - first))};
    if (pass.count <= 8)
      Part::template run<1>(a, warps, pass);
    else if (pass.count <= 16)
      Part::template run<2>(a, warps, pass);
    else
      Part::template run<4>(a, warps, pass);
  }
}

template <typename Part>
MoestroCudaResult launch_part(const MoestroCudaExperts& a, int64_t rows, MoestroCudaStream stream) {
  const int across = warps_across(rows * a.active_max);
  const dim3 grid(static_cast<unsigned>(divided_up(rows, across * kRoundedRows)), static_cast<unsigned>(a.active_max));
  return launch(few_rounded_kernel<Part>, grid, dim3(kRoundedThreads), rounded_room(a.rounded_tokens), stream, a,
                across);
}

template <typename S, bool kPlain>
MoestroCudaResult launch_few(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const MoestroCudaExpertLayout& l = a.layout;
  if (!has_whole_slots<S>(l.hidden) || !has_whole_slots<S>(l.full.ffn) || !has_whole_slots<S>(l.last.ffn) ||
      !is_aligned16(a.x) || !is_aligned16(a.rounded_activated))
    return MOESTRO_CUDA_REFUSED;
  const MoestroCudaResult result = launch_part<GateUp<S, kPlain>>(a, 2 * l.ffn, stream);
  return result != 0 ? result : launch_part<Down<S, kPlain>>(a, l.hidden, stream);
}

}  // namespace

MoestroCudaResult experts_few_rounded(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  return with_slot<true>(a.layout.dtype, [&](auto slot) {
    using Slot = decltype(slot);
    return is_plain(a) ? launch_few<Slot, true>(a, stream) : launch_few<Slot, false>(a, stream);
  });
}

}  // namespace moestro::kernels::cuda

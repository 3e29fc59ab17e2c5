// The experts of a layer in f32, for rows of whole slots: what bounds them is reading the weights, once for each 8
// tokens of an expert (4 of quantised ones). Two kernels, with all of a layer's active experts in each: act(gate x) *
// (up x), and down.

#include "kernels/cuda/experts_unit.h"
#include "kernels/cuda/few_products.h"
#include "kernels/cuda/few_tokens.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kRows = 4;

template <typename S, int kLanes, int kTokens>
using ExpertProducts = FewProducts<S, kLanes, kRows, kTokens>;

/// Some tokens of an expert.
struct Pass {
  const char* blob;
  int32_t first;  ///< of `sorted`
  int count;
};

/// Rows of gate and the same rows of up.
template <typename S, bool kPlain>
struct GateUp {
  static constexpr int kLanes = S::kLanes, kTokensMax = S::kTokensMax;

  template <int kTokens>
  __device__ static void run(const MoestroCudaExperts& a, const Pass& pass, const FewRoom& room) {
    using Products = ExpertProducts<S, kLanes, kTokens>;
    constexpr int kApart = Products::kRowsApart, kHalf = kRows / 2, kFfn = kHalf * kApart;
    const auto first_f = static_cast<int32_t>(blockIdx.x) * kFfn,
               tile = first_f / static_cast<int32_t>(a.layout.tile_ffn),
               in_tile = first_f - tile * static_cast<int32_t>(a.layout.tile_ffn);
    const MoestroCudaTile& at = tile_at(a.layout, tile);
    const char* base = pass.blob + tile * a.layout.tile_bytes;
    Products products{};
    products.m = tiled_rows<S>(0, a.layout.hidden);
    MOESTRO_UNROLL
    for (int r = 0; r < kHalf; ++r) {
      const int64_t row = at_most<int64_t>(in_tile + r * kApart + Products::Loads::row_of_lane(), at.ffn - 1);
      products.set_row(r, base + at.gate, base + at.gate_scales, row);
      products.set_row(kHalf + r, base + at.up, base + at.up_scales, row);
    }
    products.count = pass.count;
    products.columns = a.layout.hidden;
    products.staged = room.of_warp();
    MOESTRO_UNROLL
    for (int t = 0; t < kTokens; ++t)
      products.x[t] = a.x + a.sorted[pass.first + at_most(t, pass.count - 1)].token * a.layout.hidden;
    const Run run = run_of_warp(segments_of<kLanes>(products.m));
    products.add(run.first, run.end);

    products.store(room.of_warp());
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kFfn * pass.count; i += static_cast<int>(blockDim.x)) {
      const int row = i % kFfn, t = i / kFfn;
      if (first_f + row >= a.layout.ffn) continue;
      a.activated[(pass.first + t) * a.layout.ffn + first_f + row] = activated<ExactSigmoid, kPlain>(
          a, pass.blob, first_f + row, room.sum(row * kTokens + t), room.sum((kFfn + row) * kTokens + t));
    }
  }
};

/// Rows of down, through all tiles. The last tile may be narrower than the others.
template <typename S, int kLanesOfTile, bool kPlain>
struct Down {
  static constexpr int kLanes = kLanesOfTile, kTokensMax = S::kTokensMax;

  template <typename Products>
  __device__ static void add_tiles(const MoestroCudaExperts& a, const Pass& pass, int32_t first_h, Products& products) {
    const MoestroCudaExpertLayout& l = a.layout;
    const bool narrow = l.last.ffn != l.full.ffn;
    const int64_t equal_tiles = l.tiles - (narrow ? 1 : 0);
    const int32_t equal = static_cast<int32_t>(equal_tiles) * segments_of<kLanes>(tiled_rows<S>(0, l.full.ffn)),
                  rest = narrow ? segments_of<kLanes>(tiled_rows<S>(0, l.last.ffn)) : 0;
    const Run run = run_of_warp(equal + rest);
    for (int part = 0; part < 2; ++part) {
      const int32_t before = part == 0 ? 0 : equal, first = at_least(run.first, before) - before,
                    end = (part == 0 ? at_most(run.end, equal) : run.end) - before;
      if (first >= end) continue;
      const MoestroCudaTile& at = part == 0 ? l.full : l.last;
      const int64_t tile = part == 0 ? 0 : equal_tiles;
      const char* base = pass.blob + tile * l.tile_bytes;
      products.m = tiled_rows<S>(l.tile_bytes, at.ffn);
      MOESTRO_UNROLL
      for (int r = 0; r < kRows; ++r)
        products.set_row(
            r, base + at.down, base + at.down_scales,
            at_most<int64_t>(first_h + r * Products::kRowsApart + Products::Loads::row_of_lane(), l.hidden - 1));
      products.columns = l.ffn - tile * l.tile_ffn;
      products.set_x(a.activated + pass.first * l.ffn + tile * l.tile_ffn, l.ffn);
      products.add(first, end);
    }
  }

  template <int kTokens>
  __device__ static void run(const MoestroCudaExperts& a, const Pass& pass, const FewRoom& room) {
    using Products = ExpertProducts<S, kLanes, kTokens>;
    constexpr int kOut = Products::kRowsOfWarp;
    const auto first_h = static_cast<int32_t>(blockIdx.x) * kOut;
    Products products{};
    products.count = pass.count;
    products.staged = room.of_warp();
    add_tiles(a, pass, first_h, products);
    products.store(room.of_warp());
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kOut * pass.count; i += static_cast<int>(blockDim.x)) {
      const int row = i % kOut, t = i / kOut;
      if (first_h + row >= a.layout.hidden) continue;
      out_row(a, a.sorted[pass.first + t])[first_h + row] =
          with_down_bias<kPlain>(a, pass.blob, first_h + row, room.sum(row * kTokens + t));
    }
  }
};

/// `Part` on all tokens of this block's expert.
template <typename Part>
__global__ void __launch_bounds__(kFewThreadsMax, 2) few_kernel(MoestroCudaExperts a, FewRoom room) {
  const ExpertWork work = expert_work(a);
  if (work.blob == nullptr) return;
  constexpr int kMost = Part::kTokensMax;
  for (int32_t first = work.begin; first < work.end; first += kMost) {
    if (first > work.begin) __syncthreads();  // the room is read
    const Pass pass{work.blob, first, at_most(kMost, static_cast<int>(work.end - first))};
    if (pass.count == 1 && room.stages != 0)
      Part::template run<1>(a, pass, room);
    else if (pass.count <= 4)
      Part::template run<4>(a, pass, room);
    else if constexpr (kMost > 4)
      Part::template run<kMost>(a, pass, room);
  }
}

template <typename S, int kLanes>
constexpr int64_t rows_of_block() {
  return ExpertProducts<S, kLanes, 1>::kRowsOfWarp;
}

template <typename Part, typename S>
MoestroCudaResult launch_part(const MoestroCudaExperts& a, int64_t rows, int64_t segments, MoestroCudaStream stream) {
  const int64_t of_block = rows_of_block<S, Part::kLanes>();
  const unsigned threads = few_threads(static_cast<int32_t>(segments));
  const dim3 grid(static_cast<unsigned>(divided_up(rows, of_block)), static_cast<unsigned>(a.active_max));
  const FewRoom room = few_room(segments, Part::kLanes * S::kColumns, of_block * Part::kTokensMax);
  return launch(few_kernel<Part>, grid, dim3(threads), room.bytes(threads), stream, a, room);
}

template <typename S, bool kPlain>
MoestroCudaResult launch_down(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const int64_t slots = divided_up(a.layout.ffn, S::kColumns);
  // Tiles of which there are several consist of whole segments.
  if constexpr (S::kGroupSlots == 2) {
    if (a.layout.tiles > 1 && a.layout.tile_ffn % (S::kColumns * S::kLanes) != 0)
      return launch_part<Down<S, 2, kPlain>, S>(a, a.layout.hidden, divided_up(slots, 2), stream);
  }
  return launch_part<Down<S, S::kLanes, kPlain>, S>(a, a.layout.hidden, divided_up(slots, S::kLanes), stream);
}

template <typename S, bool kPlain>
MoestroCudaResult launch_few(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const MoestroCudaExpertLayout& l = a.layout;
  if (!has_whole_slots<S>(l.hidden) || !has_whole_slots<S>(l.full.ffn) || !has_whole_slots<S>(l.last.ffn) ||
      !is_aligned16(a.x) || !is_aligned16(a.activated))
    return MOESTRO_CUDA_REFUSED;
  const int64_t segments = divided_up(l.hidden / S::kColumns, S::kLanes);
  const MoestroCudaResult result = launch_part<GateUp<S, kPlain>, S>(a, 2 * l.ffn, segments, stream);
  return result != 0 ? result : launch_down<S, kPlain>(a, stream);
}

}  // namespace

MoestroCudaResult experts_few(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  return with_slot<false>(a.layout.dtype, [&](auto slot) {
    using Slot = decltype(slot);
    return is_plain(a) ? launch_few<Slot, true>(a, stream) : launch_few<Slot, false>(a, stream);
  });
}

}  // namespace moestro::kernels::cuda

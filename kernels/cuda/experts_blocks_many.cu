// The experts of a layer on many tokens, weights of blocks: products on tensor cores, one pair of kernels for all
// formats and each shape of tiles.

#include "kernels/cuda/block_tiles.h"
#include "kernels/cuda/blocks.h"
#include "kernels/cuda/experts_tiles.h"

namespace moestro::kernels::cuda {
namespace {

/// Rows of x, or of what gate and up have become.
struct GatheredTokens {
  const MoestroCudaExperts& a;
  const TokensByRows& tokens;
  __device__ const uint16_t* any_x() const { return a.rounded_x; }
  __device__ const uint16_t* x(int token) const {
    return token < tokens.count ? a.rounded_x + a.sorted[tokens.first + token].token * rounded_columns(a.layout.hidden)
                                : nullptr;
  }
};
struct ActivatedTokens {
  const MoestroCudaExperts& a;
  const TokensByRows& tokens;
  __device__ const uint16_t* any_x() const { return a.rounded_activated; }
  __device__ const uint16_t* x(int token) const {
    return token < tokens.count ? a.rounded_activated + (tokens.first + token) * rounded_columns(a.layout.ffn)
                                : nullptr;
  }
};

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksOfSm) gate_up_blocks_kernel(MoestroCudaExperts a,
                                                                                     uint32_t row_tiles,
                                                                                     BlockTilesRoom room) {
  using Rows = GateUpRows<S::kRows / 2>;
  const TokensByRows tokens = tokens_by_rows(a, S::kTokens, row_tiles);
  if (tokens.blob == nullptr) return;
  const Rows rows(a.layout, room.format, tokens.blob, tokens.row_tile * (S::kRows / 2));
  const GatheredTokens x{a, tokens};
  BlockSource<S, Rows, GatheredTokens> source(room, rows, x, a.layout.hidden, room.format.spans_of(a.layout.hidden));
  ProductTile<DecodedTiles, S, 2, true, decltype(source)> tile(source);
  tile.run(0, source.tile_pieces);
  write_activated<S, false>(a, tokens, tile);
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksOfSm) down_blocks_kernel(MoestroCudaExperts a,
                                                                                  uint32_t row_tiles,
                                                                                  BlockTilesRoom room) {
  const TokensByRows tokens = tokens_by_rows(a, S::kTokens, row_tiles);
  if (tokens.blob == nullptr) return;
  const DownRows rows(a.layout, room.format, tokens.blob, tokens.row_tile * S::kRows);
  const ActivatedTokens x{a, tokens};
  BlockSource<S, DownRows, ActivatedTokens> source(room, rows, x, a.layout.full.ffn,
                                                   DownRows::spans(a.layout, room.format));
  ProductTile<DecodedTiles, S, 1, true, decltype(source)> tile(source);
  tile.run(0, static_cast<int>(divided_up(a.layout.ffn, S::kDepth)));
  write_out<S>(a, tokens, tile);
}

template <typename S>
MoestroCudaResult launch_blocks(const MoestroCudaExperts& a, const BlockTilesRoom& gate_up, const BlockTilesRoom& down,
                                MoestroCudaStream stream) {
  const auto launched = [&](auto kernel, const BlockTilesRoom& room) {
    return [&a, &room, stream, kernel](dim3 blocks, uint32_t row_tiles) {
      return launch(kernel, blocks, dim3(S::kThreads), static_cast<uint64_t>(block_tiles_bytes<S>(room)), stream, a,
                    row_tiles, room);
    };
  };
  return launch_experts_on_tiles<DecodedTiles, S>(a, stream, launched(gate_up_blocks_kernel<S>, gate_up),
                                                  launched(down_blocks_kernel<S>, down));
}

}  // namespace

MoestroCudaResult experts_blocks_many(const MoestroCudaExperts& a, MoestroCudaStream stream) {
  const MoestroCudaExpertLayout& l = a.layout;
  if (!block_experts_fit(l) || l.gate_dtype != l.up_dtype) return MOESTRO_CUDA_REFUSED;
  const BlockTilesRoom gate_up = block_tiles_room(block_format(l.gate_dtype), l.hidden),
                       down = block_tiles_room(block_format(l.down_dtype), l.full.ffn);
  const BlockTilesRoom& larger = gate_up.span.pitch > down.span.pitch ? gate_up : down;
  return with_block_shape(a.rows / a.active_max, larger, [&](auto shape) {
    return launch_blocks<decltype(shape)>(a, gate_up, down, stream);
  });
}

}  // namespace moestro::kernels::cuda

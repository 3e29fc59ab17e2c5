#pragma once
// Weights of blocks in the kernels of many tokens (product_tile.h): spans of a tile's rows are copied to shared memory
// as they are, one ahead, behind the stages. From there each piece of 64 columns is decoded to its stage: eight lanes
// for a row, each number rounded to bf16 once. The format is known at run time, so there is one kernel for all.

#include "kernels/cuda/block_rows.h"
#include "kernels/cuda/product_tile.h"

namespace moestro::kernels::cuda {

/// What a launch knows.
struct BlockTilesRoom {
  BlockFormat format;
  SpanRoom span;
};
inline BlockTilesRoom block_tiles_room(const BlockFormat& format, int64_t columns_most) {
  return {format, span_room(format, columns_most)};
}
/// Shared memory: the stages, then two spans of each row.
template <typename S>
int64_t block_tiles_bytes(const BlockTilesRoom& room) {
  return StageBytes<DecodedTiles, S>::kAll + 2 * S::kRows * room.span.pitch;
}

/// A `Source` of ProductTile over `Rows` (block_rows.h). `Tokens` has x() and any_x().
template <typename S, typename Rows, typename Tokens>
struct BlockSource {
  static_assert(S::kDepth == kBlockPiece);
  const BlockTilesRoom& room;
  const Rows& rows;
  const Tokens& tokens;
  int32_t tile_pieces, tile_spans;  ///< of a tile of an expert's down; of a whole row otherwise
  int32_t spans_end;                ///< of all
  int32_t tile = 0, in_tile = 0;    ///< of the next piece: its tile, and its number there
  int32_t span = 0, copied = 0;     ///< the span of the last piece, and the first one that is not being copied

  __device__ BlockSource(const BlockTilesRoom& room_, const Rows& rows_, const Tokens& tokens_, int64_t tile_columns,
                         int64_t spans)
      : room(room_),
        rows(rows_),
        tokens(tokens_),
        tile_pieces(static_cast<int32_t>(divided_up(tile_columns, kBlockPiece))),
        tile_spans(room_.format.spans_of(tile_columns)),
        spans_end(static_cast<int32_t>(spans)) {}

  __device__ const uint16_t* x(int token) const { return tokens.x(token); }
  __device__ const uint16_t* any_x() const { return tokens.any_x(); }

  __device__ int32_t span_now() const { return tile * tile_spans + (in_tile * kBlockPiece >> room.format.span_bits); }
  __device__ int32_t column_of_span() const { return in_tile * kBlockPiece & (room.format.span_columns() - 1); }
  __device__ char* at(int32_t s) const {
    return shared_memory() + StageBytes<DecodedTiles, S>::kAll + s % 2 * (S::kRows * room.span.pitch);
  }

  __device__ void start(int piece) {
    tile = piece / tile_pieces;
    in_tile = piece - tile * tile_pieces;
    span = span_now();
    copied = span;
    copy();
    copy();
    commit_copies();
    arrive();
  }
  /// Begins to copy the next span, if there is one. They are of the group that the caller commits.
  __device__ void copy() {
    if (copied < spans_end)
      copy_spans(at(copied), room.span, room.format, rows, copied, S::kRows, static_cast<int>(threadIdx.x),
                 S::kThreads);
    ++copied;
  }
  __device__ static void arrive() {
    wait_copies<0>();
    __syncthreads();
  }

  /// Two pieces after a copy was begun it has ended: the tile waits for all but the last group. A span of one piece is
  /// the only case with less.
  __device__ void fill(char* to) {
    const int32_t s = span_now();
    if (s != span) {
      if (pieces_of_span_ < 2) arrive();
      span = s;
      pieces_of_span_ = 0;
      copy();  // to where the span before this one was
    }
    ++pieces_of_span_;
    decode(s, column_of_span(), to);
    if (++in_tile < tile_pieces) return;
    in_tile = 0;
    ++tile;
  }

 private:
  __device__ void decode(int32_t s, int piece, char* to) const {
    constexpr int kLanes = 8, kAtOnce = S::kThreads / kLanes;
    const int lane = static_cast<int>(threadIdx.x) % kLanes, half = room.format.half,
              column = piece + first_column(half, lane), columns = rows.columns(s);
    const char* spans = at(s);
#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x) / kLanes; row < S::kRows; row += kAtOnce * kRowsOfTurn) {
      float w[kRowsOfTurn][8];
      const char* first[kRowsOfTurn];
      MOESTRO_UNROLL
      for (int r = 0; r < kRowsOfTurn; ++r) {
        const int index = row + r * kAtOnce;
        first[r] = spans + index * room.span.pitch + past_sixteen(rows.row(s, index));
      }
      with_block(room.format.dtype, [&](auto block) {
        using B = decltype(block);
        MOESTRO_UNROLL
        for (int r = 0; r < kRowsOfTurn; ++r) {
          if (column < columns) {
            B::decode(first[r] + column / B::kColumns * B::kBytes, column % B::kColumns, w[r]);
          } else {
            MOESTRO_UNROLL
            for (int i = 0; i < 8; ++i) w[r][i] = 0.0f;
          }
        }
      });
      MOESTRO_UNROLL
      for (int r = 0; r < kRowsOfTurn; ++r) {
        MOESTRO_UNROLL
        for (int four = 0; four < 2; ++four) {
          const int c = column - piece + four * half;
          store_as(to + swizzled<StageBytes<DecodedTiles, S>::kWRow>(row + r * kAtOnce, c / 8) + c % 8 * 2,
                   Bytes8{bf16_pair(w[r][four * 4], w[r][four * 4 + 1]),
                          bf16_pair(w[r][four * 4 + 2], w[r][four * 4 + 3])});
        }
      }
    }
  }
  static constexpr int kRowsOfTurn = 2;
  static_assert(S::kRows % (S::kThreads / 8 * kRowsOfTurn) == 0);
  int32_t pieces_of_span_ = 0;
};

/// For up to 32 tokens, where the weights' bytes are most of the cost; for more; and for formats of few bytes, whose
/// decoding more tokens share. What they need of shared memory fits every card.
using BlockNarrowTile = TileShape<32, 64, 2, 2, 64, 3, 3>;
using BlockTile = TileShape<64, 64, 2, 2, 64, 3, 2>;
using BlockWideTile = TileShape<128, 64, 2, 2, 64, 3, 2>;

/// launch(shape) with the shape for so many tokens of a matrix.
template <typename Launch>
MoestroCudaResult with_block_shape(int64_t tokens, const BlockTilesRoom& room, Launch launch) {
  if (tokens <= 32) return launch(BlockNarrowTile{});
  if (tokens > 64 && block_tiles_bytes<BlockWideTile>(room) <= kSharedOfEveryCard) return launch(BlockWideTile{});
  return launch(BlockTile{});
}

}  // namespace moestro::kernels::cuda

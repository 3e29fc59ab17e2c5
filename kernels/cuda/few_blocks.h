#pragma once
// Products of a few rows of blocks with a few tokens by a warp, in f32, for work that memory limits: what
// few_products.h is for the other formats. Rows of blocks are no whole slots of 16 bytes, so spans of a warp's 16 rows
// are copied to shared memory, one ahead of the one that is multiplied. Eight lanes share a row's piece of 64 columns,
// and each has four rows, so that activations that it has loaded serve four of them. The format is known at run time: a
// switch for each piece of 16 rows costs little, and there is one kernel for all formats.
//
// The order of a sum depends on the row's width and format alone: a lane adds up its columns of its warp's spans; then
// lanes are summed, then warps.

#include "kernels/cuda/block_rows.h"
#include "kernels/cuda/few_products.h"

namespace moestro::kernels::cuda {

inline constexpr int kBlockLanes = 8, kBlockRowsOfLane = 4, kBlockRowsApart = kWarp / kBlockLanes,
                     kBlockRowsOfWarp = kBlockRowsOfLane * kBlockRowsApart, kBlockTokensMax = 4;

/// What a launch knows of its shared memory: each warp has two spans of its rows, and one token's activations.
struct FewBlocksRoom {
  BlockFormat format;
  SpanRoom span;
  FewRoom room;  ///< of sums, where spans have been; its floats are all of a warp's
  __host__ __device__ int32_t spans_bytes() const { return 2 * kBlockRowsOfWarp * span.pitch; }
};

inline unsigned few_blocks_threads(int64_t spans) { return (spans >= 16 ? 8 : 4) * kWarp; }

/// For rows of so many spans, of up to `columns_most` columns.
inline FewBlocksRoom few_blocks_room(const BlockFormat& format, int64_t spans, int64_t columns_most) {
  FewBlocksRoom r{format, span_room(format, columns_most), {}};
  const int64_t warps = few_blocks_threads(spans) / kWarp,
                columns = divided_up(at_most<int64_t>(columns_most, format.span_columns()), kBlockPiece) * kBlockPiece,
                run = divided_up(spans, warps) * columns,
                floats = r.spans_bytes() / static_cast<int64_t>(sizeof(float));
  const bool stages = (floats + run) * static_cast<int64_t>(sizeof(float)) * warps <= kSharedOfEveryCard;
  r.room = {static_cast<int32_t>(floats + (stages ? run : 0)), stages ? 1 : 0};
  return r;
}

/// The place of a four of activations where the first fours of eight lanes are side by side, and then their second
/// ones.
__host__ __device__ constexpr int placed_four(int half, int four) {
  return half == 16 ? (four & ~12) | (four & 4) << 1 | (four & 8) >> 1 : four;
}

template <int kTokens, typename Rows>
struct FewBlocks {
  static constexpr int kTokensOf = kTokens;
  const Rows& source;
  const FewBlocksRoom& place;
  const float* x[kTokens];  ///< from column 0 of the activations on
  int64_t x_columns;        ///< that there are
  int count;                ///< tokens that there are
  float sums[kBlockRowsOfLane][kTokens] = {};

  __device__ FewBlocks(const Rows& source_, const FewBlocksRoom& place_) : source(source_), place(place_) {}

  __device__ static int lane_of_row() { return lane_id() % kBlockLanes; }
  __device__ static int row_of_lane(int r) { return r * kBlockRowsApart + lane_id() / kBlockLanes; }

  /// Tokens whose activations lie one after another.
  __device__ void set_x(const float* first, int64_t apart) {
    MOESTRO_UNROLL
    for (int t = 0; t < kTokens; ++t) x[t] = first + at_most(t, count - 1) * apart;
  }

  /// Begins to copy what add() reads first: weights alone.
  __device__ void begin(const Run& run) const {
    if (run.first < run.end) copy(run.first);
    commit_copies();
  }

  /// Adds the products of a run's spans, after begin().
  __device__ void add(const Run& run) {
    run_column_ = source.first_column(run.first);
    if constexpr (kTokens == 1) stage(run);
#pragma unroll 1
    for (int32_t s = run.first; s < run.end; ++s) {
      if (s + 1 < run.end) copy(s + 1);
      commit_copies();
      wait_copies<1>();
      __syncwarp();
      add_span(s);
      __syncwarp();  // the span is read, and may be copied to
    }
    wait_copies<0>();
  }

  /// Writes this warp's sums, over its lanes, to room[row of the warp][token], where its spans have been.
  __device__ void store() {
    float* room = place.room.of_warp();
    __syncwarp();
    warp_sum_rows<kBlockLanes>(sums, kTokens > 1 ? count : 1, [&](int r, int t, float sum) {
      if (lane_of_row() == 0) room[row_of_lane(r) * kTokens + t] = sum;
    });
  }

 private:
  __device__ char* spans(int32_t s) const {
    return reinterpret_cast<char*>(place.room.of_warp()) + s % 2 * (kBlockRowsOfWarp * place.span.pitch);
  }
  __device__ float* staged() const { return place.room.of_warp() + place.spans_bytes() / sizeof(float); }

  __device__ void copy(int32_t s) const {
    copy_spans(spans(s), place.span, place.format, source, s, kBlockRowsOfWarp, lane_id(), kWarp);
  }

  /// Copies a run's activations so that the lanes of a piece find their fours side by side.
  __device__ void stage(const Run& run) const {
    if (run.first >= run.end) return;
    const int64_t end = source.first_column(run.end - 1) + source.columns(run.end - 1);
    const auto fours = static_cast<int32_t>(divided_up(end - run_column_, kBlockPiece) * (kBlockPiece / 4));
    __syncwarp();  // those of the run before are read
#pragma unroll 4
    for (int32_t i = lane_id(); i < fours; i += kWarp) {
      Bytes16 four{};
      if (run_column_ + 4 * i < x_columns) four = load_as<Bytes16>(x[0] + run_column_ + 4 * i);
      store_as(staged() + 4 * placed_four(place.format.half, i), four);
    }
    __syncwarp();
  }

  /// The activations of a lane's two fours; `column` is the first four's.
  __device__ void load_x(int t, int64_t column, float (&to)[8]) const {
    MOESTRO_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t at = column + half * place.format.half;
      const float* from = kTokens > 1 ? x[t] + at
                                      : staged() + 4 * placed_four(place.format.half,
                                                                   static_cast<int>(at - run_column_) / 4);
      const Bytes16 four = load_as<Bytes16>(from);
      MOESTRO_UNROLL
      for (int i = 0; i < 4; ++i) to[half * 4 + i] = bits_to_float(four.words[i]);
    }
  }

  __device__ void add_span(int32_t s) {
    const char* rows[kBlockRowsOfLane];
    MOESTRO_UNROLL
    for (int r = 0; r < kBlockRowsOfLane; ++r) {
      const int row = row_of_lane(r);
      rows[r] = spans(s) + row * place.span.pitch + past_sixteen(source.row(s, row));
    }
    const int columns = source.columns(s);
    const int64_t x_column = source.first_column(s);
#pragma unroll 1
    for (int piece = 0; piece < columns; piece += kBlockPiece) {
      const int column = piece + first_column(place.format.half, lane_of_row());
      if (column < columns) add_fours(rows, column, x_column + column);
    }
  }

  __device__ void add_fours(const char* const (&rows)[kBlockRowsOfLane], int column, int64_t x_column) {
    float w[kBlockRowsOfLane][8];
    with_block(place.format.dtype, [&](auto block) {
      using B = decltype(block);
      MOESTRO_UNROLL
      for (int r = 0; r < kBlockRowsOfLane; ++r)
        B::decode(rows[r] + column / B::kColumns * B::kBytes, column % B::kColumns, w[r]);
    });
    MOESTRO_UNROLL
    for (int t = 0; t < kTokens; ++t) {
      if (kTokens > 1 && t >= count) break;
      float activations[8];
      load_x(t, x_column, activations);
      MOESTRO_UNROLL
      for (int i = 0; i < 8; ++i) {
        MOESTRO_UNROLL
        for (int r = 0; r < kBlockRowsOfLane; ++r) sums[r][t] = multiply_add(w[r][i], activations[i], sums[r][t]);
      }
    }
  }

  int64_t run_column_ = 0;  ///< the first of the run
};

}  // namespace moestro::kernels::cuda

#pragma once
// Where rows of blocks are that a warp or a thread block multiplies, and their way to shared memory. A row is read in
// spans (BlockFormat), which do not cross the tiles of an expert. The bytes of a span begin anywhere, so the aligned 16
// bytes that have some of them are copied, and in shared memory it begins at the same remainder of 16.
//
// Rows of a source have, for span number `s`:
//   int columns(s)               of it
//   int64_t first_column(s)      of the activations
//   const char* row(s, row)      where row number `row` has it; a valid place also for rows that are not there

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/block_formats.h"
#include "kernels/cuda/experts_work.h"

namespace moestro::kernels::cuda {

/// Rows of a matrix that follow each other.
struct DenseRows {
  const BlockFormat& format;
  const char* first;
  int64_t last;  ///< row of the matrix, from the first of these
  int32_t cols;

  __device__ int columns(int32_t s) const { return at_most(format.span_columns(), cols - s * format.span_columns()); }
  __device__ int64_t first_column(int32_t s) const { return int64_t{s} * format.span_columns(); }
  __device__ const char* row(int32_t s, int row) const {
    return first + at_most<int64_t>(row, last) * format.bytes_of(cols) + int64_t{s} * format.span_bytes();
  }
};

/// Rows of an expert's gate or up, from `first` on, which may be behind the last. They are in one tile, as a tile is
/// whole 64 rows, unless it is the only one.
__device__ inline DenseRows ffn_rows(const MoestroCudaExpertLayout& l, const BlockFormat& format, const char* blob,
                                     int32_t first, bool of_gate) {
  first = at_most(first, static_cast<int32_t>(l.ffn) - 1);
  const auto tile_ffn = static_cast<int32_t>(l.tile_ffn), tile = first / tile_ffn, in_tile = first - tile * tile_ffn;
  const MoestroCudaTile& at = tile_at(l, tile);
  const char* rows = blob + tile * l.tile_bytes + (of_gate ? at.gate : at.up);
  return {format, rows + int64_t{in_tile} * format.bytes_of(l.hidden), at.ffn - 1 - in_tile,
          static_cast<int32_t>(l.hidden)};
}

/// kHalf rows of an expert's gate, then the same rows of up, in one format.
template <int kHalf>
struct GateUpRows {
  DenseRows gate, up;

  __device__ GateUpRows(const MoestroCudaExpertLayout& l, const BlockFormat& format, const char* blob, int32_t first)
      : gate(ffn_rows(l, format, blob, first, true)), up(ffn_rows(l, format, blob, first, false)) {}

  __device__ int columns(int32_t s) const { return gate.columns(s); }
  __device__ int64_t first_column(int32_t s) const { return gate.first_column(s); }
  __device__ const char* row(int32_t s, int row) const {
    return row < kHalf ? gate.row(s, row) : up.row(s, row - kHalf);
  }
};

/// Rows of an expert's down, whose columns are cut into tiles.
struct DownRows {
  const MoestroCudaExpertLayout& l;
  const BlockFormat& format;
  const char* blob;
  int32_t first;       ///< row
  int32_t tile_spans;  ///< of every tile but the last

  __device__ DownRows(const MoestroCudaExpertLayout& layout, const BlockFormat& format_, const char* blob_,
                      int32_t first_)
      : l(layout), format(format_), blob(blob_), first(first_), tile_spans(format_.spans_of(layout.full.ffn)) {}
  __host__ __device__ static int64_t spans(const MoestroCudaExpertLayout& l, const BlockFormat& format) {
    return (l.tiles - 1) * format.spans_of(l.full.ffn) + format.spans_of(l.last.ffn);
  }

  __device__ int32_t tile_of(int32_t s) const { return at_most(s / tile_spans, static_cast<int32_t>(l.tiles) - 1); }
  __device__ int32_t in_tile(int32_t s) const { return s - tile_of(s) * tile_spans; }
  __device__ int columns(int32_t s) const {
    return at_most(format.span_columns(),
                   static_cast<int32_t>(tile_at(l, tile_of(s)).ffn) - in_tile(s) * format.span_columns());
  }
  __device__ int64_t first_column(int32_t s) const {
    return tile_of(s) * l.tile_ffn + int64_t{in_tile(s)} * format.span_columns();
  }
  __device__ const char* row(int32_t s, int row) const {
    const int32_t tile = tile_of(s);
    const MoestroCudaTile& at = tile_at(l, tile);
    return blob + tile * l.tile_bytes + at.down +
           at_most<int64_t>(first + row, l.hidden - 1) * format.bytes_of(at.ffn) +
           int64_t{in_tile(s)} * format.span_bytes();
  }
};

/// Where the spans of some rows lie in shared memory, and which threads copy them.
struct SpanRoom {
  int32_t pitch = 0;  ///< bytes from a row to the next; an odd multiple of 32, so that four rows are in other banks
  int32_t lanes = 1;  ///< that copy a row together: a power of two, of 16 bytes each
};
inline SpanRoom span_room(const BlockFormat& format, int64_t columns_most) {
  const int64_t columns = at_most<int64_t>(columns_most, format.span_columns()),
                bytes = divided_up(columns, format.columns()) * format.bytes;
  auto chunks = static_cast<int32_t>(divided_up(15 + bytes, 16));
  SpanRoom room;
  while (room.lanes < chunks) room.lanes *= 2;
  while (chunks % 4 != 2) ++chunks;
  room.pitch = chunks * 16;
  return room;
}

/// The remainder of 16 at which a row's span begins.
__device__ inline int past_sixteen(const char* at) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(at) % 16);
}

/// Begins to copy the spans number `s` of `rows` rows to `to`. Thread `thread` of `threads`, of which all call this.
template <typename Rows>
__device__ inline void copy_spans(char* to, const SpanRoom& room, const BlockFormat& format, const Rows& source,
                                  int32_t s, int rows, int thread, int threads) {
  const int bytes = format.bytes_of(source.columns(s)), begin = (thread & (room.lanes - 1)) * 16;
  for (int row = thread / room.lanes; row < rows; row += threads / room.lanes) {
    const char* from = source.row(s, row);
    const int past = past_sixteen(from), end = past + bytes;
    if (begin < end) copy_async16(to + row * room.pitch + begin, from - past + begin, at_most(end - begin, 16));
  }
}

}  // namespace moestro::kernels::cuda

#pragma once
// Products of a few rows of weights with a few tokens by a warp, for work that memory limits. A row is read in slots of
// 16 bytes. kLanes neighbouring lanes read neighbouring slots of one row, a *segment*; the other lanes read the same
// segment of the next rows. So activations that a lane has loaded serve kRows rows, and a row of a narrow tile of
// `down` is read whole. The warps of a block share the segments of the same rows, each a run of them, so that a block
// ends soon and memory gets many requests at once.
//
// The order of a sum depends on the row's width and format alone: a lane adds up its slots of its warp's run; then
// lanes are summed, then warps.

#include "kernels/cuda/bf16_pairs.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/streamed.h"

namespace moestro::kernels::cuda {

/// What a slot's group is scaled by.
struct Scale {
  float scale, offset;
};

/// How 16 bytes of a format become numbers. kColumns: adjacent columns in a slot. kGroupSlots: slots that share a
/// scale; 0: there are none. kLanes: of a segment; segments of a tile's row of 64 columns are whole. kTokensMax: that
/// are multiplied at once; more would take longer than reading quantised weights again. kFetchAhead: for streamed16.
/// quad(): columns 4q to 4q + 3, before scaling.
template <typename N>
struct PlainSlot {
  static constexpr int kColumns = 16 / static_cast<int>(sizeof(typename N::Stored)), kGroupSlots = 0, kParameters = 0;
  static constexpr int kLanes = 8, kWholeColumns = kColumns, kTokensMax = 8;
  static constexpr bool kFetchAhead = true;
  __device__ static void quad(const Bytes16& slot, int q, float (&to)[4]) {
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (sizeof(typename N::Stored) == 4)
        to[i] = bits_to_float(slot.words[i]);
      else
        to[i] = N::value(half_of(slot.words, 4 * q + i));
    }
  }
};

struct Int8Slot {
  static constexpr int kColumns = 16, kGroupSlots = 4, kParameters = 1;
  static constexpr int kLanes = 4, kWholeColumns = kColumns, kTokensMax = 4;
  static constexpr bool kFetchAhead = false;
  /// 2^23 + 128 + q has q + 128 as its last byte.
  __device__ static void quad(const Bytes16& slot, int q, float (&to)[4]) {
    const uint32_t bytes = slot.words[q] ^ 0x80808080u;
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i)
      to[i] = bits_to_float(select_bytes(bytes, 0x4b000000u, 0x7440u + static_cast<uint32_t>(i))) - 8388736.0f;
  }
  __device__ static uint32_t parameters_at(const char* group) { return load_as<uint16_t>(group); }
  __device__ static Scale scale(uint32_t parameters) { return {bits_to_float(parameters << 16), 0.0f}; }
};

/// Numbers are left as 1 + q / 16, which costs two operations less; sum_of() takes the ones away.
struct Int4Slot {
  static constexpr int kColumns = 32, kGroupSlots = 2, kParameters = 2;
  static constexpr int kLanes = 4, kWholeColumns = 64, kTokensMax = 4;
  static constexpr bool kFetchAhead = false;
  __device__ static void quad(const Bytes16& slot, int q, float (&to)[4]) {
    const uint32_t word = slot.words[q % 4], moved = q < 4 ? word << 3 : word >> 1;
    const uint32_t bytes = (moved & 0x78787878u) | 0x80808080u;
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i)
      to[i] = bits_to_float(select_bytes(bytes, 0x3f000000u, 0x7044u + (static_cast<uint32_t>(i) << 8)));
  }
  /// sum of (q * scale + offset) x = 16 scale * (sum of (1 + q / 16) x) + (offset - 16 scale) * (sum of x)
  __device__ static uint32_t parameters_at(const char* group) { return load_as<uint32_t>(group); }
  __device__ static Scale scale(uint32_t parameters) {
    const float times = 16.0f * bits_to_float(parameters << 16);
    return {times, bits_to_float(parameters & 0xffff0000u) - times};
  }
};

/// A matrix whose rows are cut along their columns into equal tiles. All of it is aligned to 16 bytes.
struct TiledRows {
  int64_t tile_bytes;  ///< from a tile to the next; 0: there is one
  int64_t row_bytes;
  int32_t row_slots;       ///< of a row in a tile
  int32_t row_parameters;  ///< of a row in a tile: numbers of bf16
};
template <typename S>
__host__ __device__ constexpr TiledRows tiled_rows(int64_t tile_bytes, int64_t columns) {
  const int64_t slots = columns / S::kColumns;
  return {tile_bytes, slots * 16, static_cast<int32_t>(slots),
          static_cast<int32_t>(divided_up(columns, 64) * S::kParameters)};
}
/// Whether rows this long consist of whole slots.
template <typename S>
constexpr bool has_whole_slots(int64_t columns) {
  return columns > 0 && columns % S::kWholeColumns == 0;
}
inline bool is_aligned16(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % 16 == 0;
}
template <int kLanes>
__host__ __device__ constexpr int32_t segments_of(const TiledRows& m) {
  return (m.row_slots + kLanes - 1) / kLanes;
}

/// Whether a visit has to mind slots that are not there.
template <bool kValue>
struct Checked {
  static constexpr bool value = kValue;
};

/// Runs of segments of kRows rows a lane, loaded kAhead segments at a time.
template <typename S, int kLanes, int kRows, int kAhead>
struct SegmentLoads {
  static constexpr int kRowsApart = kWarp / kLanes;  ///< rows of a warp's load
  static constexpr int kGroupsOfSegment = S::kGroupSlots > 0 ? kLanes / at_least(S::kGroupSlots, 1) : 0;
  static_assert(S::kGroupSlots == 0 || kGroupsOfSegment > 0, "a group is not shared by segments");

  const char* values[kRows];  ///< of this lane in the first segment of tile 0
  const char* parameters[kRows];
  TiledRows m;
  int64_t tile_offset;
  int32_t tile_column, segment;  ///< of the next one: its tile, and its number there
  Bytes16 slots[kAhead][kRows];
  uint32_t scales[kAhead][kRows];  ///< as S::parameters_at

  __device__ static int row_of_lane() { return lane_id() / kLanes; }
  __device__ static int slot_of_lane() { return lane_id() % kLanes; }

  /// Row `r` of this lane is row `index` of the matrix whose first tile has these. After `m` is set.
  __device__ void set_row(int r, const char* tile_values, const char* tile_parameters, int64_t index) {
    values[r] = tile_values + index * m.row_bytes + slot_of_lane() * 16;
    parameters[r] = tile_parameters;
    if constexpr (S::kGroupSlots > 0)
      parameters[r] += 2 * (index * m.row_parameters + slot_of_lane() / S::kGroupSlots * S::kParameters);
  }

  /// Brings what run() loads first of one tile's rows nearer. Reads no other memory.
  __device__ void prefetch_from(int32_t first) const {
    MOESTRO_UNROLL
    for (int r = 0; r < kRows; ++r)
      if (first * kLanes + slot_of_lane() < m.row_slots) prefetch(values[r] + first * (kLanes * 16));
  }

  /// Calls visit(Checked, which, column, valid) for the segments [first, end), in their order: slots[which] and
  /// scales[which] are loaded, `column` is the segment's first one of the row. If Checked::value, lanes for which not
  /// `valid` have zeros, because their slot is not there. Calls requested() whenever loads have been begun.
  template <typename Requested, typename Visit>
  __device__ void run(int32_t first, int32_t end, Requested requested, Visit visit) {
    const int32_t tile_segments = segments_of<kLanes>(m), tile = first / tile_segments;
    tile_offset = tile * m.tile_bytes;
    tile_column = tile * m.row_slots * S::kColumns;
    segment = first - tile * tile_segments;
    int32_t whole = end;
    if (m.row_slots % kLanes != 0) whole = m.tile_bytes == 0 ? at_most(end, tile_segments - 1) : first;
    int32_t s = first;
    for (; s + kAhead <= whole; s += kAhead) some<false>(kAhead, requested, visit);
    for (; s < end; s += kAhead) some<true>(end - s, requested, visit);
  }

 private:
  template <bool kChecked, typename Requested, typename Visit>
  __device__ void some(int32_t count, Requested requested, Visit visit) {
    int32_t columns[kAhead];
    bool valid[kAhead];
    MOESTRO_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      columns[ahead] = tile_column + segment * (kLanes * S::kColumns);
      valid[ahead] = !kChecked || (ahead < count && segment * kLanes + slot_of_lane() < m.row_slots);
      load<kChecked>(ahead, valid[ahead]);
    }
    requested();
    MOESTRO_UNROLL
    for (int ahead = 0; ahead < kAhead; ++ahead) visit(Checked<kChecked>{}, ahead, columns[ahead], valid[ahead]);
  }

  template <bool kChecked>
  __device__ void load(int ahead, bool valid) {
    MOESTRO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kChecked) {
        slots[ahead][r] = {};
        scales[ahead][r] = 0;
        if (!valid) continue;
      }
      slots[ahead][r] = streamed16<S::kFetchAhead>(values[r] + tile_offset + segment * (kLanes * 16));
      if constexpr (S::kGroupSlots > 0)
        scales[ahead][r] =
            S::parameters_at(parameters[r] + tile_offset + segment * (kGroupsOfSegment * S::kParameters * 2));
    }
    if (++segment < segments_of<kLanes>(m)) return;
    segment = 0;
    tile_offset += m.tile_bytes;
    tile_column += m.row_slots * S::kColumns;
  }
};

/// The sums of kRows rows a lane with kTokens tokens. These are read a few rows at a time: with one token, plain
/// numbers gain by longer pieces of fewer rows, while numbers that have to be widened gain by activations that serve
/// more rows.
template <typename S, int kLanes, int kRows, int kTokens>
struct FewProducts {
  static constexpr int kRowsAtOnce = kTokens == 1 && S::kGroupSlots == 0 ? 2 : kRows;
  static constexpr int kAhead = (kTokens == 1 ? 8 : 4) / kRowsAtOnce;
  using Loads = SegmentLoads<S, kLanes, kRowsAtOnce, kAhead>;
  static constexpr int kRowsApart = Loads::kRowsApart, kRowsOfWarp = kRows * kRowsApart;
  static constexpr int kSegmentColumns = kLanes * S::kColumns;
  /// Activations of one token are copied to shared memory. A warp reads each of them once or twice: what they cost is
  /// how long they take to come.
  static constexpr bool kStaged = kTokens == 1;

  const char* values[kRows];  ///< of rows, as SegmentLoads::set_row
  const char* parameters[kRows];
  int64_t indices[kRows];
  TiledRows m;
  const float* x[kTokens];  ///< from column 0 of the matrix on
  int64_t columns;          ///< that there are
  float* staged;            ///< shared memory of this warp: room for its run
  int count;                ///< tokens that there are
  float sums[kRows][kTokens];
  Loads loads;
  int32_t first_column;

  /// Row `r` of this lane is row `index` of the matrix whose first tile has these.
  __device__ void set_row(int r, const char* tile_values, const char* tile_parameters, int64_t index) {
    values[r] = tile_values;
    parameters[r] = tile_parameters;
    indices[r] = index;
  }
  /// Tokens whose activations lie one after another.
  __device__ void set_x(const float* first, int64_t apart) {
    MOESTRO_UNROLL
    for (int t = 0; t < kTokens; ++t) x[t] = first + at_most(t, count - 1) * apart;
  }

  /// Brings what add() loads first of one tile's rows nearer. Reads no other memory.
  __device__ void prefetch_from(int32_t first) const {
    const int32_t slot = first * kLanes + Loads::slot_of_lane();
    MOESTRO_UNROLL
    for (int r = 0; r < kRows; ++r)
      if (slot < m.row_slots) prefetch(values[r] + indices[r] * m.row_bytes + slot * 16);
  }

  __device__ void add(int32_t first, int32_t end) {
    loads.m = m;
    first_column = first * kSegmentColumns;
    bool is_staged = !kStaged;
    MOESTRO_UNROLL
    for (int from = 0; from < kRows; from += kRowsAtOnce) {
      MOESTRO_UNROLL
      for (int r = 0; r < kRowsAtOnce; ++r) loads.set_row(r, values[from + r], parameters[from + r], indices[from + r]);
      loads.run(
          first, end,
          [&] {
            if (is_staged) return;
            stage(first, end);
            is_staged = true;
          },
          [&](auto checked, int which, int32_t column, bool valid) { add_slot(checked, from, which, column, valid); });
    }
  }

  /// Copies a run's activations so that the lanes of a segment find their fours side by side.
  __device__ void stage(int32_t first, int32_t end) {
    constexpr int kFours = S::kColumns / 4;
    const int32_t fours = (end - first) * (kSegmentColumns / 4);
    __syncwarp();  // those of the run before are read
#pragma unroll 4
    for (int32_t i = lane_id(); i < fours; i += kWarp) {
      Bytes16 four{};
      if (first_column + 4 * i < columns) four = load_as<Bytes16>(x[0] + first_column + 4 * i);
      const int32_t slot = i / kFours % kLanes, segment = i / (kFours * kLanes);
      store_as(staged + 4 * ((segment * kFours + i % kFours) * kLanes + slot), four);
    }
    __syncwarp();
  }

  /// Four activations from column 4q on of this lane's slot.
  template <typename C>
  __device__ Bytes16 four_of(C, int t, int32_t column, int q, bool valid) const {
    if (C::value && !valid) return {};
    const int slot = Loads::slot_of_lane();
    if constexpr (kStaged)
      return load_as<Bytes16>(staged + column - first_column + 4 * (q * kLanes + slot));
    else
      return load_as<Bytes16>(x[t] + column + slot * S::kColumns + 4 * q);
  }

  template <typename C>
  __device__ void add_slot(C checked, int from, int which, int32_t column, bool valid) {
    constexpr bool kScaled = S::kGroupSlots > 0;
    float of_slot[kRowsAtOnce][kTokens] = {}, of_x[kTokens] = {};
    MOESTRO_UNROLL
    for (int q = 0; q < S::kColumns / 4; ++q) {
      float w[kRowsAtOnce][4];
      MOESTRO_UNROLL
      for (int r = 0; r < kRowsAtOnce; ++r) S::quad(loads.slots[which][r], q, w[r]);
      MOESTRO_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        if (kTokens > 1 && t >= count) break;
        const Bytes16 four = four_of(checked, t, column, q, valid);
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float activation = bits_to_float(four.words[i]);
          MOESTRO_UNROLL
          for (int r = 0; r < kRowsAtOnce; ++r) {
            float& sum = kScaled ? of_slot[r][t] : sums[from + r][t];
            sum = multiply_add(w[r][i], activation, sum);
          }
          of_x[t] += activation;
        }
      }
    }
    if constexpr (kScaled) add_scaled(from, which, of_slot, of_x);
  }

  __device__ void add_scaled(int from, int which, const float (&of_slot)[kRowsAtOnce][kTokens],
                             const float (&of_x)[kTokens]) {
    MOESTRO_UNROLL
    for (int r = 0; r < kRowsAtOnce; ++r) {
      const Scale by = S::scale(loads.scales[which][r]);
      MOESTRO_UNROLL
      for (int t = 0; t < kTokens; ++t) {
        float& sum = sums[from + r][t];
        sum = multiply_add(by.scale, of_slot[r][t], sum);
        if constexpr (S::kParameters == 2) sum = multiply_add(by.offset, of_x[t], sum);
      }
    }
  }

  /// Writes this warp's sums, over its lanes, to room[row of the warp][token], where its activations have been.
  __device__ void store(float* room) {
    __syncwarp();
    warp_sum_rows<kLanes>(sums, kTokens > 1 ? count : 1, [&](int r, int t, float sum) {
      if (Loads::slot_of_lane() == 0) room[(r * kRowsApart + Loads::row_of_lane()) * kTokens + t] = sum;
    });
  }
};

/// A warp's part of `segments`.
struct Run {
  int32_t first, end;
};
__device__ inline Run run_of_warp(int32_t segments) {
  const int32_t warps = static_cast<int32_t>(blockDim.x) / kWarp, warp = warp_id();
  return {segments * warp / warps, segments * (warp + 1) / warps};
}

/// Threads of a block. With short rows most of its warps would have little to do, and those beyond `segments` nothing.
inline unsigned few_threads(int32_t segments) {
  return static_cast<unsigned>(at_most(segments, segments >= 16 ? 8 : 4)) * kWarp;
}
inline constexpr int kFewThreadsMax = 8 * kWarp;

/// Shared memory of a block: each warp has `floats` for its run's activations, and then for its sums.
struct FewRoom {
  int32_t floats;
  int32_t stages;  ///< whether a run of one token's activations has room

  uint64_t bytes(unsigned threads) const { return threads / kWarp * static_cast<uint64_t>(floats) * sizeof(float); }
  __device__ float* of_warp() const { return reinterpret_cast<float*>(shared_memory()) + warp_id() * floats; }
  /// The sum over the block's warps of what each has stored at `index`.
  __device__ float sum(int index) const {
    const auto* room = reinterpret_cast<const float*>(shared_memory());
    float all = 0.0f;
    for (int w = 0; w < static_cast<int>(blockDim.x) / kWarp; ++w) all += room[w * floats + index];
    return all;
  }
};
/// Three such blocks fit a multiprocessor with much bandwidth, one the others (100 KiB).
inline constexpr int64_t kStagedFloatsMax = 64 * 1024 / sizeof(float);

/// For rows of so many segments of so many columns each, and so many sums of a warp.
inline FewRoom few_room(int64_t segments, int64_t segment_columns, int64_t sums) {
  const int64_t warps = few_threads(static_cast<int32_t>(segments)) / kWarp,
                run = divided_up(segments, warps) * segment_columns;
  const bool stages = run * warps <= kStagedFloatsMax;
  return {static_cast<int32_t>(stages ? at_least(run, sums) : sums), stages ? 1 : 0};
}

/// launch(slot) with the slot of weights of this format. Refused: there is none; kRounds: nor of f32, whose weights are
/// not rounded.
template <bool kRounds, typename Launch>
MoestroCudaResult with_slot(int32_t dtype, Launch launch) {
  if constexpr (!kRounds) {
    if (dtype == MOESTRO_CUDA_F32) return launch(PlainSlot<F32>{});
  }
  switch (dtype) {
    case MOESTRO_CUDA_BF16: return launch(PlainSlot<BF16>{});
    case MOESTRO_CUDA_F16: return launch(PlainSlot<F16>{});
    case MOESTRO_CUDA_INT8: return launch(Int8Slot{});
    case MOESTRO_CUDA_INT4: return launch(Int4Slot{});
    default: return MOESTRO_CUDA_REFUSED;
  }
}

}  // namespace moestro::kernels::cuda

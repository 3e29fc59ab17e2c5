#pragma once
// Products of rows of weights with up to 32 tokens on tensor cores, for work that memory limits. Weights are on the
// side of 16 rows and go from memory into the instruction's registers without shared memory: a lane's slot of 16 bytes
// has columns of several instructions, and activations are loaded to match. Both sides are rounded to bf16 as in
// product_tile.h. The order of sums depends on how many tokens there are, and on how many rows a launch has.

#include "kernels/cuda/few_products.h"
#include "kernels/cuda/mma.h"

namespace moestro::kernels::cuda {

/// A warp of an instruction: 4 lanes share a row.
inline constexpr int kQuad = 4;

/// How slots of 16 bytes, kQuad of them a segment, become operands. prepare(): once a slot, by whole warps. quad():
/// four columns from column(q, lane % 4) on, of the segment, as pairs of bf16.
template <typename S>
struct RoundedSlot;

template <>
struct RoundedSlot<PlainSlot<BF16>> {
  __device__ static void prepare(Bytes16&, uint32_t&) {}
  __device__ static int column(int q, int lane) { return lane * 8 + q * 4; }
  __device__ static void quad(const Bytes16& slot, uint32_t, int q, uint32_t (&to)[2]) {
    to[0] = slot.words[2 * q];
    to[1] = slot.words[2 * q + 1];
  }
};

template <>
struct RoundedSlot<PlainSlot<F16>> {
  __device__ static void prepare(Bytes16&, uint32_t&) {}
  __device__ static int column(int q, int lane) { return lane * 8 + q * 4; }
  __device__ static void quad(const Bytes16& slot, uint32_t, int q, uint32_t (&to)[2]) {
    float w[4];
    PlainSlot<F16>::quad(slot, q, w);
    to[0] = bf16_pair(w[0], w[1]);
    to[1] = bf16_pair(w[2], w[3]);
  }
};

/// The same half twice.
__device__ inline uint32_t low_twice(uint32_t word) {
  return select_bytes(word, 0, 0x1010u);
}
__device__ inline uint32_t high_twice(uint32_t word) {
  return select_bytes(word, 0, 0x3232u);
}

template <>
struct RoundedSlot<Int8Slot> {
  /// Lanes exchange words, so that the activations of a column's four lanes lie side by side.
  __device__ static void prepare(Bytes16& slot, uint32_t& scale) {
    transpose_in_quad(slot.words);
    scale = low_twice(scale);
  }
  __device__ static int column(int q, int lane) { return q * 16 + lane * 4; }
  __device__ static void quad(const Bytes16& slot, uint32_t scale, int q, uint32_t (&to)[2]) {
    float w[4];
    Int8Slot::quad(slot, q, w);
    MOESTRO_UNROLL
    for (int i = 0; i < 2; ++i) {
      // Whole numbers up to 128 are exact in their upper halves.
      const uint32_t pair = select_bytes(float_to_bits(w[2 * i]), float_to_bits(w[2 * i + 1]), 0x7632u);
      to[i] = multiply_add_pairs(pair, scale, kBothMinusZeros);
    }
  }
};

template <>
struct RoundedSlot<Int4Slot> {
  __device__ static void prepare(Bytes16& slot, uint32_t&) { transpose_in_quad(slot.words); }
  __device__ static int column(int q, int lane) { return q % 4 * 32 + q / 4 * 16 + lane * 4; }
  /// The word is of slot q % 4, the parameters of that slot's group.
  __device__ static void quad(const Bytes16& slot, uint32_t parameters, int q, uint32_t (&to)[2]) {
    const uint32_t nibbles = (q < 4 ? slot.words[q % 4] : slot.words[q % 4] >> 4) & 0x0f0f0f0fu;
    const uint32_t scale = low_twice(parameters), offset = high_twice(parameters);
    MOESTRO_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair = select_bytes(nibbles, 0x43000000u, i == 0 ? 0x7170u : 0x7372u);  // 128 + q
      to[i] = multiply_add_pairs(multiply_add_pairs(pair, kBothOnes, kBoth128 ^ kBothMinusZeros), scale, offset);
    }
  }
};

/// Four activations, rounded.
__device__ inline void rounded_quad(const float* x, uint32_t (&to)[2]) {
  const auto four = load_as<Bytes16>(x);
  to[0] = bf16_pair(bits_to_float(four.words[0]), bits_to_float(four.words[1]));
  to[1] = bf16_pair(bits_to_float(four.words[2]), bits_to_float(four.words[3]));
}
__device__ inline void rounded_quad(const uint16_t* x, uint32_t (&to)[2]) {
  const auto four = load_as<Bytes8>(x);
  to[0] = four.words[0];
  to[1] = four.words[1];
}

/// The sums of a warp: 32 rows, as 2 sides of 16, by 8 * kEights tokens. Row group r of a lane (SegmentLoads) is half
/// r % 2 of side r / 2. X: f32, or bf16 as its bits.
template <typename S, typename X, int kEights>
struct FewRounded {
  static constexpr int kRows = 4, kSides = 2, kRowsOfWarp = 32, kTokens = 8 * kEights;
  static constexpr int kAhead = S::kGroupSlots == 2 && kEights > 1 ? 1 : 2;  // what registers allow
  using Loads = SegmentLoads<S, kQuad, kRows, kAhead>;
  using Slot = RoundedSlot<S>;

  Loads loads;
  const X* x[kEights];  ///< column 0 of the tokens of this lane: lane / 4 of each eight
  int count;            ///< tokens that there are
  float sums[kSides][kEights][4];

  /// Calls row(token) for the activations of each of this lane's tokens. Those that are not there are another's, and
  /// their sums are not used.
  template <typename Row>
  __device__ void set_x(Row row) {
    MOESTRO_UNROLL
    for (int e = 0; e < kEights; ++e) x[e] = row(at_most(e * 8 + Loads::row_of_lane(), count - 1));
  }

  __device__ void add(int32_t first, int32_t end) {
    loads.run(
        first, end, [] {},
        [this](auto checked, int which, int32_t column, bool) { add_segment(checked, which, column); });
  }

  template <typename C>
  __device__ void add_segment(C, int which, int32_t column) {
    Bytes16(&slots)[kRows] = loads.slots[which];
    uint32_t(&scales)[kRows] = loads.scales[which];
    uint32_t others[kRows];
    MOESTRO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      // Lanes whose own slots are not there get words of others, of the same group.
      if constexpr (C::value && S::kGroupSlots == kQuad) scales[r] = __shfl_sync(kWholeWarp, scales[r], lane_id() & ~3);
      Slot::prepare(slots[r], scales[r]);
      others[r] = S::kGroupSlots == 2 ? __shfl_xor_sync(kWholeWarp, scales[r], 2) : scales[r];
    }
    MOESTRO_UNROLL
    for (int q = 0; q < S::kColumns / 4; ++q) {
      uint32_t a[kSides][4];
      MOESTRO_UNROLL
      for (int r = 0; r < kRows; ++r) {
        uint32_t pairs[2];
        // A slot of int4 is half a group: lanes 0 and 1 have the first group's parameters.
        const bool own = S::kGroupSlots != 2 || Loads::slot_of_lane() / 2 == q % 4 / 2;
        Slot::quad(slots[r], own ? scales[r] : others[r], q, pairs);
        a[r / 2][r % 2] = pairs[0];
        a[r / 2][r % 2 + 2] = pairs[1];
      }
      const int32_t from = column + Slot::column(q, Loads::slot_of_lane());
      MOESTRO_UNROLL
      for (int e = 0; e < kEights; ++e) {
        uint32_t b[2] = {};
        if (!C::value || from < columns) rounded_quad(x[e] + from, b);
        MOESTRO_UNROLL
        for (int side = 0; side < kSides; ++side) multiply_tiles(sums[side][e], a[side], b);
      }
    }
  }
  int32_t columns;  ///< of a row

  /// Writes this warp's sums to room[row][token].
  __device__ void store(float* room) const {
    const int g = lane_id() / 4, t = lane_id() % 4;
    MOESTRO_UNROLL
    for (int side = 0; side < kSides; ++side) {
      MOESTRO_UNROLL
      for (int e = 0; e < kEights; ++e) {
        MOESTRO_UNROLL
        for (int i = 0; i < 4; ++i)
          room[(side * 16 + i / 2 * 8 + g) * kTokens + e * 8 + 2 * t + i % 2] = sums[side][e][i];
      }
    }
  }
};

/// The warps of a block: `across` of them have rows of their own, and the others share these rows' segments.
struct WarpGrid {
  int across, deep;
  __device__ static WarpGrid of_block(int across) { return {across, static_cast<int>(blockDim.x) / kWarp / across}; }
  __device__ int row_warp() const { return warp_id() % across; }
  __device__ Run run(int32_t segments) const {
    const int at = warp_id() / across;
    return {segments * at / deep, segments * (at + 1) / deep};
  }
  /// The sum at `index` of the rooms of a row warp.
  __device__ float sum(const float* room, int size, int of_row_warp, int index) const {
    float all = 0.0f;
    for (int d = 0; d < deep; ++d) all += room[(d * across + of_row_warp) * size + index];
    return all;
  }
};
inline constexpr int kRoundedThreads = 8 * kWarp, kRoundedRows = 32;
inline constexpr int kRoundedTokensAtOnce = 32;
/// Shared memory of a block for passes of up to so many tokens.
inline uint64_t rounded_room(int64_t tokens) {
  const int64_t at_once = tokens <= 8 ? 8 : tokens <= 16 ? 16 : kRoundedTokensAtOnce;
  return static_cast<uint64_t>(kRoundedThreads / kWarp * kRoundedRows * at_once) * sizeof(float);
}

/// WarpGrid::across for so many rows in all: as many as leave enough blocks to fill a device, since rows of a block
/// share the activations in its L1 cache.
inline int warps_across(int64_t rows) {
  constexpr int64_t kBlocksWanted = 264;
  int across = 4;
  while (across > 1 && rows / (across * kRoundedRows) < kBlocksWanted) across /= 2;
  return across;
}

}  // namespace moestro::kernels::cuda

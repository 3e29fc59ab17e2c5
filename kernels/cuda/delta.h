#pragma once
// The gated delta rule. A kernel prepares what goes into the recurrence, row by row. Then one takes states through the
// rows, or, for long prompts, two take them through chunks of rows (delta_chunk.h).

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"

namespace moestro::kernels::cuda {

/// A column of a state lies in so many lanes, each with kRows rows one after another. So every sum over rows has one
/// order, whatever else a kernel does with its columns.
inline constexpr int kDeltaGroups = 8;
inline constexpr int kDeltaStrip = MOESTRO_CUDA_DELTA_STRIP;
static_assert(MOESTRO_CUDA_DELTA_KEY_MAX == kDeltaGroups * 16);

/// What a kernel knows of key_dim when it is compiled.
template <int kRowsOfLane>
struct DeltaRows {
  static constexpr int kRows = kRowsOfLane;
  static constexpr int kKey = kDeltaGroups * kRows;  ///< key_dim, padded
};
template <typename Launch>
int32_t with_delta_rows(int64_t key_dim, Launch launch) {
  if (key_dim <= DeltaRows<4>::kKey) return launch(DeltaRows<4>{});
  if (key_dim <= DeltaRows<8>::kKey) return launch(DeltaRows<8>{});
  return launch(DeltaRows<16>{});
}

/// A row of MoestroCudaDelta::prepared: q and k of each key head, after convolution and norm; v of each value head and
/// its gates. Zeros are behind the last number of a head. Each part is a multiple of 16 bytes.
template <typename Rows>
struct DeltaRecord {
  const MoestroCudaDelta& a;

  __device__ int64_t value_floats() const { return divided_up(a.value_dim, kDeltaStrip) * kDeltaStrip; }
  __device__ int64_t floats() const {
    return a.key_heads * 2 * Rows::kKey + a.value_heads * (value_floats() + kGates);
  }
  __device__ float* q(int64_t row, int64_t key_head) const {
    return a.prepared + row * floats() + key_head * 2 * Rows::kKey;
  }
  __device__ float* k(int64_t row, int64_t key_head) const { return q(row, key_head) + Rows::kKey; }
  /// Of rows in chunks: in place of q and k, as bf16.
  __device__ uint16_t* rounded_q(int64_t row, int64_t key_head) const {
    return reinterpret_cast<uint16_t*>(q(row, key_head));
  }
  __device__ uint16_t* rounded_k(int64_t row, int64_t key_head) const { return rounded_q(row, key_head) + Rows::kKey; }
  __device__ float* v(int64_t row, int64_t head) const {
    return a.prepared + row * floats() + a.key_heads * 2 * Rows::kKey + head * (value_floats() + kGates);
  }
  __device__ float* gates(int64_t row, int64_t head) const { return v(row, head) + value_floats(); }

  /// kQk: the product of q and k. kLog: the decay's natural logarithm.
  static constexpr int kGates = 4, kDecay = 0, kRate = 1, kQk = 2, kLog = 3;
};

__device__ inline int64_t delta_keys(const MoestroCudaDelta& a) { return a.key_heads * a.key_dim; }
__device__ inline int64_t delta_values(const MoestroCudaDelta& a) { return a.value_heads * a.value_dim; }
__device__ inline int64_t delta_channels(const MoestroCudaDelta& a) { return 2 * delta_keys(a) + delta_values(a); }
/// As DeltaShape::key_head.
__device__ inline int delta_key_head(const MoestroCudaDelta& a, int value_head) {
  const auto keys = static_cast<int>(a.key_heads), values = static_cast<int>(a.value_heads);
  return a.in_turn ? value_head % keys : value_head / (values / keys);
}
__host__ __device__ inline int64_t delta_tail_floats(const MoestroCudaDelta& a) {
  return (a.conv - 1) * (2 * a.key_heads * a.key_dim + a.value_heads * a.value_dim);
}
__host__ __device__ inline int64_t delta_slot_floats(const MoestroCudaDelta& a) {
  return delta_tail_floats(a) + a.value_heads * a.key_dim * a.value_dim;
}

/// The slot, or what was kept of it, with the sequence's state before its first row; null: zeros.
__device__ inline const float* delta_before(const MoestroCudaDelta& a, const MoestroCudaDeltaSequence& s) {
  if (s.state < 0) return nullptr;
  if (a.again && s.kept >= 0) return a.kept + s.kept * delta_slot_floats(a);
  return a.states + s.state * delta_slot_floats(a);
}

/// Where row `row` has the input of a channel.
__device__ inline const float* delta_input(const MoestroCudaDelta& a, int64_t row, int64_t channel) {
  const int64_t keys = delta_keys(a);
  if (channel < keys) return a.q + row * keys + channel;
  if (channel < 2 * keys) return a.k + row * keys + channel - keys;
  return a.v + row * delta_values(a) + channel - 2 * keys;
}

/// Launches the first kernel.
int32_t delta_prepare(const MoestroCudaDelta& a, MoestroCudaStream stream);
/// Launches the kernels for sequences with chunks.
int32_t delta_chunked(const MoestroCudaDelta& a, MoestroCudaStream stream);

}  // namespace moestro::kernels::cuda

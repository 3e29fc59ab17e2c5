#include "common/activation/eamc_kernels.h"

#include <bit>

#include "common/activation/history_layout.h"

namespace moestro::activation {
namespace {
constexpr size_t kBlock = kEamcBlock;
}

void add_columns(const uint8_t* const* columns, size_t count, size_t entries, uint32_t* __restrict sums) {
  for (size_t first = 0; first < entries; first += kBlock) {
    uint16_t block[kBlock] = {};
    for (size_t c = 0; c < count; ++c) {
      const uint8_t* __restrict column = columns[c] + first;
      for (size_t i = 0; i < kBlock; ++i) block[i] = static_cast<uint16_t>(block[i] + column[i]);
    }
    for (size_t i = 0; i < kBlock; ++i) sums[first + i] += block[i];
  }
}

void add_weighted_column(const uint8_t* __restrict column, uint32_t weight, size_t entries, uint32_t* __restrict sums) {
  const auto w = static_cast<uint16_t>(weight);
  for (size_t i = 0; i < entries; ++i) sums[i] += static_cast<uint32_t>(static_cast<uint16_t>(column[i] * w));
}

float score_block(const float* __restrict base, float base_weight, const uint32_t* __restrict sums, float sum_weight,
                  const float* __restrict inverse_norms, float* __restrict scores) {
  int32_t most = 0;  // floats that are not negative are ordered as their bits are
  for (size_t i = 0; i < kBlock; ++i) {
    const float score =
        (base[i] * base_weight + static_cast<float>(static_cast<int32_t>(sums[i])) * sum_weight) * inverse_norms[i];
    scores[i] = score;
    const auto bits = std::bit_cast<int32_t>(score);
    most = bits > most ? bits : most;
  }
  return std::bit_cast<float>(most);
}

void add_scaled(const uint32_t* __restrict sums, float weight, size_t entries, float* __restrict base) {
  for (size_t i = 0; i < entries; ++i) base[i] += weight * static_cast<float>(static_cast<int32_t>(sums[i]));
}

float weighted_sum(const float* weights, const uint8_t* cells, size_t count) {
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += weights[i] * static_cast<float>(cells[i]);
  return sum;
}

void copy_cells(const uint8_t* __restrict cells, size_t count, uint8_t* __restrict out) {
  for (size_t i = 0; i < count; ++i) out[i] = cells[i];
}

bool still_is(const std::atomic<uint64_t>& word, uint64_t value) {
  std::atomic_thread_fence(std::memory_order_acquire);
  return word.load(std::memory_order_relaxed) == value;
}

}  // namespace moestro::activation

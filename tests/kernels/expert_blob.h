#pragma once
// Writes an expert in the layout of common/expert_layout.h from its three matrices, for tests of everything
// that reads one.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "common/check.h"
#include "common/expert_layout.h"
#include "common/float16.h"

namespace moestro::test {

/// An expert's matrices, row-major: gate, up [ffn, hidden]; down [hidden, ffn].
struct ExpertMatrices {
  int64_t hidden = 0, ffn = 0;
  std::vector<float> gate, up, down;
};

namespace expert_blob_detail {

/// int4: the group's range in 15 steps.
inline void write_int4_row(const float* row, int64_t cols, std::byte* values, std::byte* parameters, float* read) {
  std::memset(values, 0, static_cast<size_t>(row_bytes(DType::kInt4, cols)));
  for (int64_t g = 0; g * kQuantGroup < cols; ++g) {
    const int64_t first = g * kQuantGroup, end = std::min(cols, first + kQuantGroup);
    const auto [low, high] = std::minmax_element(row + first, row + end);
    const uint16_t stored[2] = {f32_to_bf16((*high - *low) / 15.0f), f32_to_bf16(*low)};
    const float scale = bf16_to_f32(stored[0]), offset = bf16_to_f32(stored[1]);
    std::memcpy(parameters + g * 4, stored, 4);
    for (int64_t c = first; c < end; ++c) {
      const float q = scale > 0.0f ? std::clamp(std::nearbyint((row[c] - offset) / scale), 0.0f, 15.0f) : 0.0f;
      const int64_t within = c - first;
      std::byte& byte = values[g * 32 + within / 32 * 16 + within % 16];
      byte |= static_cast<std::byte>(static_cast<unsigned>(q) << (within % 32 < 16 ? 0 : 4));
      read[c] = q * scale + offset;
    }
  }
}

/// One row of a tile's part; int8: symmetric, one bf16 scale per group of kQuantGroup. Returns the row as it
/// will be read.
inline void write_row(const float* row, int64_t cols, DType dtype, std::byte* values, std::byte* scales,
                      float* read) {
  for (int64_t c = 0; c < cols; ++c) {
    if (dtype == DType::kF32) {
      std::memcpy(values + c * 4, row + c, 4);
      read[c] = row[c];
    } else if (dtype == DType::kBF16 || dtype == DType::kF16) {
      const uint16_t half = dtype == DType::kBF16 ? f32_to_bf16(row[c]) : f32_to_f16(row[c]);
      std::memcpy(values + c * 2, &half, 2);
      read[c] = dtype == DType::kBF16 ? bf16_to_f32(half) : f16_to_f32(half);
    }
  }
  if (dtype == DType::kInt4) return write_int4_row(row, cols, values, scales, read);
  if (dtype != DType::kInt8) return;
  for (int64_t g = 0; g * kQuantGroup < cols; ++g) {
    const int64_t end = std::min(cols, (g + 1) * kQuantGroup);
    float largest = 0.0f;
    for (int64_t c = g * kQuantGroup; c < end; ++c) largest = std::max(largest, std::fabs(row[c]));
    const uint16_t stored = f32_to_bf16(largest / 127.0f);
    const float scale = bf16_to_f32(stored);
    std::memcpy(scales + g * 2, &stored, 2);
    for (int64_t c = g * kQuantGroup; c < end; ++c) {
      const float q = scale > 0.0f ? std::clamp(std::nearbyint(row[c] / scale), -127.0f, 127.0f) : 0.0f;
      const auto value = static_cast<int8_t>(q);
      std::memcpy(values + c, &value, 1);
      read[c] = q * scale;
    }
  }
}

}  // namespace expert_blob_detail

/// The blob of an expert as bf16 with every part encoded in 12 bits; padding is 0xff.
inline std::vector<std::byte> in_12_bits(const ExpertLayout& bf16, const std::vector<std::byte>& blob) {
  const ExpertLayout narrow(bf16.hidden(), bf16.ffn(), DType::kBF16In12, bf16.has_bias());
  MOESTRO_CHECK(narrow.tiles() == bf16.tiles(), "else sums would have another order");
  std::vector<std::byte> out(static_cast<size_t>(narrow.bytes()), std::byte{0xff});
  for (int64_t i = 0; i < bf16.tiles(); ++i) {
    const ExpertTile from = bf16.tile(i), to = narrow.tile(i);
    const auto part = [&](int64_t values, int64_t rows, int64_t cols, int64_t coded, int64_t exponents) {
      std::vector<uint16_t> matrix(static_cast<size_t>(rows * cols));
      std::memcpy(matrix.data(), blob.data() + from.offset + values, matrix.size() * sizeof(uint16_t));
      MOESTRO_CHECK(bf16_in_12::encode(matrix.data(), rows, cols, out.data() + to.offset + coded,
                                       out.data() + to.offset + exponents),
                    "weights of a few magnitudes");
    };
    part(from.gate, from.ffn, bf16.hidden(), to.gate, to.gate_scales);
    part(from.up, from.ffn, bf16.hidden(), to.up, to.up_scales);
    part(from.down, bf16.hidden(), from.ffn, to.down, to.down_scales);
  }
  return out;
}

/// The blob of `m`. Padding is 0xff (NaN), so that reading it shows. `as_read`, if given, becomes the
/// matrices after rounding to the layout's precision, widened to f32 again.
inline std::vector<std::byte> write_expert_blob(const ExpertLayout& layout, const ExpertMatrices& m,
                                                ExpertMatrices* as_read = nullptr) {
  using expert_blob_detail::write_row;
  if (layout.dtype() == DType::kBF16In12) {
    const ExpertLayout bf16(layout.hidden(), layout.ffn(), DType::kBF16, layout.has_bias(), layout.is_gated());
    return in_12_bits(bf16, write_expert_blob(bf16, m, as_read));
  }
  std::vector<std::byte> blob(static_cast<size_t>(layout.bytes()), std::byte{0xff});
  ExpertMatrices rounded = m;
  const DType dtype = layout.dtype();
  const int64_t hidden = layout.hidden();
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    std::byte* base = blob.data() + t.offset;
    for (int64_t f = 0; f < t.ffn; ++f) {
      const int64_t from = (t.first_ffn + f) * hidden, at = f * row_bytes(dtype, hidden),
                    group = f * parameter_bytes(dtype, hidden);
      if (layout.is_gated())
        write_row(m.gate.data() + from, hidden, dtype, base + t.gate + at, base + t.gate_scales + group,
                  rounded.gate.data() + from);
      write_row(m.up.data() + from, hidden, dtype, base + t.up + at, base + t.up_scales + group,
                rounded.up.data() + from);
    }
    for (int64_t h = 0; h < hidden; ++h) {
      const int64_t from = h * m.ffn + t.first_ffn;
      write_row(m.down.data() + from, t.ffn, dtype, base + t.down + h * row_bytes(dtype, t.ffn),
                base + t.down_scales + h * parameter_bytes(dtype, t.ffn), rounded.down.data() + from);
    }
  }
  if (as_read) *as_read = std::move(rounded);
  return blob;
}

/// Puts biases into the blob of an expert that has them.
inline void write_expert_biases(const ExpertLayout& layout, const std::vector<float>& gate,
                                const std::vector<float>& up, const std::vector<float>& down,
                                std::vector<std::byte>& blob) {
  const auto write = [&](int64_t at, const std::vector<float>& from) {
    std::memcpy(blob.data() + at, from.data(), from.size() * sizeof(float));
  };
  const ExpertBiases at = layout.biases();
  if (layout.is_gated()) write(at.gate, gate);
  write(at.up, up), write(at.down, down);
}

}  // namespace moestro::test

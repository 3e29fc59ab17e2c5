#pragma once
// Reads the numbers of the tensors that a quantised matrix is made of. Private to the dialects.

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/float16.h"
#include "store/pack/quantised_dialects.h"

namespace moestro::store {

using Bytes = std::vector<std::byte>;

inline constexpr int64_t kNumbersAtOnce = 1 << 24;  ///< of what is read beyond the blocks themselves

/// Columns [first, first + cols) of rows of a tensor [.., width] with `each` bytes a number.
inline Status read_rows(const ReadTensor& read, const SourceTensor& tensor, int64_t width, int64_t each,
                        const MatrixRange& range, Bytes& out) {
  const int64_t line = range.cols * each;
  out.resize(static_cast<size_t>(range.rows * line));
  const auto at = [&](int64_t row) { return static_cast<uint64_t>((row * width + range.first_col) * each); };
  if (range.cols == width) return read(tensor, at(range.first_row), out);
  for (int64_t r = 0; r < range.rows; ++r)
    MOESTRO_RETURN_IF_ERROR(read(tensor, at(range.first_row + r),
                                 std::span(out).subspan(static_cast<size_t>(r * line), static_cast<size_t>(line))));
  return Status::ok();
}

template <class Number>
Number number_at(const Bytes& bytes, int64_t index) {
  Number n;
  std::memcpy(&n, bytes.data() + index * static_cast<int64_t>(sizeof n), sizeof n);
  return n;
}

/// Number `index` of scales in one of the formats that checkpoints have them in.
inline float scale_at(const std::string& format, const Bytes& bytes, int64_t index) {
  if (format == "F32") return number_at<float>(bytes, index);
  if (format == "F8_E8M0") return std::ldexp(1.0f, static_cast<int>(number_at<uint8_t>(bytes, index)) - 127);
  const auto half = number_at<uint16_t>(bytes, index);
  return format == "BF16" ? bf16_to_f32(half) : f16_to_f32(half);
}

/// Zero points of GPTQ as version 1 stores them, less 1. GPTQModel takes 1 from all eight of a word at once, with a
/// borrow from the next where one is 0; AutoGPTQ from each number, of which 0 becomes 15.
inline uint32_t zeros_of_word(uint32_t stored, GptqZeros zeros) {
  constexpr uint32_t kOnes = 0x11111111u, kTops = 0x88888888u, kMiddles = 0x88888888u;
  switch (zeros) {
    case GptqZeros::kAsTheyAre: return stored;
    case GptqZeros::kLess1: return ((stored & ~kTops) + kOnes) ^ (stored & kTops);
    case GptqZeros::kWordLess1: return stored + kOnes;
    case GptqZeros::kMiddle: return kMiddles;
  }
  return stored;
}

/// With kMiddle: whether the words of `zeros` are those of zero points of 8, in version 1 or in version 2.
Status check_middle(const SourceTensor& zeros, const Bytes& words, GptqZeros form);

}  // namespace moestro::store

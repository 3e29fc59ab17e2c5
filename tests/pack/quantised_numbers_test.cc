// The numbers of quantised matrices with many scales and zero points, each another, against their definition.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "common/formats/blocks.h"
#include "store/pack/convert.h"
#include "store/pack/quantised_dialects.h"

namespace moestro::store {
namespace {

// In parts from any place on.
class ManyScales : public ::testing::Test {
 protected:
  template <class Number>
  SourceTensor add(const std::string& name, const std::string& format, const std::vector<Number>& numbers) {
    std::vector<std::byte>& bytes = data_[name];
    bytes.resize(numbers.size() * sizeof(Number));
    std::memcpy(bytes.data(), numbers.data(), bytes.size());
    return {.name = name, .format = format, .dtype = std::nullopt, .shape = {}, .bytes = bytes.size()};
  }
  /// `expected(row, column)`: the number that is there.
  template <class Expected>
  void check(const QuantisedMatrix& matrix, const std::vector<MatrixRange>& ranges, const Expected& expected) {
    const ReadTensor read = [&](const SourceTensor& t, uint64_t at, std::span<std::byte> out) {
      EXPECT_LE(at + out.size(), data_.at(t.name).size());
      std::memcpy(out.data(), data_.at(t.name).data() + at, out.size());
      return Status::ok();
    };
    for (const MatrixRange& range : ranges) {
      const int64_t row = row_bytes(matrix.dtype(), range.cols);
      std::vector<std::byte> bytes(static_cast<size_t>(range.rows * row));
      ASSERT_TRUE(matrix.read_range(read, range, bytes.data()).is_ok());
      std::vector<float> numbers(static_cast<size_t>(range.cols));
      for (int64_t r = 0; r < range.rows; ++r) {
        ASSERT_TRUE(convert_values(matrix.dtype(), bytes.data() + r * row, DType::kF32,
                                   reinterpret_cast<std::byte*>(numbers.data()), range.cols));
        for (int64_t c = 0; c < range.cols; ++c)
          ASSERT_EQ(numbers[static_cast<size_t>(c)], expected(range.first_row + r, range.first_col + c))
              << "row " << range.first_row + r << ", column " << range.first_col + c;
      }
    }
  }
  /// Numbers in [0, bound).
  static std::vector<uint8_t> mixed(int64_t count, uint32_t bound) {
    std::vector<uint8_t> numbers(static_cast<size_t>(count));
    uint32_t state = 1;
    for (uint8_t& n : numbers) n = static_cast<uint8_t>(((state = state * 1664525u + 1013904223u) >> 16) % bound);
    return numbers;
  }
  std::map<std::string, std::vector<std::byte>> data_;
};

TEST_F(ManyScales, Fp8HasAGrid) {
  constexpr int64_t kRows = 300, kCols = 384, kBlock = 128, kAcross = 3;
  const std::vector<uint8_t> values = mixed(kRows * kCols, 0x7f);  // 0x7f is not a number
  std::vector<float> scales;
  for (int i = 0; i < 9; ++i) scales.push_back(1.0f + static_cast<float>(i) / 16);
  const auto matrix = fp8_matrix({"m", kRows, kCols}, DType::kFP8, add("values", "F8_E4M3", values),
                                 add("scales", "F32", scales), kBlock, kBlock);
  check(*matrix, {{0, kRows, 0, kCols}, {120, 140, 128, 256}, {127, 2, 256, 128}, {299, 1, 128, 128}},
        [&](int64_t r, int64_t c) {
          return formats::e4m3_to_f32(values[static_cast<size_t>(r * kCols + c)]) *
                 scales[static_cast<size_t>(r / kBlock * kAcross + c / kBlock)];
        });
}

// More rows than are unpacked at once, and more columns than are read at once.
TEST_F(ManyScales, AwqHasGroups) {
  constexpr int64_t kRows = 1048, kCols = 768, kGroup = 64, kGroups = kCols / kGroup;
  constexpr std::array<int64_t, kInWord> kRowOfNibble = {0, 2, 4, 6, 1, 3, 5, 7};
  // Both are [columns or groups, rows].
  const std::vector<uint8_t> values = mixed(kCols * kRows, 16), zeros = mixed(kGroups * kRows, 15);
  const auto in_words = [&](const std::vector<uint8_t>& numbers) {
    std::vector<uint32_t> words(numbers.size() / kInWord);
    for (size_t w = 0; w < words.size(); ++w)
      for (size_t i = 0; i < kInWord; ++i)
        words[w] |= static_cast<uint32_t>(numbers[w * kInWord + static_cast<size_t>(kRowOfNibble[i])]) << 4 * i;
    return words;
  };
  std::vector<uint16_t> scales;
  for (int i = 0; i < kGroups * kRows; ++i) scales.push_back(f32_to_bf16(1.0f + static_cast<float>(i) / 128));
  const auto matrix = awq_matrix({"m", kRows, kCols}, DType::kInt4G64, kGroup,
                                 {add("words", "I32", in_words(values)), add("scales", "BF16", scales),
                                  add("zeros", "I32", in_words(zeros))});
  const std::vector<MatrixRange> ranges = {
      {0, kRows, 0, kCols}, {3, 14, 64, 128}, {17, 1, 192, 64}, {125, 300, 64, 640}, {1047, 1, 704, 64}};
  check(*matrix, ranges, [&](int64_t r, int64_t c) {
    const auto g = static_cast<size_t>(c / kGroup * kRows + r);
    return static_cast<float>(values[static_cast<size_t>(c * kRows + r)] - zeros[g]) * bf16_to_f32(scales[g]);
  });
}

// Zero points of all kinds, 0 and 15 among them, in each of the forms that GPTQ's tools write.
TEST_F(ManyScales, GptqHasThreeFormsOfZeroPoints) {
  constexpr int64_t kRows = 1048, kCols = 768, kGroup = 64, kGroups = kCols / kGroup;
  const std::vector<uint8_t> values = mixed(kCols * kRows, 16), zeros = mixed(kGroups * kRows, 16);
  EXPECT_NE(std::ranges::find(zeros, 0), zeros.end());
  EXPECT_NE(std::ranges::find(zeros, 15), zeros.end());
  std::vector<uint32_t> words(values.size() / kInWord);  // values: [columns, rows]
  for (int64_t c = 0; c < kCols; ++c)
    for (int64_t r = 0; r < kRows; ++r)
      words[static_cast<size_t>(c / kInWord * kRows + r)] |=
          uint32_t{values[static_cast<size_t>(c * kRows + r)]} << 4 * (c % kInWord);
  std::vector<uint16_t> scales;
  for (int i = 0; i < kGroups * kRows; ++i) scales.push_back(f32_to_f16(1.0f + static_cast<float>(i) / 128));
  std::vector<int32_t> order;  // each second column of the other half's group
  for (int64_t c = 0; c < kCols; ++c) order.push_back(static_cast<int32_t>((c + c % 2 * 128) % kCols / kGroup));
  const std::vector<MatrixRange> ranges = {
      {0, kRows, 0, kCols}, {3, 14, 64, 128}, {17, 1, 192, 64}, {125, 300, 64, 640}, {1047, 1, 704, 64}};
  using enum GptqZeros;
  for (const GptqZeros form : {kAsTheyAre, kLess1, kWordLess1}) {
    std::vector<uint32_t> stored(zeros.size() / kInWord);
    for (size_t w = 0; w < stored.size(); ++w) {
      for (size_t i = 0; i < kInWord; ++i) {
        const uint32_t zero = zeros[w * kInWord + i];
        stored[w] |= (form == kLess1 ? (zero + 15) % 16 : zero) << 4 * i;
      }
      if (form == kWordLess1) stored[w] -= 0x11111111u;
    }
    const auto tensors = [&] {
      return Int4Tensors{add("words", "I32", words), add("scales", "F16", scales), add("zeros", "I32", stored)};
    };
    const auto number = [&](int64_t r, int64_t c, int64_t g) {
      const auto at = static_cast<size_t>(g * kRows + r);
      return static_cast<float>(values[static_cast<size_t>(c * kRows + r)] - zeros[at]) * f16_to_f32(scales[at]);
    };
    check(*gptq_matrix({"m", kRows, kCols}, DType::kInt4G64, kGroup, tensors(), {form}), ranges,
          [&](int64_t r, int64_t c) { return number(r, c, c / kGroup); });
    Int4Tensors ordered = tensors();
    ordered.scales.shape = {kGroups, kRows};
    check(*ordered_gptq_matrix({"m", kRows, kCols}, order, ordered, {form}), ranges,
          [&](int64_t r, int64_t c) { return number(r, c, order[static_cast<size_t>(c)]); });
  }
}

TEST_F(ManyScales, Nvfp4HasBlocks) {
  constexpr int64_t kRows = 7, kCols = 384, kGroup = 16;
  constexpr std::array kE2m1 = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const std::vector<uint8_t> values = mixed(kRows * kCols / 2, 256), scales = mixed(kRows * kCols / kGroup, 0x7f);
  const std::vector<float> whole = {4.0f};
  for (const bool divides : {false, true}) {
    const auto matrix = nvfp4_matrix({"m", kRows, kCols}, add("values", "U8", values),
                                     add("scales", "F8_E4M3", scales), add("whole", "F32", whole), divides);
    check(*matrix, {{0, kRows, 0, kCols}, {2, 4, 128, 256}, {6, 1, 256, 128}}, [&](int64_t r, int64_t c) {
      const int nibble = values[static_cast<size_t>(r * kCols + c) / 2] >> 4 * (c % 2) & 15;
      const float value = kE2m1[static_cast<size_t>(nibble & 7)] * (nibble & 8 ? -1.0f : 1.0f);
      return value * formats::e4m3_to_f32(scales[static_cast<size_t>(r * kCols + c) / kGroup]) *
             (divides ? 1 / whole[0] : whole[0]);
    });
  }
}

}  // namespace
}  // namespace moestro::store

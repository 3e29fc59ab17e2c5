// Words of 4 bits are unpacked many at once; the reference takes them number by number.

#include "store/pack/int4_words.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace moestro::store {
namespace {

class Int4Words : public ::testing::Test {
 protected:
  /// `count` words from whose end on nothing may be read.
  const std::byte* make(int64_t count) {
    words_.assign(static_cast<size_t>(count), 0);
    words_.shrink_to_fit();
    for (uint32_t& word : words_) word = static_cast<uint32_t>(random_());
    return reinterpret_cast<const std::byte*>(words_.data());
  }
  int number(int64_t word, int64_t index) const {
    return static_cast<int>(words_[static_cast<size_t>(word)] >> 4 * index & 15);
  }

 private:
  std::mt19937 random_{1};
  std::vector<uint32_t> words_;
};

TEST_F(Int4Words, OfAwqAreUnpackedAsOneByOne) {
  constexpr int64_t kNumberOfRow[kInWord] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (const int64_t stride : {16, 17, 512})
    for (int64_t count = 1; count <= kAwqWords; ++count) {
      AwqRuns runs;
      unpack_awq(make((kRunColumns - 1) * stride + count), stride * 4, count, runs);
      const auto expected = [&](int64_t row, int64_t column) {
        return number(column * stride + row / kInWord, kNumberOfRow[row % kInWord]);
      };
      for (int64_t r = 0; r < count * kInWord; ++r)
        for (int64_t i = 0; i < kRunBytes; ++i)
          ASSERT_EQ(runs.rows[r][i], expected(r, i) | expected(r, i + kRunBytes) << 4)
              << count << " words, stride " << stride << ", row " << r << ", byte " << i;
    }
}

TEST_F(Int4Words, OfGptqAreUnpackedAsOneByOne) {
  constexpr uint8_t kUntouched = 0xa5;
  for (const int64_t line : {64, 67, 4096})
    for (int64_t count = 1; count <= kGptqRows; ++count) {
      const int64_t row_bytes = kRunBytes + 4;
      std::vector<uint8_t> out(static_cast<size_t>(kGptqRows * row_bytes), kUntouched);
      constexpr int64_t kLines = kRunColumns / kInWord;
      unpack_gptq(make((kLines - 1) * line + count), line * 4, count, out.data(), row_bytes);
      const auto expected = [&](int64_t row, int64_t column) {
        return number(column / kInWord * line + row, column % kInWord);
      };
      for (int64_t r = 0; r < kGptqRows; ++r)
        for (int64_t i = 0; i < row_bytes; ++i)
          ASSERT_EQ(out[static_cast<size_t>(r * row_bytes + i)],
                    r < count && i < kRunBytes ? expected(r, i) | expected(r, i + kRunBytes) << 4 : kUntouched)
              << count << " rows, line " << line << ", row " << r << ", byte " << i;
    }
}

}  // namespace
}  // namespace moestro::store

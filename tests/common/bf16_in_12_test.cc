// bf16 in 12 bits: what is encoded comes back bit by bit, what does not fit is refused, and no list of exceptions,
// whatever it says, makes the way back touch what is not its own.

#include "common/bf16_in_12.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "common/float16.h"

namespace moestro::bf16_in_12 {
namespace {

struct Encoded {
  std::vector<std::byte> values, exponents;
  bool fits = false;
  Encoded(const std::vector<uint16_t>& matrix, int64_t rows, int64_t cols)
      : values(static_cast<size_t>(rows * blocks_of(cols) * kBlockBytes), std::byte{0xee}),
        exponents(static_cast<size_t>(exponents_bytes(rows, cols)), std::byte{0xee}) {
    fits = encode(matrix.data(), rows, cols, values.data(), exponents.data());
  }
};

std::vector<uint16_t> decoded(const Encoded& e, int64_t rows, int64_t cols) {
  std::vector<uint16_t> out(static_cast<size_t>(rows * cols), 0xdead);
  decode(e.values.data(), read_exponents(e.exponents.data(), rows * cols), cols, 0, rows, out.data());
  return out;
}

std::vector<uint16_t> normal(int64_t count, uint32_t seed = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> d(0.0f, 0.02f);
  std::vector<uint16_t> out(static_cast<size_t>(count));
  for (uint16_t& v : out) v = f32_to_bf16(d(engine));
  return out;
}

TEST(Bf16In12, WhatIsEncodedComesBackBitByBit) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {1, 64}, {3, 63}, {5, 65}, {7, 129}, {64, 128}, {33, 1000}}) {
    const auto matrix = normal(rows * cols);
    const Encoded e(matrix, rows, cols);
    ASSERT_TRUE(e.fits) << rows << " x " << cols;
    EXPECT_EQ(decoded(e, rows, cols), matrix) << rows << " x " << cols;
  }
}

TEST(Bf16In12, SoDoRowsAmidTheMatrix) {
  const int64_t rows = 40, cols = 200;
  auto matrix = normal(rows * cols);
  for (size_t i = 0; i < matrix.size(); i += 301)
    matrix[i] = static_cast<uint16_t>(0x0100 + i % 0x1000);  // exceptions in many rows
  const Encoded e(matrix, rows, cols);
  ASSERT_TRUE(e.fits);
  const Exponents exponents = read_exponents(e.exponents.data(), rows * cols);
  EXPECT_GT(exponents.count, 10);
  for (int64_t first = 0; first < rows; first += 7)
    for (int64_t end = first; end <= rows; end += 11) {
      std::vector<uint16_t> out(static_cast<size_t>((end - first) * cols));
      decode(e.values.data(), exponents, cols, first, end, out.data());
      EXPECT_EQ(out, std::vector<uint16_t>(matrix.begin() + first * cols, matrix.begin() + end * cols))
          << first << " to " << end;
    }
}

TEST(Bf16In12, ZerosAndNumbersThatAreNoneAreNumbersLikeOthers) {
  std::vector<uint16_t> matrix(64 * 9);
  const uint16_t odd[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x7f80, 0xff80, 0x7fc0, 0xffff, 0x7f7f};
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = odd[i % 9];
  const Encoded e(matrix, 9, 64);
  ASSERT_TRUE(e.fits);
  EXPECT_EQ(decoded(e, 9, 64), matrix);
}

TEST(Bf16In12, TheMostFrequentExponentsHaveCodesAndTheRestAreExceptions) {
  std::vector<uint16_t> matrix;
  for (int exponent = 100; exponent < 116; ++exponent)
    matrix.insert(matrix.end(), 10, static_cast<uint16_t>(exponent << 7 | 5));
  const size_t frequent = matrix.size();
  matrix.push_back(static_cast<uint16_t>(3 << 7 | 9));
  matrix.push_back(static_cast<uint16_t>(0x8000 | 200 << 7 | 0x7f));
  const auto cols = static_cast<int64_t>(matrix.size());
  const Encoded e(matrix, 1, cols);
  ASSERT_TRUE(e.fits);
  const Exponents exponents = read_exponents(e.exponents.data(), cols);
  for (int code = 0; code < kCodes; ++code) EXPECT_EQ(exponents.of_code[code], 100 + code);
  ASSERT_EQ(exponents.count, 2);
  uint32_t position = 0;
  std::memcpy(&position, exponents.positions, sizeof position);
  EXPECT_EQ(position, frequent);
  EXPECT_EQ(exponents.exceptions[0], 3);
  EXPECT_EQ(exponents.exceptions[1], 200);
  EXPECT_EQ(decoded(e, 1, cols), matrix);
}

// All magnitudes that bf16 has, once each, then so often that the list is full, then once more.
TEST(Bf16In12, AsManyExceptionsAsThereIsRoomForAndNotOneMore) {
  const int64_t rows = 8, cols = 4096, room = exceptions_max(rows * cols);
  ASSERT_EQ(room, 32 + 256);
  std::vector<uint16_t> matrix(static_cast<size_t>(rows * cols));
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<uint16_t>((100 + i % 16) << 7 | i % 128);
  for (int64_t i = 0; i < room; ++i) matrix[static_cast<size_t>(i * 111)] = static_cast<uint16_t>((i % 90) << 7 | 1);
  const Encoded full(matrix, rows, cols);
  ASSERT_TRUE(full.fits);
  EXPECT_EQ(decoded(full, rows, cols), matrix);
  matrix.back() = 200 << 7;
  EXPECT_FALSE(Encoded(matrix, rows, cols).fits);
}

TEST(Bf16In12, ANormalDistributionNeedsAFiftiethOfTheRoom) {
  const int64_t rows = 512, cols = 1024;
  const Encoded e(normal(rows * cols), rows, cols);
  ASSERT_TRUE(e.fits);
  const int64_t count = read_exponents(e.exponents.data(), rows * cols).count;
  EXPECT_GT(count, 0);
  EXPECT_LT(count, exceptions_max(rows * cols) / 50);
  EXPECT_LT(static_cast<double>(e.values.size() + e.exponents.size()) * 8 / static_cast<double>(rows * cols), 12.35)
      << "bits a number";
}

// Every sixteenth row has decayed by weight decay alone: its exponents take the codes of those that are rare in the
// others.
TEST(Bf16In12, RowsThatHaveDecayedToNextToNothingFit) {
  const int64_t rows = 128, cols = 1024;
  auto matrix = normal(rows * cols);
  for (int64_t r = 0; r < rows; r += 16)
    for (int64_t c = 0; c < cols; ++c) {
      uint16_t& v = matrix[static_cast<size_t>(r * cols + c)];
      v = f32_to_bf16(bf16_to_f32(v) * 1e-13f);
    }
  const Encoded e(matrix, rows, cols);
  ASSERT_TRUE(e.fits);
  EXPECT_EQ(decoded(e, rows, cols), matrix);
}

TEST(Bf16In12, AListThatIsRubbishTouchesNothingElse) {
  const int64_t rows = 16, cols = 70, guard = 4096;
  const auto matrix = normal(rows * cols);
  std::mt19937 engine(7);
  for (int round = 0; round < 200; ++round) {
    Encoded e(matrix, rows, cols);
    for (size_t i = static_cast<size_t>(kCodes); i < e.exponents.size(); ++i)
      if (round == 0 || engine() % 3 == 0)
        e.exponents[i] = round == 0 ? std::byte{0xff} : static_cast<std::byte>(engine() % (round % 2 ? 4 : 256));
    const Exponents exponents = read_exponents(e.exponents.data(), rows * cols);
    ASSERT_LE(exponents.count, exceptions_max(rows * cols));
    std::vector<uint16_t> out(static_cast<size_t>(guard + 4 * cols + guard), 0xabcd);
    decode(e.values.data(), exponents, cols, 5, 9, out.data() + guard);
    for (int64_t i = 0; i < guard; ++i) {
      ASSERT_EQ(out[static_cast<size_t>(i)], 0xabcd);
      ASSERT_EQ(out[out.size() - 1 - static_cast<size_t>(i)], 0xabcd);
    }
  }
}

}  // namespace
}  // namespace moestro::bf16_in_12

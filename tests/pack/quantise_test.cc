#include "store/pack/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/float16.h"

namespace moestro::store {
namespace {

/// A row quantised, and what it reads back to.
struct Quantised {
  Quantised(const std::vector<float>& row, DType to)
      : values(static_cast<size_t>(row_bytes(to, static_cast<int64_t>(row.size()))), std::byte{0xff}),
        parameters(static_cast<size_t>(quant_groups(static_cast<int64_t>(row.size())) * group_parameters(to)), 0xffff) {
    ok = quantise_row(row.data(), static_cast<int64_t>(row.size()), to, values.data(), parameters.data());
    for (size_t i = 0; ok && i < row.size(); ++i) {
      const size_t group = i / 64;
      q.push_back(to == DType::kInt8 ? static_cast<int8_t>(values[i]) : half(i));
      const float scale = bf16_to_f32(parameters[group * static_cast<size_t>(group_parameters(to))]);
      scales.push_back(scale);
      read.push_back(static_cast<float>(q.back()) * scale +
                     (to == DType::kInt8 ? 0.0f : bf16_to_f32(parameters[group * 2 + 1])));
    }
  }
  int half(size_t i) const {
    const auto byte = static_cast<unsigned>(values[i / 64 * 32 + i % 64 / 32 * 16 + i % 16]);
    return static_cast<int>(i % 32 < 16 ? byte & 15u : byte >> 4);
  }

  bool ok;
  std::vector<std::byte> values;
  std::vector<uint16_t> parameters;
  std::vector<int> q;
  std::vector<float> scales, read;
};

double squared_error(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
  return sum;
}

std::vector<float> normal_row(size_t n, std::mt19937& random) {
  std::normal_distribution<float> normal(0.01f, 0.05f);
  std::vector<float> row(n);
  for (float& v : row) v = normal(random);
  return row;
}

TEST(QuantiseInt8, ErrorIsHalfAStepAndTheLargestFits) {
  std::mt19937 random(7);
  for (const size_t n : {1, 63, 64, 65, 200})
    for (int trial = 0; trial < 50; ++trial) {
      const auto row = normal_row(n, random);
      const Quantised got(row, DType::kInt8);
      ASSERT_TRUE(got.ok);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_LE(std::fabs(row[i]), got.scales[i] * 127.0f) << "nothing is cut off";
        EXPECT_LE(std::fabs(got.read[i] - row[i]), got.scales[i] * 0.5001f);
        EXPECT_GE(got.q[i], -127);
      }
    }
}

TEST(QuantiseInt8, ZerosAndTinyAndHugeValues) {
  std::vector<float> row(64, 0.0f);
  EXPECT_EQ(Quantised(row, DType::kInt8).read, row);
  row[3] = 1e-40f;
  EXPECT_GE(Quantised(row, DType::kInt8).scales[0] * 127.0f, 1e-40f);
  row[3] = std::numeric_limits<float>::max();
  EXPECT_GE(Quantised(row, DType::kInt8).q[3], 126);  // the scale is rounded up
}

/// What plain rounding of the range to 15 steps, without any fit, misses by.
double plain_error(const std::vector<float>& row) {
  double sum = 0;
  for (size_t begin = 0; begin < row.size(); begin += 64) {
    const auto first = row.begin() + static_cast<std::ptrdiff_t>(begin),
               last = row.begin() + static_cast<std::ptrdiff_t>(std::min(row.size(), begin + 64));
    const auto [low, high] = std::minmax_element(first, last);
    const float scale = bf16_to_f32(f32_to_bf16((*high - *low) / 15)), offset = bf16_to_f32(f32_to_bf16(*low));
    for (auto v = first; v != last; ++v) {
      const float q = scale > 0 ? std::clamp(std::nearbyint((*v - offset) / scale), 0.0f, 15.0f) : 0.0f;
      sum += std::pow(*v - (q * scale + offset), 2.0);
    }
  }
  return sum;
}

TEST(QuantiseInt4, FitsBetterThanRoundingTheRange) {
  std::mt19937 random(11);
  double fitted = 0, plain = 0;
  for (const size_t n : {2, 63, 64, 65, 1000})
    for (int trial = 0; trial < 50; ++trial) {
      auto row = normal_row(n, random);
      if (trial % 5 == 0) row[n / 2] *= 8;  // an outlier
      const Quantised got(row, DType::kInt4);
      ASSERT_TRUE(got.ok);
      EXPECT_LE(squared_error(got.read, row), plain_error(row) * 1.0001) << n << " values, trial " << trial;
      fitted += squared_error(got.read, row), plain += plain_error(row);
    }
  EXPECT_LT(fitted, plain * 0.9);
}

TEST(QuantiseInt4, SixteenEvenLevelsAreExact) {
  std::vector<float> row;
  for (int i = 0; i < 128; ++i) row.push_back(static_cast<float>(i * 7 % 16) * 0.25f - 1.5f);
  EXPECT_EQ(Quantised(row, DType::kInt4).read, row);
  for (const float constant : {0.0f, 0.5f, -3.0f}) {
    const std::vector<float> same(70, constant);
    EXPECT_EQ(Quantised(same, DType::kInt4).read, same);
  }
}

TEST(QuantiseInt4, ColumnsPastTheEndAreZero) {
  const std::vector<float> row(70, 1.0f);
  Quantised got(row, DType::kInt4);
  got.q.clear();
  for (size_t i = 70; i < 128; ++i) EXPECT_EQ(got.half(i), 0) << i;
}

TEST(QuantiseInt4, TinyAndHugeValues) {
  std::mt19937 random(3);
  for (const float factor : {1e-34f, 1e-20f, 1e20f, 1e37f}) {
    auto row = normal_row(64, random);
    for (float& v : row) v *= factor;
    const Quantised got(row, DType::kInt4);
    ASSERT_TRUE(got.ok) << factor;
    const float largest = std::fabs(
        *std::max_element(row.begin(), row.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
    for (size_t i = 0; i < row.size(); ++i) EXPECT_LE(std::fabs(got.read[i] - row[i]), largest * 0.2f) << factor;
  }
}

/// Groups side by side come out as they do one by one, every bit: a pack does not depend on where its rows end or on
/// the machine.
TEST(QuantiseInt4, ARowOfManyGroupsIsEachGroupAlone) {
  std::mt19937 random(11);
  for (const size_t n : {size_t{64} * 2, size_t{64} * 3, size_t{64} * 8, size_t{64} * 21, size_t{64} * 9 + 30}) {
    auto row = normal_row(n, random);
    const float factors[] = {1.0f, 0.0f, -0.0f, 1e-39f, 1e-20f, 1e37f, 1e3f};
    for (size_t i = 0; i < n; ++i) row[i] *= factors[i / 64 % 7];
    std::fill(row.begin() + 64, row.begin() + 128, 0.5f);  // a group without a range
    const Quantised whole(row, DType::kInt4);
    ASSERT_TRUE(whole.ok);
    for (size_t begin = 0; begin < n; begin += 64) {
      const size_t count = std::min<size_t>(64, n - begin), group = begin / 64;
      const Quantised alone(std::vector<float>(row.begin() + static_cast<std::ptrdiff_t>(begin),
                                               row.begin() + static_cast<std::ptrdiff_t>(begin + count)),
                            DType::kInt4);
      EXPECT_TRUE(std::equal(alone.values.begin(), alone.values.end(),
                             whole.values.begin() + static_cast<std::ptrdiff_t>(group * 32)))
          << n << " group " << group;
      EXPECT_EQ(alone.parameters[0], whole.parameters[2 * group]) << n << " group " << group;
      EXPECT_EQ(alone.parameters[1], whole.parameters[2 * group + 1]) << n << " group " << group;
    }
  }
  // Also where it ends: not finite in the last of many groups.
  std::vector<float> row(64 * 8, 1.0f);
  row.back() = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(Quantised(row, DType::kInt4).ok);
}

TEST(Quantise, WhatIsNotFiniteIsRefused) {
  for (const DType to : {DType::kInt8, DType::kInt4})
    for (const float v : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
      EXPECT_FALSE(Quantised({1.0f, v}, to).ok);
  EXPECT_FALSE(Quantised({3e38f, -3e38f}, DType::kInt4).ok) << "a range beyond f32";
}

}  // namespace
}  // namespace moestro::store

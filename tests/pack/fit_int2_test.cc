// Blocks of int2 are what fits their numbers best.

#include "store/pack/fit_int2.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/float16.h"
#include "common/formats/blocks.h"

namespace moestro::store {
namespace {

constexpr int64_t kColumns = 64, kBytes = 20;

struct Made {
  explicit Made(const std::vector<float>& numbers)
      : blocks(numbers.size() / kColumns * kBytes, std::byte{0xff}), read(numbers.size()) {
    ok = make_int2(numbers.data(), static_cast<int64_t>(numbers.size()), blocks.data());
    if (ok) formats::dequantise(DType::kInt2, blocks.data(), static_cast<int64_t>(read.size()), read.data());
  }
  bool ok;
  std::vector<std::byte> blocks;
  std::vector<float> read;
};

double squared_error(const float* a, const float* b) {
  double sum = 0;
  for (int64_t i = 0; i < kColumns; ++i) sum += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
  return sum;
}

std::vector<float> normal(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> of(0.01f, 0.05f);
  std::vector<float> numbers(n);
  for (float& v : numbers) v = of(random);
  return numbers;
}

/// Rounded to scale * q + offset with f32 parameters.
double error_with(const float* block, double scale, double offset) {
  double sum = 0;
  for (int64_t i = 0; i < kColumns; ++i) {
    const double q = std::round(std::clamp((block[i] - offset) / scale, 0.0, 3.0));
    const double miss = block[i] - q * scale - offset;
    sum += miss * miss;
  }
  return sum;
}

/// The least of a fine grid of scales and offsets, without the rounding of either.
double least_error(const float* block) {
  const auto [low, high] = std::minmax_element(block, block + kColumns);
  const double range = *high - *low;
  double least = std::numeric_limits<double>::infinity();
  for (int s = 10; s <= 60; ++s)
    for (int o = -20; o <= 60; ++o)
      least = std::min(least, error_with(block, range * s / 150, *low + range * o / 100));
  return least;
}

TEST(FitInt2, IsCloseToTheBestScaleAndOffsetThatThereAre) {
  const auto numbers = normal(64 * kColumns, 3);
  const Made made(numbers);
  ASSERT_TRUE(made.ok);
  double got = 0, best = 0, range_only = 0;
  for (size_t at = 0; at < numbers.size(); at += kColumns) {
    const float* block = numbers.data() + at;
    got += squared_error(block, made.read.data() + at);
    best += least_error(block);
    const auto [low, high] = std::minmax_element(block, block + kColumns);
    range_only += error_with(block, (*high - *low) / 3.0, *low);
  }
  EXPECT_LT(got, 1.03 * best) << "a grid of 4,131 scales and offsets a block";
  EXPECT_LT(got, 0.75 * range_only) << "steps over the whole range";
}

TEST(FitInt2, FourEvenLevelsAreExact) {
  std::vector<float> numbers(kColumns);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = -0.5f + 0.25f * static_cast<float>((7 * i + i / 16) % 4);
  const Made made(numbers);
  ASSERT_TRUE(made.ok);
  EXPECT_EQ(made.read, numbers);
}

TEST(FitInt2, EqualTinyAndHugeNumbers) {
  constexpr float kLeast = 0x1p-133f;  // that bf16 has
  for (const float v : {0.0f, 0.5f, -3.0f, 1e-38f, -1e-42f}) {
    const Made made(std::vector<float>(kColumns, v));
    ASSERT_TRUE(made.ok) << v;
    EXPECT_NEAR(made.read[5], v, std::max(std::fabs(v) / 128, kLeast)) << v;
  }
  std::vector<float> wide(kColumns, 1e-30f);
  wide[3] = 1e30f;
  const Made made(wide);
  ASSERT_TRUE(made.ok);
  EXPECT_NEAR(made.read[3], 1e30f, 1e28f);
}

TEST(FitInt2, ABlockIsFittedAlone) {
  auto numbers = normal(3 * kColumns, 5);
  const Made all(numbers);
  for (size_t b = 0; b < 3; ++b) {
    const auto first = static_cast<std::ptrdiff_t>(b * kColumns);
    const Made one({numbers.begin() + first, numbers.begin() + first + kColumns});
    EXPECT_TRUE(std::equal(one.read.begin(), one.read.end(), all.read.begin() + first));
  }
}

TEST(FitInt2, WhatIsNotFiniteIsRefused) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -kMost}) {
    auto numbers = normal(2 * kColumns, 6);
    numbers[70] = bad, numbers[71] = kMost;
    EXPECT_FALSE(Made(numbers).ok) << bad;
  }
}

}  // namespace
}  // namespace moestro::store

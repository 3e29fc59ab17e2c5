// Encoders of blocks: against the errors of llama.cpp's, against all scales there are, and at the edges.

#include "common/formats/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numbers>
#include <vector>

#include "common/float16.h"
#include "common/formats/blocks.h"
#include "common/formats/lanes.h"

namespace moestro::formats {
namespace {

std::vector<DType> formats() {
  std::vector<DType> all;
  for (size_t i = 0; i < kBlockFormats; ++i)
    if (can_encode(block_format(i))) all.push_back(block_format(i));
  return all;
}

/// scripts/python/encoder_errors.py makes the same ones.
std::vector<float> normal_numbers(size_t count, uint64_t seed) {
  std::vector<float> numbers(count);
  uint64_t state = seed;
  const auto uniform = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (static_cast<double>(state >> 11) + 0.5) * 0x1p-53;
  };
  for (size_t i = 0; i < count; i += 2) {
    const double radius = std::sqrt(-2 * std::log(uniform())), angle = 2 * std::numbers::pi * uniform();
    numbers[i] = static_cast<float>(0.02 * radius * std::cos(angle));
    numbers[i + 1] = static_cast<float>(0.02 * radius * std::sin(angle));
  }
  return numbers;
}

std::vector<std::byte> encoded(DType d, const std::vector<float>& x) {
  std::vector<std::byte> blocks(static_cast<size_t>(row_bytes(d, std::ssize(x))));
  EXPECT_TRUE(encode(d, x.data(), std::ssize(x), blocks.data())) << dtype_name(d);
  return blocks;
}

std::vector<float> as_encoded(DType d, const std::vector<float>& x) {
  std::vector<float> numbers(x.size());
  dequantise(d, encoded(d, x).data(), std::ssize(x), numbers.data());
  return numbers;
}

double squares(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return sum;
}

/// Of the numbers' own root mean square.
double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  return std::sqrt(squares(x, y) / squares(x, std::vector<float>(x.size())));
}

TEST(Encode, NormalNumbersAtLeastAsWellAsTheReference) {
  // scripts/python/encoder_errors.py prints these.
  const std::pair<DType, double> kReference[] = {
      {DType::kQ8_0, 0.0053617},  {DType::kQ6K, 0.0177364},  {DType::kQ5K, 0.0362023},  {DType::kQ4K, 0.0715072},
      {DType::kQ5_0, 0.0427667},  {DType::kQ4_0, 0.0863329}, {DType::kIQ4NL, 0.0764283}, {DType::kMXFP4, 0.1141328},
      {DType::kFP8, 0.0256403},   {DType::kFP8G32, 0.0238618}};
  const std::vector<float> x = normal_numbers(1 << 17, 1);
  size_t compared = 0;
  for (const auto& [d, reference] : kReference) {
    const double error = relative_error(x, as_encoded(d, x));
    EXPECT_LE(error, 1.02 * reference) << dtype_name(d);
    EXPECT_GE(error, 0.5 * reference) << dtype_name(d) << ": too good to be true";
    std::printf("%-8s error %.5f, %.3f of the reference\n", std::string(dtype_name(d)).c_str(), error,
                error / reference);
    ++compared;
  }
  EXPECT_EQ(compared, formats().size());
}

/// The least squared error of a block with any scale that f16 has: level(x / scale) is the nearest level.
template <class Level>
double best_of_all_scales(const float* x, const Level& level) {
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t bits = 1; bits < 0x10000; ++bits) {
    const float scale = f16_to_f32(static_cast<uint16_t>(bits));
    if (!std::isfinite(scale) || std::fabs(scale) < 1e-4f || std::fabs(scale) > 0.05f) continue;
    double error = 0;
    for (int i = 0; i < 32 && error < best; ++i) {
      const double miss = x[i] - double{scale} * level(x[i] / scale);
      error += miss * miss;
    }
    best = std::min(best, error);
  }
  return best;
}

TEST(Encode, FindsScalesNextToTheBestOfAll) {
  constexpr size_t kBlocks = 24;
  const std::vector<float> x = normal_numbers(kBlocks * 32, 2);
  const auto whole = [](float least, float most) {
    return [=](float y) { return std::clamp(std::nearbyint(y), least, most); };
  };
  const auto of_table = [](float y) {
    float best = kIQ4NLValues[0];
    for (const int8_t value : kIQ4NLValues)
      if (std::fabs(y - value) < std::fabs(y - best)) best = value;
    return best;
  };
  const auto expect_near = [&](DType d, const auto& level) {
    const std::vector<float> y = as_encoded(d, x);
    double ours = 0, best = 0;
    for (size_t b = 0; b < kBlocks; ++b) {
      best += best_of_all_scales(x.data() + b * 32, level);
      for (size_t i = b * 32; i < b * 32 + 32; ++i) ours += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
    }
    EXPECT_LE(ours, 1.04 * best) << dtype_name(d);
    EXPECT_GE(ours, 0.999 * best) << dtype_name(d);
  };
  expect_near(DType::kQ4_0, whole(-8, 7));
  expect_near(DType::kQ5_0, whole(-16, 15));
  expect_near(DType::kIQ4NL, of_table);
}

/// The level that y is nearest to, of `count` that grow: from one to the next, as long as y is beyond their middle.
int step_to_level(float doubled, const int8_t* levels, int count) {
  int q = 0;
  while (q < count - 1 && doubled > static_cast<float>(levels[q] + levels[q + 1])) ++q;
  return q;
}

TEST(Encode, IndicesOfTablesAreThoseOfStepsFromTheFirstLevel) {
  constexpr size_t kBlocks = 512;
  std::vector<float> x = normal_numbers(kBlocks * 32, 5);
  for (size_t i = 0; i < x.size() / 4; ++i) x[i] = std::round(x[i] * 100) / 256;  // many at a middle, and zeros
  x[0] = -0.0f;
  const std::vector<std::byte> iq4 = encoded(DType::kIQ4NL, x), mx = encoded(DType::kMXFP4, x);
  const auto nibble = [](const std::byte* values, size_t c) {
    return static_cast<int>(values[c % 16]) >> (c < 16 ? 0 : 4) & 15;
  };
  for (size_t b = 0; b < kBlocks; ++b) {
    const std::byte *block = iq4.data() + b * 18, *mx_block = mx.data() + b * 17;
    uint16_t bits;
    std::memcpy(&bits, block, sizeof bits);
    const float inverse = inverse_of(f16_to_f32(bits));
    const float mx_inverse = inverse_of(std::ldexp(1.0f, static_cast<int>(mx_block[0]) - 128));
    for (size_t c = 0; c < 32; ++c) {
      const float number = x[b * 32 + c];
      ASSERT_EQ(nibble(block + 2, c), step_to_level(2 * number * inverse, kIQ4NLValues, 16)) << b << ' ' << c;
      const int q = step_to_level(2 * std::fabs(number) * mx_inverse, kE2M1Doubled, 8);
      ASSERT_EQ(nibble(mx_block + 1, c), q == 0 || number >= 0 ? q : q | 8) << b << ' ' << c;
    }
  }
}

TEST(Encode, WhatABlockSaysExactlyStaysExact) {
  // Any block of MXFP4 is one of the finer blocks that the encoder tries.
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::ldexp(static_cast<float>(kE2M1Doubled[(i * 7 + 3) % 16]), i < 32 ? -9 : 40);
  EXPECT_EQ(as_encoded(DType::kMXFP4, x), x);
  for (const DType d : formats()) {
    std::vector<float> zeros(256, 0.0f);
    EXPECT_EQ(as_encoded(d, zeros), zeros) << dtype_name(d);
    EXPECT_FALSE(find_block_not_finite(d, 0, encoded(d, zeros))) << dtype_name(d);
  }
  // Whole numbers from one that a format has to the last, either way round, and one number alone.
  for (const DType d : {DType::kQ8_0, DType::kQ4_0, DType::kQ5_0, DType::kQ4K, DType::kQ5K, DType::kQ6K}) {
    const size_t levels = d == DType::kQ4_0 || d == DType::kQ4K ? 16 : 32;
    for (const float sign : {-1.0f, 1.0f}) {
      std::vector<float> whole(256);
      for (size_t i = 0; i < whole.size(); ++i)
        whole[i] = sign * (static_cast<float>(i % levels) - static_cast<float>(levels / 2));
      EXPECT_LE(relative_error(whole, as_encoded(d, whole)), d == DType::kQ8_0 || d == DType::kQ6K ? 1e-2 : 1e-3)
          << dtype_name(d) << " times " << sign;
    }
    std::vector<float> one(256, 0.0f);
    one[200] = -3.0f;
    EXPECT_LE(relative_error(one, as_encoded(d, one)), 4e-3) << dtype_name(d);
  }
}

TEST(Encode, NumbersOfOneSignAndOfAnyMagnitude) {
  const std::vector<float> x = normal_numbers(2048, 3);
  for (const DType d : formats()) {
    const double usual = relative_error(x, as_encoded(d, x));
    for (const float factor : {1e-2f, 1.0f, 1e3f, 1e6f}) {
      std::vector<float> scaled = x;
      for (float& f : scaled) f *= factor;
      EXPECT_LE(relative_error(scaled, as_encoded(d, scaled)), 1.15 * usual) << dtype_name(d) << " times " << factor;
    }
    std::vector<float> positive = x;
    for (float& f : positive) f = std::fabs(f);
    EXPECT_LE(relative_error(positive, as_encoded(d, positive)), 1.3 * usual) << dtype_name(d);
    for (float& f : positive) f = -f;
    EXPECT_LE(relative_error(positive, as_encoded(d, positive)), 1.3 * usual) << dtype_name(d);
  }
}

TEST(Encode, ABlockDoesNotDependOnItsNeighbours) {
  const std::vector<float> x = normal_numbers(256 * 11, 4);
  for (const DType d : formats()) {
    const std::vector<std::byte> whole = encoded(d, x);
    const BlockShape shape = block_shape(d);
    for (size_t b = 0; b * static_cast<size_t>(shape.columns) < x.size(); b += 5) {
      std::vector<std::byte> alone(static_cast<size_t>(shape.bytes));
      ASSERT_TRUE(encode(d, x.data() + b * static_cast<size_t>(shape.columns), shape.columns, alone.data()));
      EXPECT_EQ(std::memcmp(alone.data(), whole.data() + b * alone.size(), alone.size()), 0)
          << dtype_name(d) << " block " << b;
    }
  }
}

TEST(Encode, WhatNoScaleCanSayIsRefused) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const DType d : formats()) {
    std::vector<float> x(256, 0.5f);
    std::vector<std::byte> out(static_cast<size_t>(row_bytes(d, 256)));
    const bool wide = d == DType::kMXFP4 || d == DType::kFP8 || d == DType::kFP8G32;
    for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN(), wide ? kInf : 1e9f}) {
      x[77] = bad;
      EXPECT_FALSE(encode(d, x.data(), 256, out.data())) << dtype_name(d) << " of " << bad;
    }
    // The largest that each takes makes finite numbers.
    for (const float large : {1e5f, 5e5f, 4e6f, 2e38f, 3.38e38f, std::numeric_limits<float>::max()}) {
      x[77] = -large;
      if (!encode(d, x.data(), 256, out.data())) continue;
      EXPECT_FALSE(find_block_not_finite(d, 0, out)) << dtype_name(d) << " of " << large;
    }
  }
}

TEST(Encode, NamesTheFormatsOfAWidth) {
  EXPECT_EQ(encodable_formats(), "q8_0, q6_k, q5_k, q4_k, q5_0, q4_0, iq4_nl, mxfp4, fp8, fp8_g32");
  EXPECT_EQ(encodable_formats(384), "q8_0, q5_0, q4_0, iq4_nl, mxfp4, fp8, fp8_g32");
  EXPECT_EQ(encodable_formats(96), "q8_0, q5_0, q4_0, iq4_nl, mxfp4, fp8_g32");
  EXPECT_EQ(encodable_formats(48), "");
  for (const DType d : formats()) EXPECT_NE(encodable_formats().find(dtype_name(d)), std::string::npos);
  EXPECT_DOUBLE_EQ(bits_per_value(DType::kQ4K), 4.5);
  EXPECT_DOUBLE_EQ(bits_per_value(DType::kBF16), 16);
  EXPECT_DOUBLE_EQ(bits_per_value(DType::kInt4), 4.5);
}

}  // namespace
}  // namespace moestro::formats

#include "common/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace moestro {
namespace {

bool is_nan16(uint16_t h, int mantissa_bits) {
  const uint16_t exponent = static_cast<uint16_t>(0x7fffu >> mantissa_bits << mantissa_bits);
  return (h & exponent) == exponent && (h & ((1u << mantissa_bits) - 1)) != 0;
}

TEST(Float16, EveryHalfIsReadBackExactly) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    if (is_nan16(bits, 10)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(bits)));
      EXPECT_TRUE(is_nan16(f32_to_f16(f16_to_f32(bits)), 10));
    } else {
      ASSERT_EQ(f32_to_f16(f16_to_f32(bits)), bits) << std::hex << h;
    }
    if (!is_nan16(bits, 7)) {
      ASSERT_EQ(f32_to_bf16(bf16_to_f32(bits)), bits) << std::hex << h;
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), f32_to_f16(1.0f));                // halfway, to even
  EXPECT_EQ(f32_to_f16(1.0f + 3 * 0x1p-11f), f32_to_f16(1.0f + 0x1p-9f));  // halfway, to even, upwards
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);                                     // half of the least subnormal
  EXPECT_EQ(f32_to_f16(0x1.8p-25f), 1);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), f32_to_bf16(1.0f));
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::infinity()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

// The neighbours of any f32 in f16 bracket it, and the nearer one is taken.
TEST(Float16, IsTheNearestHalfForASweepOfFloats) {
  for (uint32_t bits = 0x33000000; bits < 0x477fe000; bits += 9973) {
    const float f = std::bit_cast<float>(bits);
    const uint16_t h = f32_to_f16(f);
    const float error = std::fabs(f16_to_f32(h) - f);
    EXPECT_LE(error, std::fabs(f16_to_f32(static_cast<uint16_t>(h + 1)) - f));
    if (h > 0) {
      EXPECT_LE(error, std::fabs(f16_to_f32(static_cast<uint16_t>(h - 1)) - f));
    }
  }
}

}  // namespace
}  // namespace moestro

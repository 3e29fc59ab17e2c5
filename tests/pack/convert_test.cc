#include "store/pack/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/expert_layout.h"
#include "common/float16.h"

namespace moestro::store {
namespace {

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

TEST(Convert, RoundsToNearestEven) {
  const float in[] = {1.0f, 1.00390625f, 1.01171875f, -3.14159f, 0.0f};  // the 2nd and 3rd lie halfway between bf16 values
  uint16_t out[5];
  ASSERT_TRUE(convert_values(DType::kF32, bytes(in), DType::kBF16, reinterpret_cast<std::byte*>(out), 5));
  EXPECT_EQ(bf16_to_f32(out[1]), 1.0f);
  EXPECT_EQ(bf16_to_f32(out[2]), 1.015625f);
  EXPECT_EQ(out[3], f32_to_bf16(-3.14159f));
}

TEST(Convert, F16SaysWhatItCannotHold) {
  const float fits[] = {65504.0f, -1.0f}, too_large[] = {1.0f, 70000.0f}, infinite[] = {std::numeric_limits<float>::infinity()};
  uint16_t out[2];
  EXPECT_TRUE(convert_values(DType::kF32, bytes(fits), DType::kF16, reinterpret_cast<std::byte*>(out), 2));
  EXPECT_FALSE(convert_values(DType::kF32, bytes(too_large), DType::kF16, reinterpret_cast<std::byte*>(out), 2));
  EXPECT_TRUE(convert_values(DType::kF32, bytes(infinite), DType::kF16, reinterpret_cast<std::byte*>(out), 1));
}

TEST(Convert, LongRowsInEveryDirection) {
  std::vector<float> in(5000), back(5000);
  std::vector<uint16_t> half(5000);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(static_cast<int>(i % 256) - 128);  // exact in all formats
  for (const DType d : {DType::kBF16, DType::kF16}) {
    ASSERT_TRUE(convert_values(DType::kF32, bytes(in.data()), d, reinterpret_cast<std::byte*>(half.data()), 5000));
    ASSERT_TRUE(convert_values(d, bytes(half.data()), DType::kF32, reinterpret_cast<std::byte*>(back.data()), 5000));
    EXPECT_EQ(in, back);
  }
}

}  // namespace
}  // namespace moestro::store

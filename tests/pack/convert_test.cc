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

TEST(Quantise, ErrorIsHalfAStepAndTheLargestFits) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  for (const int64_t n : {1, 63, 64, 65, 200}) {
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<float> row(static_cast<size_t>(n)), work(row);
      for (float& v : row) v = normal(random);
      std::vector<int8_t> q(static_cast<size_t>(n));
      std::vector<uint16_t> scales(static_cast<size_t>(ceil_div(n, kQuantGroup)));
      ASSERT_TRUE(quantise_row(DType::kF32, bytes(row.data()), n, q.data(), scales.data(), work.data()));
      for (int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<size_t>(i);
        const float scale = bf16_to_f32(scales[static_cast<size_t>(i / kQuantGroup)]);
        EXPECT_LE(std::fabs(row[at]), scale * 127.0f) << "nothing is cut off";
        EXPECT_LE(std::fabs(static_cast<float>(q[at]) * scale - row[at]), scale * 0.5001f);
        EXPECT_GE(q[at], -127);
      }
    }
  }
}

TEST(Quantise, ZerosAndTinyAndHugeValues) {
  std::vector<float> row(64, 0.0f), work(64);
  std::vector<int8_t> q(64, 9);
  uint16_t scale = 9;
  ASSERT_TRUE(quantise_row(DType::kF32, bytes(row.data()), 64, q.data(), &scale, work.data()));
  EXPECT_EQ(scale, 0);
  EXPECT_EQ(q[5], 0);
  row[3] = 1e-40f;
  ASSERT_TRUE(quantise_row(DType::kF32, bytes(row.data()), 64, q.data(), &scale, work.data()));
  EXPECT_GE(bf16_to_f32(scale) * 127.0f, 1e-40f);
  row[3] = std::numeric_limits<float>::max();
  ASSERT_TRUE(quantise_row(DType::kF32, bytes(row.data()), 64, q.data(), &scale, work.data()));
  EXPECT_GE(q[3], 126);  // the scale is rounded up
}

TEST(Quantise, RefusesWhatIsNotFinite) {
  for (const float v : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    float work = 0;
    int8_t q = 0;
    uint16_t scale = 0;
    EXPECT_FALSE(quantise_row(DType::kF32, bytes(&v), 1, &q, &scale, &work));
  }
}

}  // namespace
}  // namespace moestro::store

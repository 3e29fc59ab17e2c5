#include "store/pack/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "common/expert_layout.h"
#include "common/float16.h"
#include "store/pack/finite.h"

namespace moestro::store {
namespace {

const std::byte* bytes(const void* p) { return static_cast<const std::byte*>(p); }

TEST(Convert, RoundsToNearestEven) {
  const float in[] = {1.0f, 1.00390625f, 1.01171875f, -3.14159f,
                      0.0f};  // the 2nd and 3rd lie halfway between bf16 values
  uint16_t out[5];
  ASSERT_TRUE(convert_values(DType::kF32, bytes(in), DType::kBF16, reinterpret_cast<std::byte*>(out), 5));
  EXPECT_EQ(bf16_to_f32(out[1]), 1.0f);
  EXPECT_EQ(bf16_to_f32(out[2]), 1.015625f);
  EXPECT_EQ(out[3], f32_to_bf16(-3.14159f));
}

TEST(Convert, F16SaysWhatItCannotHold) {
  const float fits[] = {65504.0f, -1.0f}, too_large[] = {1.0f, 70000.0f},
              infinite[] = {std::numeric_limits<float>::infinity()};
  uint16_t out[2];
  EXPECT_TRUE(convert_values(DType::kF32, bytes(fits), DType::kF16, reinterpret_cast<std::byte*>(out), 2));
  EXPECT_FALSE(convert_values(DType::kF32, bytes(too_large), DType::kF16, reinterpret_cast<std::byte*>(out), 2));
  EXPECT_TRUE(convert_values(DType::kF32, bytes(infinite), DType::kF16, reinterpret_cast<std::byte*>(out), 1));
}

TEST(Convert, Bf16SaysWhatItCannotHold) {
  const float fits[] = {3.3895314e38f, -1.0f}, rounds_to_infinity[] = {1.0f, -std::numeric_limits<float>::max()};
  uint16_t out[2];
  EXPECT_TRUE(convert_values(DType::kF32, bytes(fits), DType::kBF16, reinterpret_cast<std::byte*>(out), 2));
  EXPECT_FALSE(
      convert_values(DType::kF32, bytes(rounds_to_infinity), DType::kBF16, reinterpret_cast<std::byte*>(out), 2));
}

TEST(FindNotFinite, EveryFormatEveryPlace) {
  for (const size_t n : {1, 255, 256, 257, 1000}) {
    for (const DType d : {DType::kF32, DType::kBF16, DType::kF16}) {
      std::vector<float> row(n, d == DType::kF16 ? 65504.0f : 3.3895314e38f);
      std::vector<std::byte> stored(n * static_cast<size_t>(dtype_bytes(d)));
      const auto found = [&] {
        EXPECT_TRUE(convert_values(DType::kF32, bytes(row.data()), d, stored.data(), static_cast<int64_t>(n)));
        return find_not_finite(d, stored);
      };
      EXPECT_EQ(found(), std::nullopt);
      for (const float what : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()})
        for (const size_t at : {size_t{0}, n / 2, n - 1}) {
          const float before = std::exchange(row[at], what);
          EXPECT_EQ(found(), at);
          row[at] = before;
        }
    }
  }
  EXPECT_EQ(find_not_finite(DType::kBF16, {}), std::nullopt);
}

TEST(Convert, LongRowsInEveryDirection) {
  std::vector<float> in(5000), back(5000);
  std::vector<uint16_t> half(5000);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(static_cast<int>(i % 256) - 128);  // exact in all formats
  for (const DType d : {DType::kBF16, DType::kF16}) {
    ASSERT_TRUE(convert_values(DType::kF32, bytes(in.data()), d, reinterpret_cast<std::byte*>(half.data()), 5000));
    ASSERT_TRUE(convert_values(d, bytes(half.data()), DType::kF32, reinterpret_cast<std::byte*>(back.data()), 5000));
    EXPECT_EQ(in, back);
  }
}

}  // namespace
}  // namespace moestro::store

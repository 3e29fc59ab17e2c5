#pragma once
// Random operands, weights in every dtype, and comparisons of a backend's results with the reference.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "common/float16.h"
#include "kernels/ops.h"
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/ops_under_test.h"

namespace moestro::kernels::test {

/// --gtest_random_seed=N gives another run; failures print it.
inline uint32_t seed() {
  return static_cast<uint32_t>(::testing::UnitTest::GetInstance()->random_seed()) + 20261u;
}

class Random {
 public:
  Random() : engine_(seed()) {}
  /// Nearly normal, and made fast: sums of four numbers of 16 bits.
  std::vector<float> normal(int64_t count, float deviation = 1.0f) {
    const float unit = deviation * std::sqrt(3.0f) / 65536.0f;
    std::vector<float> v(static_cast<size_t>(count));
    for (float& f : v) {
      const uint64_t bits = engine_();
      const auto sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
      f = (static_cast<float>(sum) - 131070.0f) * unit;
    }
    return v;
  }
  /// Random bits, eight bytes at once.
  void fill(std::byte* at, int64_t count) {
    for (; count > 0; at += 8, count -= 8) {
      const uint64_t bits = engine_();
      std::memcpy(at, &bits, static_cast<size_t>(std::min<int64_t>(count, 8)));
    }
  }
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

/// A dense weight and its bytes, with unreadable (NaN) values after the last one.
struct StoredWeight {
  std::vector<std::byte> bytes;
  std::vector<uint16_t> parameters;
  Weight weight;
};
inline StoredWeight store_quantised(const std::vector<float>& values, DType dtype, int64_t rows, int64_t cols) {
  const int64_t stride = row_bytes(dtype, cols), groups = parameter_bytes(dtype, cols) / 2;
  StoredWeight s;
  s.bytes.assign(static_cast<size_t>(rows * stride + 64), std::byte{0xff});
  s.parameters.assign(static_cast<size_t>(rows * groups + 1), 0xffff);
  std::vector<float> read(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r)
    moestro::test::expert_blob_detail::write_row(values.data() + r * cols, cols, dtype, s.bytes.data() + r * stride,
                                                 reinterpret_cast<std::byte*>(s.parameters.data() + r * groups),
                                                 read.data());
  s.weight = {s.bytes.data(), dtype, rows, cols, s.parameters.data()};
  return s;
}
inline StoredWeight store_weight(const std::vector<float>& values, DType dtype, int64_t rows, int64_t cols) {
  if (is_quantised(dtype)) return store_quantised(values, dtype, rows, cols);
  const auto each = static_cast<size_t>(dtype_bytes(dtype));
  StoredWeight s;
  s.bytes.assign(values.size() * each + 64, std::byte{0xff});
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = dtype == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
    std::memcpy(s.bytes.data() + i * each,
                dtype == DType::kF32 ? static_cast<const void*>(&values[i]) : &half, each);
  }
  s.weight = {s.bytes.data(), dtype, rows, cols, nullptr};
  return s;
}

inline std::string isa_test_name(const ::testing::TestParamInfo<Isa>& info) {
  std::string name(isa_name(info.param));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// |got - want| <= bound * the largest |want|, everywhere; or of `scale`, where sums are of terms so large that may
/// cancel each other.
inline void expect_close(const std::vector<float>& got, const std::vector<float>& want, double bound,
                         const std::string& what, double scale = 0.0) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const float w : want) scale = std::max(scale, std::fabs(static_cast<double>(w)));
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
    ASSERT_TRUE(error <= bound * scale) << what << ": element " << i << " is " << got[i] << ", reference "
                                        << want[i] << ", bound " << bound * scale << ", seed " << seed();
  }
}

/// The same bits.
inline void expect_same(const float* got, const float* want, int64_t count, const std::string& what) {
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << ": element " << i << ": " << got[i] << " against " << want[i] << ", seed " << seed();
  }
}

}  // namespace moestro::kernels::test

// Products that round their activations (the fast mode): against the reference on the same activations, rounded here
// one by one; and how far rounding may take them from the exact products.

#include "kernels/cpu/peak_loops.h"
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"
#include "tests/kernels/rounded_activations.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

constexpr DType kRoundingDtypes[] = {DType::kBF16, DType::kInt8, DType::kInt4};

/// The most that rounding x may change dot(x, w), w as f32.
double rounding_bound(DType weights, const float* x, const float* w, int64_t cols) {
  double bound = 0;
  for (int64_t g = 0; g < cols; g += kQuantGroup) {
    double largest = 0, products = 0, magnitudes = 0;
    for (int64_t i = g; i < std::min(cols, g + kQuantGroup); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(x[i])));
      products += std::fabs(static_cast<double>(x[i]) * w[i]);
      magnitudes += std::fabs(static_cast<double>(w[i]));
    }
    // bf16 has 8 bits; a step of a group is its largest number / 127.
    bound += weights == DType::kBF16 ? products / 256 : largest / 127 / 2 * 1.0001 * magnitudes;
  }
  return bound;
}

class RoundedTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(GetParam());
    ops_ = cpu_ops(GetParam(), 2, false);
    exact_ = cpu_ops(GetParam(), 2, true);
  }
  static bool rounds(DType weights, int64_t tokens) {
    const Isa isa = GetParam();
    if (isa == Isa::kScalar) return false;
    if (weights != DType::kBF16) return weights == DType::kInt4 || isa != Isa::kAvx512;
    return isa == Isa::kAvx512Amx || (isa == Isa::kAvx512Bf16Vnni && (tokens < 24 || cpu::bf16_pairs_pay()));
  }
  std::unique_ptr<Ops> ops_, exact_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isa, RoundedTest, ::testing::ValuesIn(all_isas()), isa_test_name);

struct Shape {
  int64_t rows, cols;
};

TEST_P(RoundedTest, ProductsAreThoseOfTheRoundedActivations) {
  for (const DType dtype : kRoundingDtypes) {
    for (const auto& [rows, cols] :
         {Shape{1, 1}, Shape{7, 3}, Shape{33, 65}, Shape{64, 64}, Shape{70, 129}, Shape{150, 1030}, Shape{20, 4500}}) {
      // Every register block of few tokens, and panels with every remainder of 6.
      for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 18, 19, 21, 23, 40}) {
        const auto x = random_.normal(n * cols), bias = random_.normal(rows);
        const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
        std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y.size());
        ops_->matmul(x.data(), n, w.weight, bias.data(), y.data());
        const auto in = rounds(dtype, n) ? rounded(dtype, x, cols) : x;
        reference_->matmul(in.data(), n, w.weight, bias.data(), want.data());
        expect_close(y, want, 1e-5,
                     std::string(dtype_name(dtype)) + " n " + std::to_string(n) + " rows " + std::to_string(rows) +
                         " cols " + std::to_string(cols));
      }
    }
  }
}

TEST_P(RoundedTest, LargestNumbersOverflowNoSum) {
  constexpr int64_t kRows = 35, kCols = 768;
  for (const DType dtype : kRoundingDtypes)
    for (const float sign : {1.0f, -1.0f})
      for (const int64_t n : {1, 2, 4, 7, 21}) {
        // All of a group are the largest number that it can hold, but one that makes its range.
        std::vector<float> w(static_cast<size_t>(kRows * kCols), sign), x(static_cast<size_t>(n * kCols));
        for (size_t i = 0; i < w.size(); i += kQuantGroup) w[i] = -sign;
        for (size_t i = 0; i < x.size(); ++i) x[i] = i / kCols % 2 == 0 ? 1.0f : -1.0f;
        const auto stored = store_weight(w, dtype, kRows, kCols);
        std::vector<float> y(static_cast<size_t>(n * kRows), NAN), want(y.size());
        ops_->matmul(x.data(), n, stored.weight, nullptr, y.data());
        reference_->matmul(x.data(), n, stored.weight, nullptr, want.data());
        expect_close(y, want, 1e-5, std::string(dtype_name(dtype)) + " n " + std::to_string(n));
      }
}

TEST_P(RoundedTest, OneTokenOfRowsThatNoCacheHolds) {
  for (const DType dtype : kRoundingDtypes) {
    for (const auto& [rows, cols] : {Shape{20, 40000}, Shape{3, 300001}}) {
      const auto x = random_.normal(cols);
      const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
      std::vector<float> y(static_cast<size_t>(rows), NAN), want(y.size());
      ops_->matmul(x.data(), 1, w.weight, nullptr, y.data());
      reference_->matmul((rounds(dtype, 1) ? rounded(dtype, x, cols) : x).data(), 1, w.weight, nullptr, want.data());
      expect_close(y, want, 1e-4,
                   std::string(dtype_name(dtype)) + " rows " + std::to_string(rows) + " cols " + std::to_string(cols));
    }
  }
}

TEST_P(RoundedTest, RoundingStaysWithinItsBound) {
  const int64_t rows = 40, cols = 700, n = 30;
  for (const DType dtype : kRoundingDtypes) {
    const auto x = random_.normal(n * cols);
    const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
    std::vector<float> as_read(static_cast<size_t>(rows * cols)), unit(static_cast<size_t>(cols * cols)),
        turned(as_read.size());
    for (int64_t i = 0; i < cols; ++i) unit[static_cast<size_t>(i * cols + i)] = 1.0f;
    reference_->matmul(unit.data(), cols, w.weight, nullptr, turned.data());  // [cols, rows]
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        as_read[static_cast<size_t>(r * cols + c)] = turned[static_cast<size_t>(c * rows + r)];
    for (const int64_t batch : {int64_t{1}, n}) {
      std::vector<float> y(static_cast<size_t>(n * rows)), want(y.size());
      for (int64_t t = 0; t < n; t += batch)
        ops_->matmul(x.data() + t * cols, batch, w.weight, nullptr, y.data() + t * rows);
      reference_->matmul(x.data(), n, w.weight, nullptr, want.data());
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t r = 0; r < rows; ++r) {
          const auto i = static_cast<size_t>(t * rows + r);
          const double bound = rounding_bound(dtype, x.data() + t * cols, as_read.data() + r * cols, cols) + 1e-4;
          ASSERT_LE(std::fabs(static_cast<double>(y[i]) - want[i]), bound)
              << dtype_name(dtype) << " token " << t << " row " << r;
        }
      }
    }
  }
}

TEST_P(RoundedTest, ExactActivationsAreNotRounded) {
  const int64_t rows = 8, cols = 1024, n = 20;
  for (const DType dtype : kRoundingDtypes) {
    const auto x = random_.normal(n * cols);
    const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
    std::vector<float> y(static_cast<size_t>(n * rows)), want(y.size());
    ops_->matmul(x.data(), n, w.weight, nullptr, y.data(), Activations::kExact);
    exact_->matmul(x.data(), n, w.weight, nullptr, want.data());
    expect_same(y.data(), want.data(), n * rows, std::string(dtype_name(dtype)));
  }
}

/// Where dot products of bf16 are slower than multiply-adds, and nowhere else.
TEST_P(RoundedTest, ManyTokensOfBf16AreExactWhereThatIsFaster) {
  const int64_t rows = 40, cols = 1024;
  const auto w = store_weight(random_.normal(rows * cols), DType::kBF16, rows, cols);
  for (const int64_t n : {23, 24, 130}) {
    const auto x = random_.normal(n * cols);
    std::vector<float> y(static_cast<size_t>(n * rows)), want(y.size());
    ops_->matmul(x.data(), n, w.weight, nullptr, y.data());
    exact_->matmul(x.data(), n, w.weight, nullptr, want.data());
    EXPECT_EQ(y != want, rounds(DType::kBF16, n)) << n << " tokens";
  }
}

TEST_P(RoundedTest, DeterministicModeRoundsNothing) {
  const int64_t rows = 16, cols = 512;
  const auto x = random_.normal(cols);
  const auto w = store_weight(random_.normal(rows * cols), DType::kBF16, rows, cols);
  std::vector<float> y(static_cast<size_t>(rows)), want(y.size());
  exact_->matmul(x.data(), 1, w.weight, nullptr, y.data());
  reference_->matmul(x.data(), 1, w.weight, nullptr, want.data());
  expect_close(y, want, 3e-6, "deterministic");
}

TEST_P(RoundedTest, ThreadsDoNotShow) {
  for (const DType dtype : kRoundingDtypes) {
    const int64_t rows = 300, cols = 1500;
    const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
    for (const int64_t n : {1, 8, 40}) {
      const auto x = random_.normal(n * cols);
      std::vector<float> want(static_cast<size_t>(n * rows)), got(want.size());
      cpu_ops(GetParam(), 1, false)->matmul(x.data(), n, w.weight, nullptr, want.data());
      for (const int threads : {2, 3}) {
        cpu_ops(GetParam(), threads, false)->matmul(x.data(), n, w.weight, nullptr, got.data());
        expect_same(got.data(), want.data(), n * rows,
                    std::string(dtype_name(dtype)) + " threads " + std::to_string(threads));
      }
    }
  }
}

TEST_P(RoundedTest, ExpertsRoundTheirInputAndTheirActivations) {
  for (const DType dtype : kRoundingDtypes) {
    // One tile and several, the last one narrow, so few and so many that few rows are added up tile by tile.
    for (const auto& [hidden, ffn] :
         {Shape{1, 1}, Shape{48, 70}, Shape{300, 500}, Shape{1100, 700}, Shape{1100, 1700}, Shape{256, 2500}}) {
      const ExpertLayout layout(hidden, ffn, dtype);
      ExpertMatrices read;
      const float deviation = 1.0f / std::sqrt(static_cast<float>(hidden));
      const auto blob = write_expert_blob(
          layout,
          {hidden, ffn, random_.normal(ffn * hidden, deviation), random_.normal(ffn * hidden, deviation),
           random_.normal(hidden * ffn, 1.0f / std::sqrt(static_cast<float>(ffn)))},
          &read);
      for (const int64_t n : {1, 3, 8, 17, 70}) {
        if (n > 3 && hidden * ffn > 1000000) continue;  // more rows than tiles are added up for
        const auto x = random_.normal(n * hidden);
        std::vector<RoutedRow> rows;
        for (int32_t t = 0; t < n; ++t) rows.push_back({t, 0});
        std::vector<float> got(x.size(), NAN), want(x.size()), gate(static_cast<size_t>(n * ffn)), up(gate.size());
        ops_->expert_ffn(layout, blob.data(), x.data(), rows, 1, got.data());
        const auto in = rounds(dtype, n) ? rounded(dtype, x, hidden) : x;
        reference_->matmul(in.data(), n, {read.gate.data(), DType::kF32, ffn, hidden}, nullptr, gate.data());
        reference_->matmul(in.data(), n, {read.up.data(), DType::kF32, ffn, hidden}, nullptr, up.data());
        reference_->silu_mul(gate.data(), up.data(), n * ffn);
        const auto a = rounds(dtype, n) ? rounded(dtype, gate, ffn) : gate;
        reference_->matmul(a.data(), n, {read.down.data(), DType::kF32, hidden, ffn}, nullptr, want.data());
        // An activation next to the middle of two roundings may be rounded either way.
        expect_close(got, want, rounds(dtype, n) ? 4e-3 : 1e-5,
                     std::string(dtype_name(dtype)) + " hidden " + std::to_string(hidden) + " ffn " +
                         std::to_string(ffn) + " n " + std::to_string(n));
      }
    }
  }
}

TEST_P(RoundedTest, WhatIsNotFiniteShows) {
  const int64_t rows = 20, cols = 300;
  for (const DType dtype : kRoundingDtypes) {
    const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const int64_t n : {1, 30}) {
        auto x = random_.normal(n * cols);
        x[static_cast<size_t>((n - 1) * cols + 70)] = bad;
        std::vector<float> y(static_cast<size_t>(n * rows));
        ops_->matmul(x.data(), n, w.weight, nullptr, y.data());
        for (int64_t t = 0; t < n; ++t)
          for (int64_t r = 0; r < rows; ++r)
            ASSERT_EQ(std::isfinite(y[static_cast<size_t>(t * rows + r)]), t != n - 1)
                << dtype_name(dtype) << " token " << t << " row " << r;
      }
    }
  }
}

TEST_P(RoundedTest, SmallAndLargeNumbersKeepTheirScale) {
  const int64_t cols = 256;
  for (const DType dtype : kRoundingDtypes) {
    const auto w = store_weight(random_.normal(4 * cols), dtype, 4, cols);
    for (const float scale : {1e-20f, 1e-6f, 1e15f}) {
      auto x = random_.normal(cols, scale);
      std::vector<float> y(4), want(4);
      ops_->matmul(x.data(), 1, w.weight, nullptr, y.data());
      reference_->matmul((rounds(dtype, 1) ? rounded(dtype, x, cols) : x).data(), 1, w.weight, nullptr, want.data());
      expect_close(y, want, 1e-5, std::string(dtype_name(dtype)) + " scale " + std::to_string(scale));
    }
    const std::vector<float> zeros(static_cast<size_t>(cols));
    std::vector<float> y(4, NAN);
    ops_->matmul(zeros.data(), 1, w.weight, nullptr, y.data());
    EXPECT_EQ(y, std::vector<float>(4, 0.0f));
  }
}

}  // namespace
}  // namespace moestro::kernels::test

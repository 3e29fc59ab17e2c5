// Products of shapes that fill no register block, and of rows that hold NaN or infinity: in both modes, on every
// instruction set and dtype, such a row comes out without a finite value and touches no other.

#include <limits>

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4};
constexpr int64_t kBatches[] = {1, 2, 7, 24, 70};

class OddRowsTest : public ::testing::TestWithParam<std::tuple<Isa, bool>> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(std::get<0>(GetParam()));
    ops_ = cpu_ops(std::get<0>(GetParam()), 2, std::get<1>(GetParam()));
  }
  /// Bounded by the size of what is summed, `magnitude`: a sum may be next to nothing. The fast mode rounds activations
  /// (rounded_test.cc has its bound value by value).
  void compare(const std::vector<float>& got, const std::vector<float>& want, double magnitude,
               const std::string& what) const {
    const double bound = magnitude * (std::get<1>(GetParam()) ? 1e-7 : 1e-2);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_LE(std::fabs(static_cast<double>(got[i]) - want[i]), bound)
          << what << ": element " << i << ", seed " << seed();
  }
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(
    Isa, OddRowsTest, ::testing::Combine(::testing::ValuesIn(all_isas()), ::testing::Bool()), [](const auto& param) {
      return isa_test_name({std::get<0>(param.param), 0}) + (std::get<1>(param.param) ? "_deterministic" : "_fast");
    });

TEST_P(OddRowsTest, Matmul) {
  for (const DType dtype : kDtypes)
    for (const int64_t cols : {1, 7, 63, 65, 129})
      for (const int64_t rows : {1, 5, 67})
        for (const int64_t n : kBatches) {
          const auto x = random_.normal(n * cols);
          const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
          std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y.size());
          ops_->matmul(x.data(), n, w.weight, nullptr, y.data());
          reference_->matmul(x.data(), n, w.weight, nullptr, want.data());
          compare(y, want, 10.0 * static_cast<double>(cols),
                  std::string(dtype_name(dtype)) + " " + std::to_string(n) + " x " + std::to_string(rows) + " x " +
                      std::to_string(cols));
        }
}

TEST_P(OddRowsTest, ExpertFfn) {
  for (const DType dtype : kDtypes)
    for (const int64_t hidden : {1, 7, 65})
      for (const int64_t ffn : {1, 63, 129})
        for (const int64_t n : {1, 7, 40}) {
          const ExpertLayout layout(hidden, ffn, dtype);
          const auto blob = write_expert_blob(
              layout, ExpertMatrices{hidden, ffn, random_.normal(ffn * hidden, 0.3f),
                                     random_.normal(ffn * hidden, 0.3f), random_.normal(ffn * hidden, 0.3f)});
          const auto x = random_.normal(n * hidden);
          std::vector<RoutedRow> rows;
          for (int32_t t = 0; t < n; ++t) rows.push_back({t, 0});
          std::vector<float> y(x.size(), NAN), want(x.size());
          ops_->expert_ffn(layout, blob.data(), x.data(), rows, 1, y.data());
          reference_->expert_ffn(layout, blob.data(), x.data(), rows, 1, want.data());
          compare(y, want, 10.0 * static_cast<double>(hidden * ffn),
                  std::string(dtype_name(dtype)) + " hidden " + std::to_string(hidden) + " ffn " + std::to_string(ffn) +
                      " n " + std::to_string(n));
        }
}

TEST_P(OddRowsTest, ARowThatIsNotFiniteStaysSoAndAlone) {
  constexpr int64_t kRows = 40;
  for (const DType dtype : kDtypes)
    for (const int64_t cols : {65, 200})
      for (const int64_t n : kBatches)
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()}) {
          auto x = random_.normal(n * cols);
          const auto w = store_weight(random_.normal(kRows * cols), dtype, kRows, cols);
          std::vector<float> plain(static_cast<size_t>(n * kRows)), y(plain.size());
          ops_->matmul(x.data(), n, w.weight, nullptr, plain.data());
          const int64_t row = random_.below(n), at = random_.below(cols);
          x[static_cast<size_t>(row * cols + at)] = bad;
          ops_->matmul(x.data(), n, w.weight, nullptr, y.data());
          const std::string what = std::string(dtype_name(dtype)) + " n " + std::to_string(n) + " cols " +
                                   std::to_string(cols) + " value " + std::to_string(bad) + " at " + std::to_string(at);
          bool hidden = true;
          for (int64_t r = 0; r < kRows; ++r) hidden = hidden && std::isfinite(y[static_cast<size_t>(row * kRows + r)]);
          EXPECT_FALSE(hidden) << what << ", seed " << seed();
          expect_same(y.data(), plain.data(), row * kRows, what);
          expect_same(y.data() + (row + 1) * kRows, plain.data() + (row + 1) * kRows, (n - row - 1) * kRows, what);
        }
}

}  // namespace
}  // namespace moestro::kernels::test

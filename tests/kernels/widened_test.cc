// Weights that are bf16 in 12 bits give, bit by bit, what the same weights stored as bf16 give: on every instruction
// set, in both modes, for every number of rows. So every test of bf16 is one of theirs. And they agree with the
// reference, which reads them one by one.

#include "common/bf16_in_12.h"
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::in_12_bits;
using ::moestro::test::write_expert_blob;

/// Normal, and a few numbers of other magnitudes in it, zeros among them.
std::vector<float> weights(Random& random, int64_t count, float deviation) {
  auto values = random.normal(count, deviation);
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(400 + random.below(300)))
    values[i] *= std::ldexp(1.0f, static_cast<int>(random.below(60)) - 50);
  for (size_t i = 0; i < values.size(); i += static_cast<size_t>(900 + random.below(300))) values[i] = 0.0f;
  return values;
}

/// The same matrix twice.
struct Both {
  Both(Random& random, int64_t rows, int64_t cols)
      : wide(store_weight(weights(random, rows * cols, 0.05f), DType::kBF16, rows, cols)),
        values(static_cast<size_t>(rows * row_bytes(DType::kBF16In12, cols))),
        exponents(static_cast<size_t>(bf16_in_12::exponents_bytes(rows, cols))) {
    EXPECT_TRUE(bf16_in_12::encode(reinterpret_cast<const uint16_t*>(wide.bytes.data()), rows, cols, values.data(),
                                   exponents.data()));
    narrow = {values.data(), DType::kBF16In12, rows, cols, reinterpret_cast<const uint16_t*>(exponents.data())};
  }
  StoredWeight wide;
  std::vector<std::byte> values, exponents;
  Weight narrow;
};

class WidenedTest : public ::testing::TestWithParam<std::tuple<Isa, bool>> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(std::get<0>(GetParam()));
    ops_ = cpu_ops(std::get<0>(GetParam()), 2, std::get<1>(GetParam()));
  }
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(
    Isa, WidenedTest, ::testing::Combine(::testing::ValuesIn(all_isas()), ::testing::Bool()), [](const auto& param) {
      return isa_test_name({std::get<0>(param.param), 0}) + (std::get<1>(param.param) ? "_deterministic" : "_fast");
    });

TEST_P(WidenedTest, ProductsAreThoseOfBf16BitByBit) {
  for (const int64_t cols : {1, 31, 64, 129, 1100, 17000})
    for (const int64_t rows : {1, 9, 200}) {
      if (rows * cols > 1'000'000) continue;
      const Both both(random_, rows, cols);
      const auto bias = random_.normal(rows);
      for (const int64_t n : {1, 2, 3, 4, 5, 7, 12, 13, 16, 17, 64, 100}) {
        const auto x = random_.normal(n * cols);
        std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y);
        ops_->matmul(x.data(), n, both.narrow, bias.data(), y.data());
        ops_->matmul(x.data(), n, both.wide.weight, bias.data(), want.data());
        ASSERT_EQ(std::memcmp(y.data(), want.data(), y.size() * sizeof(float)), 0)
            << n << " x " << rows << " x " << cols << ", seed " << seed();
      }
    }
}

// More rows than sums that wait for the next piece, and more columns than a piece has.
TEST_P(WidenedTest, SoAreProductsInSeveralPieces) {
  for (const auto& [rows, cols, n] :
       {std::tuple<int64_t, int64_t, int64_t>{400, 17000, 1}, {150, 5000, 7}, {60, 2500, 13}}) {
    const Both both(random_, rows, cols);
    const auto x = random_.normal(n * cols);
    std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y);
    ops_->matmul(x.data(), n, both.narrow, nullptr, y.data());
    ops_->matmul(x.data(), n, both.wide.weight, nullptr, want.data());
    ASSERT_EQ(std::memcmp(y.data(), want.data(), y.size() * sizeof(float)), 0)
        << n << " x " << rows << " x " << cols << ", seed " << seed();
  }
}

// A pack may say anything: a list that descends, names a number twice, and has positions beyond the matrix, changes at
// most the rows it names.
TEST_P(WidenedTest, AListThatIsRubbishChangesNoOtherRow) {
  const int64_t rows = 3, cols = 5000;
  Both both(random_, rows, cols);
  const int64_t room = bf16_in_12::exceptions_max(rows * cols);
  std::vector<uint32_t> positions;
  for (int64_t i = 0; i < room; ++i)
    positions.push_back(i % 3 == 2 ? UINT32_MAX - static_cast<uint32_t>(i)
                                   : static_cast<uint32_t>(2 * cols - 1 - i * 30));
  const auto count = UINT32_MAX;
  std::memcpy(both.exponents.data() + bf16_in_12::kCodes, &count, sizeof count);
  std::memcpy(both.exponents.data() + bf16_in_12::kCodes + sizeof count, positions.data(),
              positions.size() * sizeof(uint32_t));
  const auto plain = bf16_in_12::read_exponents(both.exponents.data(), rows * cols);
  // What rows 0 and 2 are without any exceptions.
  auto* numbers = reinterpret_cast<uint16_t*>(both.wide.bytes.data());
  for (const int64_t r : {0, 2})
    for (int64_t c = 0; c < cols; ++c)
      numbers[r * cols + c] =
          bf16_in_12::value_at(both.values.data() + r * row_bytes(DType::kBF16In12, cols), plain.of_code, c);
  for (const int64_t n : {1, 2, 16, 17, 70}) {
    const auto x = random_.normal(n * cols);
    std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y);
    ops_->matmul(x.data(), n, both.narrow, nullptr, y.data());
    ops_->matmul(x.data(), n, both.wide.weight, nullptr, want.data());
    for (int64_t t = 0; t < n; ++t)
      for (const int64_t r : {0, 2})
        ASSERT_EQ(y[static_cast<size_t>(t * rows + r)], want[static_cast<size_t>(t * rows + r)])
            << "row " << r << " of " << n << " tokens";
  }
}

TEST_P(WidenedTest, ExpertsAreThoseOfBf16BitByBit) {
  for (const auto& [hidden, ffn] : {std::pair<int64_t, int64_t>{1, 1},
                                    {7, 63},
                                    {64, 128},
                                    {65, 129},
                                    {512, 1100},
                                    {1100, 300},
                                    {2000, 128},
                                    {3000, 200}}) {
    const ExpertLayout bf16(hidden, ffn, DType::kBF16), narrow(hidden, ffn, DType::kBF16In12);
    const auto wide =
        write_expert_blob(bf16, {hidden, ffn, weights(random_, ffn * hidden, 0.05f),
                                 weights(random_, ffn * hidden, 0.05f), weights(random_, hidden * ffn, 0.05f)});
    const auto blob = in_12_bits(bf16, wide);
    for (const int64_t n : {1, 2, 3, 4, 20, 70}) {
      const auto x = random_.normal(n * hidden);
      std::vector<RoutedRow> rows;
      for (int32_t t = 0; t < n; ++t) rows.push_back({t, t % 2});
      std::vector<float> y(static_cast<size_t>(2 * n * hidden), 0.0f), want(y);
      ops_->expert_ffn(narrow, blob.data(), x.data(), rows, 2, y.data());
      ops_->expert_ffn(bf16, wide.data(), x.data(), rows, 2, want.data());
      ASSERT_EQ(std::memcmp(y.data(), want.data(), y.size() * sizeof(float)), 0)
          << hidden << " x " << ffn << ", rows " << n << ", seed " << seed();
    }
  }
}

TEST_P(WidenedTest, ExpertsAgreeWithTheReference) {
  const int64_t hidden = 130, ffn = 333;
  const ExpertLayout bf16(hidden, ffn, DType::kBF16), narrow(hidden, ffn, DType::kBF16In12);
  const auto wide =
      write_expert_blob(bf16, {hidden, ffn, weights(random_, ffn * hidden, 0.1f), weights(random_, ffn * hidden, 0.1f),
                               weights(random_, hidden * ffn, 0.1f)});
  const auto blob = in_12_bits(bf16, wide);
  const auto x = random_.normal(2 * hidden);
  const std::vector<RoutedRow> rows{{0, 0}, {1, 0}};
  std::vector<float> y(x.size()), want(x.size());
  ops_->expert_ffn(narrow, blob.data(), x.data(), rows, 1, y.data());
  reference_->expert_ffn(narrow, blob.data(), x.data(), rows, 1, want.data());
  expect_close(y, want, std::get<1>(GetParam()) ? 1e-5 : 2e-2, "expert");
}

}  // namespace
}  // namespace moestro::kernels::test

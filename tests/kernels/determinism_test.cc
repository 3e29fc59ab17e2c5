// Bitwise: a row alone, in batches of every size, and on one thread or several.

#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

class DeterminismTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(GetParam());
    for (const int threads : {1, 2, 3}) backends_.push_back(cpu_ops(GetParam(), threads));
  }
  std::vector<std::unique_ptr<Ops>> backends_;
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isa, DeterminismTest, ::testing::ValuesIn(all_isas()), isa_test_name);

constexpr int64_t kTokens = 77;
/// Every register block, the widened panels (from 24 on) and their row blocks (64).
std::vector<int64_t> batches(const Ops& ops) {
  if (ops.options().threads == 2) return {1, 2, 3, 4, 5, 6, 7, 16, 24, 64, 77};
  return {5, 77};
}

TEST_P(DeterminismTest, Matmul) {
  struct Shape {
    int64_t rows, cols;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& [rows, cols] :
         {Shape{5, 3}, Shape{64, 64}, Shape{203, 300}, Shape{77, 1500}, Shape{150, 2051}}) {
      const auto x = random_.normal(kTokens * cols), bias = random_.normal(rows);
      const auto w = store_weight(random_.normal(rows * cols), dtype, rows, cols);
      std::vector<float> want(static_cast<size_t>(kTokens * rows)), got(want.size());
      for (int64_t t = 0; t < kTokens; ++t)
        backends_[0]->matmul(x.data() + t * cols, 1, w.weight, bias.data(), want.data() + t * rows);
      for (const auto& ops : backends_) {
        for (const int64_t batch : batches(*ops)) {
          for (int64_t t = 0; t < kTokens; t += batch)
            ops->matmul(x.data() + t * cols, std::min(batch, kTokens - t), w.weight, bias.data(),
                        got.data() + t * rows);
          expect_same(
              got.data(), want.data(), kTokens * rows,
              "batches of " + std::to_string(batch) + ", threads " + std::to_string(ops->options().threads));
        }
      }
    }
  }
}

TEST_P(DeterminismTest, ExpertFfn) {
  struct Shape {
    int64_t hidden, ffn;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4}) {
    for (const auto& [hidden, ffn] : {Shape{48, 70}, Shape{300, 500}, Shape{1100, 100}}) {
      const bool clamped = hidden == 300;  // with biases
      const GatedUnit unit{.kind = clamped ? GatedUnit::Kind::kClampedSwiglu : GatedUnit::Kind::kSilu};
      const ExpertLayout layout(hidden, ffn, dtype, clamped);
      auto blob = write_expert_blob(
          layout, ExpertMatrices{hidden, ffn, random_.normal(ffn * hidden, 0.1f),
                                 random_.normal(ffn * hidden, 0.1f), random_.normal(ffn * hidden, 0.1f)});
      if (clamped)
        ::moestro::test::write_expert_biases(layout, random_.normal(ffn), random_.normal(ffn), random_.normal(hidden),
                                             blob);
      const auto x = random_.normal(kTokens * hidden);
      std::vector<float> want(static_cast<size_t>(kTokens * hidden)), got(want.size());
      std::vector<RoutedRow> rows;
      for (int32_t t = 0; t < kTokens; ++t) rows.push_back({t, 0});
      const std::span<const RoutedRow> all(rows);
      for (size_t t = 0; t < all.size(); ++t)
        backends_[0]->expert_ffn(layout, blob.data(), x.data(), all.subspan(t, 1), 1, want.data(), unit);
      for (const auto& ops : backends_) {
        for (const int64_t batch : batches(*ops)) {
          for (int64_t t = 0; t < kTokens; t += batch)
            ops->expert_ffn(
                layout, blob.data(), x.data(),
                all.subspan(static_cast<size_t>(t), static_cast<size_t>(std::min(batch, kTokens - t))), 1,
                got.data(), unit);
          expect_same(got.data(), want.data(), kTokens * hidden,
                      std::string(dtype_name(dtype)) + " batches of " + std::to_string(batch));
        }
      }
    }
  }
}

/// Sums go on from one tile of down to the next, also within a column block: as in products of whole matrices.
TEST_P(DeterminismTest, TilesShowInNoBit) {
  constexpr int64_t kHidden = 360, kFfn = 2000;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4}) {
    const ExpertLayout layout(kHidden, kFfn, dtype);
    ASSERT_GT(layout.tiles(), 1);
    ExpertMatrices read;
    const auto blob = write_expert_blob(
        layout, ExpertMatrices{kHidden, kFfn, random_.normal(kFfn * kHidden, 0.1f),
                               random_.normal(kFfn * kHidden, 0.1f), random_.normal(kFfn * kHidden, 0.1f)}, &read);
    for (const int64_t n : {1, 2, 5, 30, 160}) {
      const auto x = random_.normal(n * kHidden);
      std::vector<RoutedRow> rows;
      for (int32_t t = 0; t < n; ++t) rows.push_back({t, 0});
      std::vector<float> got(x.size()), want(x.size()), gate(static_cast<size_t>(n * kFfn)), up(gate.size());
      Ops& ops = *backends_[static_cast<size_t>(n % 3)];
      ops.matmul(x.data(), n, {read.gate.data(), DType::kF32, kFfn, kHidden}, nullptr, gate.data());
      ops.matmul(x.data(), n, {read.up.data(), DType::kF32, kFfn, kHidden}, nullptr, up.data());
      ops.silu_mul(gate.data(), up.data(), n * kFfn);
      ops.matmul(gate.data(), n, {read.down.data(), DType::kF32, kHidden, kFfn}, nullptr, want.data());
      ops.expert_ffn(layout, blob.data(), x.data(), rows, 1, got.data());
      expect_same(got.data(), want.data(), n * kHidden, std::string(dtype_name(dtype)) + ", " + std::to_string(n));
    }
  }
}

TEST_P(DeterminismTest, RowwiseOperations) {
  const int64_t dim = 1003, n = 90;
  const auto x = random_.normal(n * dim), weight = random_.normal(dim), logits = random_.normal(n);
  const auto run = [&](Ops& ops, int64_t batch) {
    std::vector<float> normed(x.size()), y(x), gate(x), squares(static_cast<size_t>(n));
    for (int64_t t = 0; t < n; t += batch) {
      const int64_t k = std::min(batch, n - t);
      ops.rms_norm(x.data() + t * dim, k, dim, weight.data(), 1e-6f, normed.data() + t * dim);
      ops.layer_norm(normed.data() + t * dim, k, dim, weight.data(), x.data(), 1e-6f, normed.data() + t * dim);
      ops.sum_squares(normed.data() + t * dim, k, dim, squares.data() + t);
      ops.add_scaled(normed.data() + t * dim, logits.data() + t, k, dim, y.data() + t * dim);
      ops.silu_mul(gate.data() + t * dim, y.data() + t * dim, k * dim);
      ops.scale(gate.data() + t * dim, k * dim, 0.7f);
      ops.exponentials(gate.data() + t * dim, k * dim, 1.5f, 0.8f, gate.data() + t * dim);
    }
    gate.insert(gate.end(), squares.begin(), squares.end());
    return gate;
  };
  const auto want = run(*backends_[0], 1);
  for (const auto& ops : backends_) {
    for (const int64_t batch : batches(*ops)) {
      const auto got = run(*ops, batch);
      expect_same(got.data(), want.data(), n * dim + n, "batches of " + std::to_string(batch));
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

// Products in f32 of rows of whole slots, which kernels of their own compute: against the reference, and that the
// result of a token is the same bits with any number of others.

#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

class FewTokens : public CudaTest {};

constexpr DType kDtypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4};
constexpr int64_t kTokens = 13;  // a pass of 8 or three of 4, and others

std::string described(DType dtype, int64_t a, int64_t b) {
  return std::string(dtype_name(dtype)) + " " + std::to_string(a) + " by " + std::to_string(b);
}

TEST_F(FewTokens, MatmulIsTheReferencesAndOfOneTokenTheSameWithOthers) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops();
  struct Shape {
    int64_t rows, cols;
  };
  // Rows of less than a segment, of whole ones, of some and a part; few and more rows than a block has.
  for (const auto& [rows, cols] : {Shape{1, 64}, Shape{33, 192}, Shape{70, 1024}, Shape{5, 4160}, Shape{40, 16}}) {
    for (const DType dtype : kDtypes) {
      const auto x = random.normal(kTokens * cols), bias = random.normal(rows);
      const auto w = store_weight(random.normal(rows * cols), dtype, rows, cols);
      std::vector<float> all(static_cast<size_t>(kTokens * rows), NAN), want(all), one(all);
      ops->matmul(x.data(), kTokens, w.weight, bias.data(), all.data(), Activations::kExact);
      reference->matmul(x.data(), kTokens, w.weight, bias.data(), want.data());
      expect_close(all, want, 1e-5, described(dtype, rows, cols));
      for (const int64_t n : {1, 2, 5}) {
        ops->matmul(x.data() + cols, n, w.weight, bias.data(), one.data(), Activations::kExact);
        expect_same(one.data(), all.data() + rows, n * rows, described(dtype, rows, cols));
      }
    }
  }
}

TEST_F(FewTokens, ExpertsAreTheReferencesAndOfOneTokenTheSameWithOthers) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops();
  struct Shape {
    int64_t hidden, ffn;
  };
  // One tile; several; a narrow last one; of one group of columns, so that a lane's row of int4 is half a segment.
  for (const auto& [hidden, ffn] :
       {Shape{64, 64}, Shape{128, 448}, Shape{3072, 192}, Shape{2112, 208}, Shape{7168, 192}}) {
    for (const DType dtype : kDtypes) {
      const ExpertLayout layout(hidden, ffn, dtype);
      const float deviation = 1.0f / std::sqrt(static_cast<float>(hidden));
      const auto blob = write_expert_blob(
          layout, ExpertMatrices{hidden, ffn, random.normal(ffn * hidden, deviation),
                                 random.normal(ffn * hidden, deviation), random.normal(hidden * ffn, deviation)});
      const auto x = random.normal(kTokens * hidden);
      std::vector<RoutedRow> rows;
      for (int32_t t = 0; t < kTokens; ++t) rows.push_back({t, 0});
      std::vector<float> all(x.size(), NAN), want(all), one(all);
      ops->expert_ffn(layout, blob.data(), x.data(), rows, 1, all.data(), {});
      reference->expert_ffn(layout, blob.data(), x.data(), rows, 1, want.data(), {});
      expect_close(all, want, 1e-5, described(dtype, hidden, ffn));
      for (const size_t n : {1u, 3u, 6u}) {
        const std::span some(rows.data() + 1, n);
        ops->expert_ffn(layout, blob.data(), x.data(), some, 1, one.data(), {});
        expect_same(one.data() + hidden, all.data() + hidden, static_cast<int64_t>(n) * hidden,
                    described(dtype, hidden, ffn));
      }
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

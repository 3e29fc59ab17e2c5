// Every operation, on every instruction set and dtype and on odd shapes, against the reference. Attention and
// experts have files of their own.

#include <set>
#include <string_view>

#include "kernels/cpu/peak_loops.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

class OpsTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(GetParam());
    ops_ = cpu_ops(GetParam());
    ASSERT_EQ(ops_->options().isa, GetParam());
  }
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isa, OpsTest, ::testing::ValuesIn(all_isas()), isa_test_name);

struct MatmulCase {
  int64_t n, rows, cols;
};
constexpr MatmulCase kMatmulCases[] = {
    {0, 8, 8},       {1, 1, 1},    {1, 7, 3},      {1, 64, 64},   {2, 33, 65},    {3, 12, 100},
    {5, 9, 17},      {6, 64, 128}, {7, 31, 257},   {1, 300, 512}, {1, 250, 1025}, {4, 70, 2100},
    {13, 129, 1030}, {23, 65, 63}, {24, 66, 1089}, {65, 130, 96},
};
struct DtypeBound {
  DType dtype;
  double bound;  ///< both sides read the same weights, so only the f32 accumulation differs
};
constexpr DtypeBound kMatmulBounds[] = {
    {DType::kF32, 3e-6}, {DType::kBF16, 3e-6}, {DType::kF16, 3e-6}, {DType::kInt8, 3e-6}, {DType::kInt4, 3e-6}};

TEST_P(OpsTest, Matmul) {
  for (const auto& [dtype, bound] : kMatmulBounds) {
    EXPECT_TRUE(ops_->supports(dtype));
    for (const MatmulCase& c : kMatmulCases) {
      const auto x = random_.normal(c.n * c.cols);
      const auto w = store_weight(random_.normal(c.rows * c.cols), dtype, c.rows, c.cols);
      const auto bias = random_.normal(c.rows);
      double largest_bias = 0.0;
      for (const float v : bias) largest_bias = std::max(largest_bias, std::fabs(static_cast<double>(v)));
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
        std::vector<float> y(static_cast<size_t>(c.n * c.rows), NAN), want(y.size());
        ops_->matmul(x.data(), c.n, w.weight, b, y.data());
        reference_->matmul(x.data(), c.n, w.weight, b, want.data());
        expect_close(y, want, bound,
                     "matmul " + std::string(dtype_name(dtype)) + " n " + std::to_string(c.n) + " rows " +
                         std::to_string(c.rows) + " cols " + std::to_string(c.cols),
                     b ? largest_bias : 0.0);
      }
    }
  }
}

TEST_P(OpsTest, GatherRowsIsExact) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const auto table = store_weight(random_.normal(11 * 37), dtype, 11, 37);
    const std::vector<int32_t> ids{3, 0, 10, 3};
    std::vector<float> y(4 * 37, NAN), want(y.size());
    ops_->gather_rows(table.weight, ids, y.data());
    reference_->gather_rows(table.weight, ids, want.data());
    expect_same(y.data(), want.data(), 4 * 37, std::string(dtype_name(dtype)));
  }
}

TEST_P(OpsTest, F16WeightsOfEveryKindAreExact) {
  std::vector<uint16_t> halves;
  for (uint32_t h = 0; h < 0x10000u; ++h)
    if ((h & 0x7c00u) != 0x7c00u || (h & 0x3ffu) == 0) halves.push_back(static_cast<uint16_t>(h));
  const Weight table{halves.data(), DType::kF16, 1, static_cast<int64_t>(halves.size())};
  std::vector<float> y(halves.size());
  ops_->gather_rows(table, std::vector<int32_t>{0}, y.data());
  for (size_t i = 0; i < halves.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(f16_to_f32(halves[i])));
}

TEST_P(OpsTest, RmsNorm) {
  for (const int64_t dim : {1, 5, 16, 33, 64, 127, 1024}) {
    for (const int64_t n : {0, 1, 9, 70}) {
      const auto x = random_.normal(n * dim), weight = random_.normal(dim);
      std::vector<float> y(x), want(x.size());
      ops_->rms_norm(y.data(), n, dim, weight.data(), 1e-5f, y.data());  // in place
      reference_->rms_norm(x.data(), n, dim, weight.data(), 1e-5f, want.data());
      expect_close(y, want, 1e-6, "rms_norm " + std::to_string(dim));
    }
  }
}

TEST_P(OpsTest, LayerNorm) {
  for (const int64_t dim : {1, 2, 7, 16, 33, 63, 65, 129, 1024}) {
    for (const int64_t n : {0, 1, 9, 140}) {
      auto x = random_.normal(n * dim);
      const auto weight = random_.normal(dim), bias = random_.normal(dim);
      for (float& v : x)
        v += 30.0f;  // an offset that a variance of squares less the square of the mean would lose digits to
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
        std::vector<float> y(x), want(x.size());
        ops_->layer_norm(y.data(), n, dim, weight.data(), b, 1e-5f, y.data());  // in place
        reference_->layer_norm(x.data(), n, dim, weight.data(), b, 1e-5f, want.data());
        // An ulp of the mean, 30 * 2^-24, shifts the whole row; two values may lie closer to each other than to it.
        expect_close(y, want, dim > 2 ? 2e-5 : 4e-3, "layer_norm " + std::to_string(dim));
      }
    }
  }
}

TEST_P(OpsTest, SumSquares) {
  for (const int64_t dim : {1, 7, 63, 65, 129, 1024, 3001}) {
    for (const int64_t n : {0, 1, 5, 140}) {
      const auto x = random_.normal(n * dim);
      std::vector<float> got(static_cast<size_t>(n), NAN), want(got);
      ops_->sum_squares(x.data(), n, dim, got.data());
      reference_->sum_squares(x.data(), n, dim, want.data());
      expect_close(got, want, 2e-6, "sum_squares " + std::to_string(dim));
    }
  }
}

TEST_P(OpsTest, SumSquaresShowsEveryValueThatIsNotFinite) {
  for (const int64_t dim : {1, 15, 16, 17, 64, 200}) {
    for (const float bad : {NAN, INFINITY, -INFINITY, 1e30f}) {
      for (int64_t at = 0; at < dim; ++at) {
        std::vector<float> x(static_cast<size_t>(3 * dim), 2.0f), sums(3);
        x[static_cast<size_t>(dim + at)] = bad;
        ops_->sum_squares(x.data(), 3, dim, sums.data());
        ASSERT_FALSE(std::isfinite(sums[1])) << bad << " at " << at << " of " << dim;
        ASSERT_EQ(sums[0], 4.0f * static_cast<float>(dim)) << "its neighbours are not touched";
        ASSERT_EQ(sums[2], sums[0]);
      }
    }
  }
}

TEST_P(OpsTest, Rope) {
  struct Case {
    int64_t n, heads, head_dim, rotary_dim;
  };
  for (const auto& [n, heads, head_dim, rotary] : {Case{0, 2, 16, 16}, Case{1, 1, 16, 16}, Case{3, 5, 24, 12},
                                                   Case{7, 3, 80, 34}, Case{90, 8, 128, 128}}) {
    const auto x = random_.normal(n * heads * head_dim), cos = random_.normal(n * rotary / 2),
               sin = random_.normal(n * rotary / 2);
    std::vector<float> y(x), want(x);
    ops_->rope(y.data(), n, heads, head_dim, rotary, cos.data(), sin.data());
    reference_->rope(want.data(), n, heads, head_dim, rotary, cos.data(), sin.data());
    expect_close(y, want, 1e-6, "rope " + std::to_string(head_dim));
  }
}

TEST_P(OpsTest, CombineAddsInRankOrder) {
  for (const int64_t hidden : {1, 16, 67, 1024}) {
    const int64_t n = 30, k = 4;
    const auto rows = random_.normal(n * k * hidden), weights = random_.normal(n * k),
               y = random_.normal(n * hidden);
    std::vector<float> got(y), want(y);
    ops_->combine(rows.data(), weights.data(), n, k, hidden, got.data());
    reference_->combine(rows.data(), weights.data(), n, k, hidden, want.data());
    expect_close(got, want, 1e-6, "combine " + std::to_string(hidden));
  }
  // 2^24 + 1 - 2^24 in f32 is 0 in this order and 1 in others.
  std::vector<float> rows{16777216.0f, 1.0f, -16777216.0f}, y{0.0f};
  const std::vector<float> ones{1.0f, 1.0f, 1.0f};
  ops_->combine(rows.data(), ones.data(), 1, 3, 1, y.data());
  EXPECT_EQ(y[0], 0.0f);
}

TEST_P(OpsTest, Relu) {
  for (const int64_t count : {1, 7, 16, 33, 1000, 40000}) {
    auto got = random_.normal(count);
    got.front() = NAN;
    auto want = got;
    ops_->relu(got.data(), count);
    reference_->relu(want.data(), count);
    EXPECT_TRUE(std::isnan(got.front()) && std::isnan(want.front()));
    EXPECT_TRUE(std::equal(got.begin() + 1, got.end(), want.begin() + 1)) << count;
  }
}

TEST_P(OpsTest, SiluMul) {
  for (const int64_t count : {0, 1, 31, 1000, 40000}) {
    const auto gate = random_.normal(count, 4.0f), up = random_.normal(count);
    std::vector<float> got(gate), want(gate);
    ops_->silu_mul(got.data(), up.data(), count);
    reference_->silu_mul(want.data(), up.data(), count);
    expect_close(got, want, 1e-6, "silu_mul " + std::to_string(count));
  }
  std::vector<float> extreme{-1e30f, -100.0f, -88.0f, 88.0f, 1e30f, 0.0f};
  const std::vector<float> one(extreme.size(), 1.0f);
  ops_->silu_mul(extreme.data(), one.data(), static_cast<int64_t>(extreme.size()));
  EXPECT_NEAR(extreme[1], 0.0f, 1e-30f);
  EXPECT_NEAR(extreme[2], 0.0f, 1e-30f);
  EXPECT_EQ(extreme[3], 88.0f);
  EXPECT_EQ(extreme[4], 1e30f);
  EXPECT_EQ(extreme[5], 0.0f);
  EXPECT_TRUE(std::isfinite(extreme[0]));
}

TEST_P(OpsTest, Scale) {
  for (const int64_t count : {0, 1, 31, 1000, 40000}) {
    const auto x = random_.normal(count, 4.0f);
    std::vector<float> got(x), want(x);
    ops_->scale(got.data(), count, 0.22f);
    reference_->scale(want.data(), count, 0.22f);
    EXPECT_EQ(got, want) << "one rounding";
  }
}

TEST_P(OpsTest, RowsTimesTheirFactors) {
  struct Case {
    int64_t n, each, dim;
  };
  for (const auto& [n, each, dim] : {Case{1, 1, 1}, Case{5, 1, 37}, Case{3, 2, 64}, Case{33, 8, 20}}) {
    const auto x = random_.normal(n * dim, 4.0f), factors = random_.normal(n * each);
    std::vector<float> got(static_cast<size_t>(n * each * dim), NAN), want(got);
    ops_->scale_rows(x.data(), factors.data(), n, each, dim, got.data());
    for (int64_t i = 0; i < n * each * dim; ++i)
      want[static_cast<size_t>(i)] =
          x[static_cast<size_t>(i / dim / each * dim + i % dim)] * factors[static_cast<size_t>(i / dim)];
    EXPECT_EQ(got, want) << n << " rows, each " << each << " times";
    if (each > 1) continue;
    auto in_place = x;
    ops_->scale_rows(in_place.data(), factors.data(), n, 1, dim, in_place.data());
    EXPECT_EQ(in_place, want) << "in place";
  }
}

TEST_P(OpsTest, Exponentials) {
  for (const int64_t count : {0, 1, 31, 1000, 40000}) {
    const auto x = random_.normal(count, 9.0f);
    std::vector<float> got(x), want(x);
    ops_->exponentials(x.data(), count, 20.0f, 0.7f, got.data());
    reference_->exponentials(x.data(), count, 20.0f, 0.7f, want.data());
    expect_close(got, want, 1e-5, "exponentials " + std::to_string(count));
  }
  const std::vector<float> x{3.0f, -INFINITY, -100.0f, -80.0f};
  std::vector<float> y(x.size(), -1.0f);
  ops_->exponentials(x.data(), static_cast<int64_t>(x.size()), 3.0f, 1.0f, y.data());
  EXPECT_EQ(y[0], 1.0f) << "the largest";
  EXPECT_EQ(y[1], 0.0f);
  EXPECT_EQ(y[2], 0.0f);
  EXPECT_NEAR(y[3], 9.0e-37f, 5e-38f);
}

TEST_P(OpsTest, NanIsNotHidden) {
  std::vector<float> gate{NAN, 1.0f}, up{1.0f, 1.0f};
  ops_->silu_mul(gate.data(), up.data(), 2);
  EXPECT_TRUE(std::isnan(gate[0]));
  std::vector<float> x{NAN, 5.0f};
  ops_->clamp(x.data(), 2, 1.0f);
  EXPECT_TRUE(std::isnan(x[0]));
  const std::vector<float> one(2, 1.0f);
  ops_->layer_norm(x.data(), 1, 2, one.data(), nullptr, 1e-5f, up.data());
  EXPECT_TRUE(std::isnan(up[0]) && std::isnan(up[1]));
}

TEST_P(OpsTest, AddScaled) {
  for (const int64_t dim : {1, 19, 64, 2048}) {
    const int64_t n = 33;
    const auto x = random_.normal(n * dim), logits = random_.normal(n, 3.0f), y = random_.normal(n * dim);
    for (const float* logit : {static_cast<const float*>(nullptr), logits.data()}) {
      std::vector<float> got(y), want(y);
      ops_->add_scaled(x.data(), logit, n, dim, got.data());
      reference_->add_scaled(x.data(), logit, n, dim, want.data());
      expect_close(got, want, 1e-6, "add_scaled " + std::to_string(dim));
    }
  }
}

TEST_P(OpsTest, ClampIsExact) {
  for (const int64_t count : {0, 1, 50, 100001}) {
    std::vector<float> got = random_.normal(count, 3.0f), want(got);
    ops_->clamp(got.data(), count, 2.5f);
    reference_->clamp(want.data(), count, 2.5f);
    expect_same(got.data(), want.data(), count, "clamp");
  }
}

TEST(OpsOptionsTest, AreResolved) {
  const auto ops = make_cpu_ops({.threads = 0, .deterministic = false, .isa = Isa::kAvx512Bf16Vnni});
  EXPECT_GE(ops->options().threads, 1);
  EXPECT_TRUE(has_isa(ops->options().isa));
}

TEST(IsaTest, TheBestIsTheLastThatTheMachineHas) {
  EXPECT_TRUE(has_isa(Isa::kScalar)) << "every machine has it";
  EXPECT_TRUE(has_isa(best_isa()));
  std::set<std::string_view> names;
  for (const Isa isa : kIsas) {
    EXPECT_TRUE(isa <= best_isa() || !has_isa(isa)) << isa_name(isa);
    EXPECT_TRUE(names.insert(isa_name(isa)).second) << isa_name(isa);
    EXPECT_EQ(make_cpu_ops({.threads = 1, .isa = isa})->options().isa, has_isa(isa) ? isa : best_isa());
  }
}

TEST(IsaTest, EachPrecisionHasItsInstructions) {
  const auto instructions = [](Isa isa, DType weights) { return product_instructions(isa, weights, false); };
  for (const Isa isa : kIsas) {
    EXPECT_EQ(instructions(isa, DType::kF16), instructions(isa, DType::kF32));
    EXPECT_EQ(instructions(isa, DType::kBF16In12), instructions(isa, DType::kBF16));
    for (const DType weights : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4})
      EXPECT_EQ(product_instructions(isa, weights, true), instructions(isa, DType::kF32)) << "nothing is rounded";
  }
  EXPECT_EQ(instructions(Isa::kAvx2Vnni, DType::kInt8), "AVX-VNNI");
  EXPECT_EQ(instructions(Isa::kAvx512, DType::kInt4), "AVX2");
  EXPECT_EQ(instructions(Isa::kAvx512, DType::kInt8), "AVX-512");
  EXPECT_EQ(instructions(Isa::kAvx512Vnni, DType::kBF16), "AVX-512");
  EXPECT_EQ(instructions(Isa::kAvx512Vnni, DType::kInt4), "AVX-512 VNNI");
  EXPECT_EQ(instructions(Isa::kAvx512Bf16Vnni, DType::kBF16),
            cpu::bf16_pairs_pay() ? "AVX-512 BF16" : "AVX-512 BF16, AVX-512");
  if (has_isa(Isa::kAvx512Vnni)) EXPECT_EQ(instructions(Isa::kAvx512Vnni, DType::kFP8), "AVX-512");
  EXPECT_EQ(instructions_by_precision(Isa::kAvx512Vnni, false),
            "AVX-512 (f32, bf16, f16), AVX-512 VNNI (int8, int4)");
  EXPECT_EQ(instructions_by_precision(Isa::kAvx512Vnni, true), "AVX-512 (f32, bf16, f16, int8, int4)");
}

}  // namespace
}  // namespace moestro::kernels::test

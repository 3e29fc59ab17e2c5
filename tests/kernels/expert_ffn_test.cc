// expert_ffn against the reference and against the same mathematics with plain products, and what routing may
// do to it.

#include "common/machine/numa_pages.h"
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

struct Case {
  int64_t hidden, ffn, tokens;
};
constexpr Case kCases[] = {{1, 1, 1},     {16, 24, 2},    {33, 70, 3},   {64, 128, 7},
                           {96, 200, 1},  {100, 65, 25},  {192, 50, 4},  {257, 130, 9},
                           {512, 600, 1}, {1100, 300, 5}, {640, 450, 70}};
struct Bound {
  DType dtype;
  double bound;
};
constexpr Bound kBounds[] = {
    {DType::kF32, 1e-5}, {DType::kBF16, 1e-5}, {DType::kF16, 1e-5}, {DType::kInt8, 1e-5}, {DType::kInt4, 1e-5}};

ExpertMatrices random_expert(int64_t hidden, int64_t ffn, Random& random) {
  const float deviation = 1.0f / std::sqrt(static_cast<float>(hidden));
  return {hidden, ffn, random.normal(ffn * hidden, deviation), random.normal(ffn * hidden, deviation),
          random.normal(hidden * ffn, 1.0f / std::sqrt(static_cast<float>(ffn)))};
}

std::string name_of(const Case& c, DType dtype) {
  return std::string(dtype_name(dtype)) + " hidden " + std::to_string(c.hidden) + " ffn " +
         std::to_string(c.ffn) + " tokens " + std::to_string(c.tokens);
}

class ExpertFfnTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(GetParam());
    ops_ = cpu_ops(GetParam());
  }
  /// Rows for top-2 routing in which every token sends one choice here, in an order that is not that of the
  /// tokens.
  std::vector<RoutedRow> routes(int64_t tokens) {
    std::vector<RoutedRow> rows;
    for (int64_t t = 0; t < tokens; ++t)
      rows.push_back({static_cast<int32_t>(t), static_cast<int32_t>(random_.below(2))});
    std::shuffle(rows.begin(), rows.end(), random_.engine());
    return rows;
  }
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isa, ExpertFfnTest, ::testing::ValuesIn(all_isas()), isa_test_name);

// Large enough for phase 2 to go tile by tile, and for pieces of several nodes.
TEST_P(ExpertFfnTest, WhereWeightsLieAndWhichThreadsThereAreShowsInNoBit) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kInt8, DType::kInt4}) {
    const ExpertLayout layout(512, dtype == DType::kInt4 ? 2600 : 1700, dtype);
    ASSERT_GT(layout.tiles(), 2);
    const auto blob = write_expert_blob(layout, random_expert(layout.hidden(), layout.ffn(), random_));
    std::vector<int16_t> pieces;
    for (int64_t at = 0; at < layout.bytes(); at += static_cast<int64_t>(machine::kNodePieceBytes))
      pieces.push_back(static_cast<int16_t>(pieces.size() % 2));
    const machine::NodeMap map(blob, pieces);
    for (const int64_t tokens : {1, 3, 5}) {
      const auto x = random_.normal(tokens * layout.hidden());
      const auto rows = routes(tokens);
      for (const bool deterministic : {false, true}) {
        std::vector<float> alone(static_cast<size_t>(tokens * 2 * layout.hidden())), out(alone);
        make_cpu_ops({.threads = 1, .deterministic = deterministic, .isa = GetParam()})
            ->expert_ffn(layout, blob.data(), x.data(), rows, 2, alone.data());
        const auto placed =
            make_cpu_ops({.threads = 3, .deterministic = deterministic, .isa = GetParam(), .nodes = {0, 1, 0}});
        placed->set_weight_nodes(map);
        placed->expert_ffn(layout, blob.data(), x.data(), rows, 2, out.data());
        EXPECT_GT(placed->placed_parts().on_their_node, 0U) << "so nodes are heeded at all";
        EXPECT_EQ(out, alone) << name_of({layout.hidden(), layout.ffn(), tokens}, dtype)
                              << (deterministic ? ", deterministic" : "");
      }
    }
  }
}

TEST_P(ExpertFfnTest, AgreesWithTheReference) {
  for (const auto& [dtype, bound] : kBounds) {
    for (const Case& c : kCases) {
      const ExpertLayout layout(c.hidden, c.ffn, dtype);
      const auto blob = write_expert_blob(layout, random_expert(c.hidden, c.ffn, random_));
      const auto x = random_.normal(c.tokens * c.hidden);
      const auto rows = routes(c.tokens);
      std::vector<float> out(static_cast<size_t>(c.tokens * 2 * c.hidden), 7.0f), want(out);
      ops_->expert_ffn(layout, blob.data(), x.data(), rows, 2, out.data());
      reference_->expert_ffn(layout, blob.data(), x.data(), rows, 2, want.data());
      expect_close(out, want, bound, name_of(c, dtype));
    }
  }
}

TEST_P(ExpertFfnTest, EqualsUnfusedProductsOfTheDequantisedMatrices) {
  for (const auto& [dtype, bound] : kBounds) {
    for (const Case& c : {Case{64, 128, 3}, Case{130, 333, 8}, Case{1024, 200, 1}}) {
      const ExpertLayout layout(c.hidden, c.ffn, dtype);
      ExpertMatrices read;
      const auto blob = write_expert_blob(layout, random_expert(c.hidden, c.ffn, random_), &read);
      const auto x = random_.normal(c.tokens * c.hidden);
      std::vector<RoutedRow> rows;
      for (int32_t t = 0; t < c.tokens; ++t) rows.push_back({t, 0});
      std::vector<float> fused(x.size()), plain(x.size());
      ops_->expert_ffn(layout, blob.data(), x.data(), rows, 1, fused.data());
      std::vector<float> gate(static_cast<size_t>(c.tokens * c.ffn)), up(gate.size());
      ops_->matmul(x.data(), c.tokens, {read.gate.data(), DType::kF32, c.ffn, c.hidden}, nullptr,
                   gate.data());
      ops_->matmul(x.data(), c.tokens, {read.up.data(), DType::kF32, c.ffn, c.hidden}, nullptr, up.data());
      ops_->silu_mul(gate.data(), up.data(), c.tokens * c.ffn);
      ops_->matmul(gate.data(), c.tokens, {read.down.data(), DType::kF32, c.hidden, c.ffn}, nullptr,
                   plain.data());
      expect_close(fused, plain, bound, name_of(c, dtype));
    }
  }
}

TEST_P(ExpertFfnTest, WithoutAGateAgreesWithTheReference) {
  if (!ops_->supports_encoders()) GTEST_SKIP() << "no experts without a gate on this device";
  const GatedUnit relu{.kind = GatedUnit::Kind::kRelu};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4}) {
    for (const bool bias : {false, true}) {
      for (const Case& c : {Case{1, 1, 1}, Case{33, 70, 3}, Case{100, 65, 25}, Case{512, 1700, 1}, Case{640, 40, 70}}) {
        const ExpertLayout layout(c.hidden, c.ffn, dtype, bias, false);
        auto blob = write_expert_blob(layout, random_expert(c.hidden, c.ffn, random_));
        if (bias)
          ::moestro::test::write_expert_biases(layout, {}, random_.normal(c.ffn), random_.normal(c.hidden), blob);
        const auto x = random_.normal(c.tokens * c.hidden);
        const auto rows = routes(c.tokens);
        const auto fast = cpu_ops(GetParam(), 2, false);
        std::vector<float> out(static_cast<size_t>(c.tokens * 2 * c.hidden), 7.0f), want(out), hurried(out);
        ops_->expert_ffn(layout, blob.data(), x.data(), rows, 2, out.data(), relu);
        fast->expert_ffn(layout, blob.data(), x.data(), rows, 2, hurried.data(), relu);
        reference_->expert_ffn(layout, blob.data(), x.data(), rows, 2, want.data(), relu);
        expect_close(out, want, 1e-5, name_of(c, dtype));
        // Activations are rounded, as in the other tests of the fast mode.
        if (dtype == DType::kF32 || dtype == DType::kF16) expect_close(hurried, want, 1e-5, name_of(c, dtype));
      }
    }
  }
}

TEST_P(ExpertFfnTest, BiasesAndTheClampedUnitAgreeWithTheReference) {
  const GatedUnit units[] = {{}, {.kind = GatedUnit::Kind::kClampedSwiglu, .alpha = 1.702f, .limit = 0.8f}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
    if (!ops_->supports(dtype)) continue;
    // Many tiles and few rows: their parts are added, and the bias of down must be in one of them.
    for (const Case& c : {Case{1, 1, 1}, Case{33, 70, 3}, Case{100, 65, 25}, Case{512, 1700, 1}, Case{640, 450, 70}}) {
      const ExpertLayout layout(c.hidden, c.ffn, dtype, true);
      auto blob = write_expert_blob(layout, random_expert(c.hidden, c.ffn, random_));
      ::moestro::test::write_expert_biases(layout, random_.normal(c.ffn), random_.normal(c.ffn),
                                           random_.normal(c.hidden), blob);
      const auto x = random_.normal(c.tokens * c.hidden);
      const auto rows = routes(c.tokens);
      const auto fast = cpu_ops(GetParam(), 2, false);
      for (const GatedUnit& unit : units) {
        std::vector<float> out(static_cast<size_t>(c.tokens * 2 * c.hidden), 7.0f), want(out), hurried(out);
        ops_->expert_ffn(layout, blob.data(), x.data(), rows, 2, out.data(), unit);
        reference_->expert_ffn(layout, blob.data(), x.data(), rows, 2, want.data(), unit);
        expect_close(out, want, 1e-5, name_of(c, dtype));
        fast->expert_ffn(layout, blob.data(), x.data(), rows, 2, hurried.data(), unit);
        expect_close(hurried, want, dtype == DType::kF32 ? 1e-5 : 0.05, name_of(c, dtype) + ", fast");
      }
    }
  }
}

// What the formula says, number by number: one column of weights 1 makes gate and up the biases.
TEST_P(ExpertFfnTest, TheClampedUnitIsItsFormula) {
  const GatedUnit unit{.kind = GatedUnit::Kind::kClampedSwiglu, .alpha = 1.5f, .limit = 2.0f};
  const std::vector<float> gate{-9.0f, -1.0f, 0.5f, 3.0f, 1e30f}, up{0.25f, -5.0f, 4.0f, 1.0f, -1e30f};
  for (size_t i = 0; i < gate.size(); ++i) {
    const ExpertLayout layout(1, 1, DType::kF32, true);
    auto blob = write_expert_blob(layout, {1, 1, {0.0f}, {0.0f}, {1.0f}});
    ::moestro::test::write_expert_biases(layout, {gate[i]}, {up[i]}, {0.125f}, blob);
    const float x = 1.0f;
    const RoutedRow row{};
    float out = NAN;
    ops_->expert_ffn(layout, blob.data(), &x, {&row, 1}, 1, &out, unit);
    const double g = std::min<double>(gate[i], 2.0), u = std::clamp<double>(up[i], -2.0, 2.0);
    EXPECT_NEAR(out, g / (1 + std::exp(-1.5 * g)) * (u + 1) + 0.125, 1e-6) << gate[i] << ", " << up[i];
  }
}

TEST_P(ExpertFfnTest, ZeroRowsTouchNothing) {
  const ExpertLayout layout(64, 64, DType::kBF16);
  const auto blob = write_expert_blob(layout, random_expert(64, 64, random_));
  const std::vector<float> x(64, 1.0f);
  std::vector<float> out(128, 5.0f);
  ops_->expert_ffn(layout, blob.data(), x.data(), {}, 2, out.data());
  EXPECT_EQ(out, std::vector<float>(128, 5.0f));
}

TEST_P(ExpertFfnTest, WritesOnlyTheRowsOfItsTokensAndRanks) {
  const ExpertLayout layout(40, 90, DType::kInt8);
  const auto blob = write_expert_blob(layout, random_expert(40, 90, random_));
  const auto x = random_.normal(5 * 40);
  std::vector<float> out(5 * 3 * 40, 5.0f);
  const std::vector<RoutedRow> rows{{4, 2}, {1, 0}};
  ops_->expert_ffn(layout, blob.data(), x.data(), rows, 3, out.data());
  for (int64_t row = 0; row < 15; ++row) {
    const bool routed = row == 4 * 3 + 2 || row == 1 * 3;
    const bool untouched =
        std::all_of(out.begin() + row * 40, out.begin() + (row + 1) * 40, [](float f) { return f == 5.0f; });
    EXPECT_NE(routed, untouched) << "row " << row;
  }
}

}  // namespace
}  // namespace moestro::kernels::test

// Products with weights in blocks. Exact ones are, bit by bit, those with the same numbers as f32; fast ones are close
// to them.

#include "kernels/cpu/peak_loops.h"
#include "tests/kernels/random_blocks.h"
#include "tests/kernels/rounded_activations.h"

namespace moestro::kernels::test {
namespace {

/// What fast products multiply blocks with: activations rounded to bytes; with FP8 those of bf16, or of f32 where the
/// machine has no instructions for that.
std::vector<float> as_multiplied(Isa isa, DType d, const std::vector<float>& x, int64_t cols) {
  if (isa == Isa::kScalar) return x;
  if (d != DType::kFP8 && d != DType::kFP8G32) return rounded(DType::kInt8, x, cols);
  const bool few = std::ssize(x) / cols < (d == DType::kFP8 ? 12 : 24);
  return product_instructions(isa, d, false).starts_with("AVX-512 BF16") && (few || cpu::bf16_pairs_pay())
             ? rounded(DType::kBF16, x, cols)
             : x;
}

/// What results of normal activations are about as large as.
double size_of(const BlockMatrix& m) {
  double squares = 0;
  for (const float w : m.values) squares += static_cast<double>(w) * w;
  return std::sqrt(squares / static_cast<double>(m.weight.rows));
}

class BlocksTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { SKIP_WITHOUT(GetParam()); }
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isa, BlocksTest, ::testing::ValuesIn(all_isas()), isa_test_name);

TEST_P(BlocksTest, RowsOfATableAreTheReferenceBitByBit) {
  const auto ops = cpu_ops(GetParam(), 1, true);
  for (const DType d : block_formats()) {
    const BlockMatrix m(random_, d, 5, 768);
    const std::vector<int32_t> ids = {3, 0, 4};
    std::vector<float> got(3 * 768);
    ops->gather_rows(m.weight, ids, got.data());
    for (size_t i = 0; i < ids.size(); ++i)
      expect_same(got.data() + i * 768, m.values.data() + ids[i] * 768, 768, std::string(dtype_name(d)));
  }
}

TEST_P(BlocksTest, EveryByteOfFP8IsWidened) {
  const auto ops = cpu_ops(GetParam(), 1, true);
  BlockMatrix m(random_, DType::kFP8, 1, 256);
  for (size_t c = 0; c < 256; ++c) m.bytes[c + 4 + c / 128 * 4] = static_cast<std::byte>(c);
  std::vector<float> got(256), want(256);
  formats::dequantise(DType::kFP8, m.bytes.data(), 256, want.data());
  const std::vector<int32_t> ids = {0};
  ops->gather_rows(m.weight, ids, got.data());
  for (size_t c = 0; c < 256; ++c) {
    if (c % 128 == 127) EXPECT_TRUE(std::isnan(got[c]) && std::isnan(want[c])) << c;
    else EXPECT_EQ(got[c], want[c]) << c;
  }
}

TEST_P(BlocksTest, EveryByteOfFP8IsMultiplied) {
  const auto ops = cpu_ops(GetParam(), 1, false);
  for (const DType d : {DType::kFP8, DType::kFP8G32})
    for (const int64_t n : {1, 3, 20}) {  // few tokens, and a panel
      BlockMatrix m(random_, d, 1, 256);
      const auto width = static_cast<size_t>(block_shape(d).columns);
      const auto at = [&](size_t c) -> std::byte& { return m.bytes[c + (c / width + 1) * 4]; };
      const float one = 1.0f;
      for (size_t b = 0; b < 256 / width; ++b) std::memcpy(m.bytes.data() + b * (4 + width), &one, sizeof one);
      for (size_t c = 0; c < 256; ++c) at(c) = static_cast<std::byte>(c);
      std::vector<float> values(256);
      formats::dequantise(d, m.bytes.data(), 256, values.data());
      for (size_t c = 0; c < 256; ++c) {
        // NaN times 0 is NaN: only the one that is looked at may be there.
        for (const size_t nan : {size_t{127}, size_t{255}}) at(nan) = static_cast<std::byte>(c == nan ? nan : 0);
        std::vector<float> x(static_cast<size_t>(n * 256)), y(static_cast<size_t>(n));
        for (int64_t t = 0; t < n; ++t) x[static_cast<size_t>(t * 256) + c] = static_cast<float>(t + 1);
        ops->matmul(x.data(), n, m.weight, nullptr, y.data());
        for (int64_t t = 0; t < n; ++t) {
          const float want = values[c] * static_cast<float>(t + 1), got = y[static_cast<size_t>(t)];
          ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
              << dtype_name(d) << " byte " << c << ", token " << t << " of " << n << ": " << got << ", not " << want;
        }
      }
    }
}

TEST_P(BlocksTest, ExactProductsAreThoseOfF32BitByBit) {
  const auto ops = cpu_ops(GetParam(), 2, true);
  for (const DType d : block_formats())
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{9, 256}, {200, 1280}})
      for (const int64_t n : {1, 2, 5, 24, 70}) {
        const BlockMatrix m(random_, d, rows, cols);
        const auto x = random_.normal(n * cols), bias = random_.normal(rows);
        std::vector<float> got(static_cast<size_t>(n * rows)), want(got.size());
        ops->matmul(x.data(), n, m.weight, bias.data(), got.data());
        ops->matmul(x.data(), n, m.wide, bias.data(), want.data());
        expect_same(got.data(), want.data(), n * rows, std::string(dtype_name(d)) + ", n " + std::to_string(n));
      }
}

TEST_P(BlocksTest, FastProductsAreThoseOfTheRoundedActivations) {
  const auto ops = cpu_ops(GetParam(), 2, false);
  const auto reference = make_reference_ops();
  for (const DType d : block_formats())
    for (const auto& [rows, spans] : {std::pair<int64_t, int64_t>{1, 1}, {35, 2}, {130, 5}, {17, 19}})
      for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 33, 70}) {
        // Smaller blocks: also rows that end within 256, and within 64.
        const int64_t block = block_shape(d).columns;
        const int64_t cols = spans * 256 - (block < 256 ? block * (rows % std::min<int64_t>(7, 256 / block)) : 0);
        const BlockMatrix m(random_, d, rows, cols);
        const auto x = random_.normal(n * cols), bias = random_.normal(rows);
        std::vector<float> got(static_cast<size_t>(n * rows), NAN), want(got.size());
        ops->matmul(x.data(), n, m.weight, bias.data(), got.data());
        reference->matmul(as_multiplied(GetParam(), d, x, cols).data(), n, m.wide,
                          bias.data(), want.data());
        expect_close(got, want, 1e-5, std::string(dtype_name(d)) + ", n " + std::to_string(n), size_of(m));
      }
}

TEST_P(BlocksTest, SubnormalScalesAreMultiplied) {
  const auto exact = cpu_ops(GetParam(), 2, true), fast = cpu_ops(GetParam(), 2, false);
  const auto reference = make_reference_ops();
  constexpr int64_t kRows = 35, kCols = 768;
  for (const DType d : block_formats())
    for (const int64_t n : {1, 5, 40}) {
      const BlockMatrix m(random_, d, kRows, kCols, {.subnormal = true});
      const auto x = random_.normal(n * kCols);
      const std::string what = std::string(dtype_name(d)) + ", n " + std::to_string(n);
      std::vector<float> got(static_cast<size_t>(n * kRows)), want(got.size());
      exact->matmul(x.data(), n, m.weight, nullptr, got.data());
      exact->matmul(x.data(), n, m.wide, nullptr, want.data());
      expect_same(got.data(), want.data(), n * kRows, what);
      fast->matmul(x.data(), n, m.weight, nullptr, got.data());
      reference->matmul(as_multiplied(GetParam(), d, x, kCols).data(), n, m.wide, nullptr, want.data());
      expect_close(got, want, 1e-5, what, size_of(m));
    }
}

TEST_P(BlocksTest, LargestNumbersOverflowNoSum) {
  const auto ops = cpu_ops(GetParam(), 2, false);
  const auto reference = make_reference_ops();
  constexpr int64_t kRows = 35, kCols = 768;
  for (const DType d : block_formats())
    for (const uint8_t bits : {0x00, 0x77, 0x7f, 0x80, 0x88, 0xff})
      for (const int64_t n : {1, 2, 4, 7, 21}) {
        const BlockMatrix m(random_, d, kRows, kCols, {.every = static_cast<std::byte>(bits)});
        std::vector<float> x(static_cast<size_t>(n * kCols)), got(static_cast<size_t>(n * kRows)), want(got.size());
        for (size_t i = 0; i < x.size(); ++i) x[i] = i / kCols % 2 == 0 ? 1.0f : -1.0f;  // each rounds to 127 or -127
        ops->matmul(x.data(), n, m.weight, nullptr, got.data());
        reference->matmul(x.data(), n, m.wide, nullptr, want.data());
        expect_close(got, want, 1e-5,
                     std::string(dtype_name(d)) + " of bytes " + std::to_string(bits) + ", n " + std::to_string(n),
                     static_cast<double>(kCols) * std::abs(static_cast<double>(m.values[1])));
      }
}

TEST_P(BlocksTest, RoundingStaysWithinTheBoundOfTheFormats) {
  const auto ops = cpu_ops(GetParam(), 2, false);
  const auto reference = make_reference_ops();
  for (const DType d : block_formats())
    for (const int64_t n : {1, 40}) {
      const BlockMatrix m(random_, d, 50, 1280);
      const auto x = random_.normal(n * 1280);
      std::vector<float> got(static_cast<size_t>(n * 50)), want(got.size());
      ops->matmul(x.data(), n, m.weight, nullptr, got.data());
      reference->matmul(x.data(), n, m.wide, nullptr, want.data());
      expect_close(got, want, formats::kRoundedProductError, std::string(dtype_name(d)) + ", n " + std::to_string(n),
                   size_of(m));
    }
}

TEST_P(BlocksTest, WhatIsNotFiniteShows) {
  const auto ops = cpu_ops(GetParam(), 2, false);
  for (const DType d : block_formats())
    for (const float bad : {NAN, INFINITY, -INFINITY})
      for (const int64_t n : {1, 30}) {
        const BlockMatrix m(random_, d, 20, 512);
        auto x = random_.normal(n * 512);
        x[static_cast<size_t>((n - 1) * 512 + 70)] = bad;
        std::vector<float> y(static_cast<size_t>(n * 20));
        ops->matmul(x.data(), n, m.weight, nullptr, y.data());
        for (int64_t t = 0; t < n; ++t)
          for (int64_t r = 0; r < 20; ++r)
            ASSERT_EQ(std::isfinite(y[static_cast<size_t>(t * 20 + r)]), t < n - 1)
                << dtype_name(d) << " token " << t << " of " << n << ", row " << r;
      }
}

TEST_P(BlocksTest, ExpertsOfSeveralFormatsAgreeWithTheReference) {
  const ExpertFormats mixes[] = {{DType::kQ4K, DType::kQ4K, DType::kQ6K}, {DType::kQ8_0},
                                 {DType::kBF16, DType::kQ4_0, DType::kF32}, {DType::kQ5K, DType::kF16, DType::kMXFP4},
                                 {DType::kQ2K, DType::kQ3K, DType::kIQ4NL}, {DType::kInt2}};
  const auto reference = make_reference_ops();
  for (const bool deterministic : {true, false}) {
    const auto ops = cpu_ops(GetParam(), 2, deterministic);
    for (const ExpertFormats& mix : mixes) {
      // Several tiles, of which the last does not fill a span of 256.
      const ExpertLayout layout(512, mix.down == DType::kQ8_0 || mix.down == DType::kInt2 ? 704 : 768, mix);
      std::vector<std::byte> blob = random_expert(random_, layout);
      // Plain numbers are random bits otherwise.
      for (int64_t i = 0; i < layout.tiles(); ++i) {
        const ExpertTile t = layout.tile(i);
        const auto plain = [&](DType d, int64_t at) {
          if (is_blocks(d)) return;
          const auto part = store_weight(random_.normal(t.ffn * 512, 0.05f), d, t.ffn, 512);
          std::memcpy(blob.data() + t.offset + at, part.bytes.data(), static_cast<size_t>(t.ffn * row_bytes(d, 512)));
        };
        plain(mix.gate, t.gate), plain(mix.up, t.up), plain(mix.down, t.down);
      }
      for (const int64_t n : {1, 3, 9, 66}) {
        if (deterministic && n > 9) continue;  // which are as slow as f32
        std::vector<RoutedRow> rows;
        for (int32_t i = 0; i < n; ++i) rows.push_back({i, 0});
        const auto x = random_.normal(n * 512, 0.3f);
        std::vector<float> got(static_cast<size_t>(n * 512)), want(got.size());
        ops->expert_ffn(layout, blob.data(), x.data(), rows, 1, got.data());
        reference->expert_ffn(layout, blob.data(), x.data(), rows, 1, want.data());
        expect_close(got, want, deterministic ? 1e-4 : 2 * formats::kRoundedProductError,
                     "mix " + std::string(dtype_name(mix.gate)) + ", n " + std::to_string(n));
      }
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

// Products with tiles (AMX) against those with vectors, on the same rounded activations: real tiles where the machine
// has them, and on any machine with AVX-512 BF16 and VNNI tiles that are arrays, so that everything around the
// instructions is covered.

#include <array>
#include <cstring>
#include <map>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/scratch.h"
#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::cpu {
namespace {

using test::store_weight;
using test::StoredWeight;

constexpr DType kDtypes[] = {DType::kBF16, DType::kInt8, DType::kInt4};

/// Rounded activations of n tokens, with room behind them as RoundedRows wants it.
struct Activations {
  Activations(const RoundedProduct& rounding, const std::vector<float>& x, int64_t n, int64_t cols) {
    rows.tokens = n;
    rows.group_count = quant_groups(cols);
    const int64_t count = (cols + rounding.block_columns - 1) / rounding.block_columns;
    blocks.resize(static_cast<size_t>((count * n * RoundedRows::kBlockBytes + RoundedRows::kSpareBytes) / 64));
    groups.resize(static_cast<size_t>(n * rows.group_count * 3));
    rows.blocks = reinterpret_cast<std::byte*>(blocks.data());
    rows.groups = reinterpret_cast<std::byte*>(groups.data());
    for (int64_t t = 0; t < n; ++t) rounding.round(x.data() + t * cols, cols, t, rows);
  }
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  std::vector<Line> blocks;
  std::vector<float> groups;
  RoundedRows rows;
};

/// Weights as runs of columns, as an expert's down projection has them.
struct Runs {
  Runs(test::Random& random, DType dtype, int64_t rows, const std::vector<int64_t>& widths) {
    for (const int64_t cols : widths) stored.push_back(store_weight(random.normal(rows * cols), dtype, rows, cols));
    for (const StoredWeight& s : stored)
      runs.push_back({static_cast<const std::byte*>(s.weight.data), row_bytes(dtype, s.weight.cols),
                      s.weight.parameters, quant_groups(s.weight.cols) * group_parameters(dtype), s.weight.cols});
  }
  std::vector<StoredWeight> stored;
  std::vector<WeightRun> runs;
};

std::vector<float> product(const ProductByTokens& by_tokens, const Runs& weights, const Activations& x, int64_t n,
                           int64_t rows, const float* bias) {
  static Scratch<float> panel;
  std::vector<float> y(static_cast<size_t>(n * rows), NAN);
  std::vector<float*> to;
  for (int64_t t = 0; t < n; ++t) to.push_back(y.data() + t * rows);
  ProductTask task;
  task.rounded = &x.rows;
  task.n = n;
  task.runs = weights.runs.data();
  task.run_count = static_cast<int64_t>(weights.runs.size());
  task.rows = rows;
  task.bias = bias;
  task.y = to.data();
  task.panel = panel.at_least(kPanelFloats);
  by_tokens.of(n)(task);
  return y;
}

void expect_products_of_vectors(const KernelTable& tiles) {
  test::Random random;
  const RoundedProduct* vectors = kernel_table(Isa::kAvx512Bf16Vnni).rounded;
  for (const DType dtype : kDtypes) {
    for (const int64_t rows : {1, 16, 33, 64, 150}) {
      for (const std::vector<int64_t>& widths : {std::vector<int64_t>{33}, {64}, {1030}, {64, 128, 90}, {2048, 2500}}) {
        int64_t cols = 0;
        for (const int64_t width : widths) cols += width;
        const Runs weights(random, dtype, rows, widths);
        for (const int64_t n : {17, 24, 31, 32, 50}) {
          const auto& with_tiles = tiles.rounded[static_cast<size_t>(dtype)];
          const auto x = random.normal(n * cols), bias = random.normal(rows);
          const Activations rounded(with_tiles, x, n, cols);
          const float* added = n % 2 ? bias.data() : nullptr;
          const auto got = product(with_tiles.product, weights, rounded, n, rows, added);
          const auto want = product(vectors[static_cast<size_t>(dtype)].product, weights, rounded, n, rows, added);
          test::expect_close(got, want, 1e-5,
                             std::string(dtype_name(dtype)) + " rows " + std::to_string(rows) + " cols " +
                                 std::to_string(cols) + " n " + std::to_string(n));
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

/// bf16 in 12 bits through `table`'s panels, exceptions among them, against its bf16: every bit.
void expect_products_of_bf16(const KernelTable& table) {
  test::Random random;
  const RoundedProduct& bf16 = table.rounded[static_cast<size_t>(DType::kBF16)];
  for (const int64_t rows : {16, 33, 64, 150})
    for (const std::vector<int64_t>& widths : {std::vector<int64_t>{33}, {1030}, {64, 128, 90}, {2048, 2500}}) {
      int64_t cols = 0;
      for (const int64_t width : widths) cols += width;
      const Runs wide(random, DType::kBF16, rows, widths);
      std::vector<std::vector<std::byte>> parts;
      parts.reserve(2 * widths.size());
      std::vector<std::vector<WeightException>> exceptions(widths.size());
      Runs narrow = wide;
      for (size_t i = 0; i < widths.size(); ++i) {
        auto& values = parts.emplace_back(static_cast<size_t>(rows * row_bytes(DType::kBF16In12, widths[i])));
        auto& exponents = parts.emplace_back(static_cast<size_t>(bf16_in_12::exponents_bytes(rows, widths[i])));
        ASSERT_TRUE(bf16_in_12::encode(static_cast<const uint16_t*>(wide.stored[i].weight.data), rows, widths[i],
                                       values.data(), exponents.data()));
        const auto own = bf16_in_12::read_exponents(exponents.data(), rows * widths[i]);
        std::map<int64_t, uint8_t>
            all;  // its own, and every tenth number or so gets another exponent; so do the weights to compare with
        for (int64_t at = random.below(20); at < rows * widths[i]; at += 1 + random.below(20))
          all[at] = static_cast<uint8_t>(120 + random.below(6));
        for (int64_t e = 0; e < own.count; ++e) all[bf16_in_12::exception_position(own, e)] = own.exceptions[e];
        auto* numbers = reinterpret_cast<uint16_t*>(narrow.stored[i].bytes.data());
        for (const auto& [at, exponent] : all) {
          exceptions[i].push_back({at / widths[i], at % widths[i], bf16_in_12::with_exponent(0, exponent)});
          numbers[at] = bf16_in_12::with_exponent(numbers[at], exponent);
        }
        exceptions[i].push_back({.row = INT64_MAX});
      }
      Runs changed = narrow;
      for (size_t i = 0; i < widths.size(); ++i) {
        changed.runs[i].w = changed.stored[i].bytes.data();
        narrow.runs[i] = {parts[2 * i].data(),
                          row_bytes(DType::kBF16In12, widths[i]),
                          reinterpret_cast<const uint16_t*>(parts[2 * i + 1].data()),
                          0,
                          widths[i],
                          rows,
                          exceptions[i].data(),
                          std::ssize(exceptions[i]) - 1};
      }
      for (const int64_t n : {1, 3, 17, 32, 50}) {
        const auto x = random.normal(n * cols), bias = random.normal(rows);
        const Activations rounded(bf16, x, n, cols);
        ASSERT_EQ(product(table.product_in_12_bits, narrow, rounded, n, rows, bias.data()),
                  product(bf16.product, changed, rounded, n, rows, bias.data()))
            << rows << " x " << cols << ", n " << n << ", seed " << test::seed();
      }
    }
}

KernelTable emulated_tile_kernels() { return with(kernel_table(Isa::kAvx512Bf16Vnni), kEmulatedTileProducts); }

TEST(TilesTest, PanelsOfBf16In12BitsAreThoseOfBf16) {
  SKIP_WITHOUT(Isa::kAvx512Bf16Vnni);
  expect_products_of_bf16(kernel_table(Isa::kAvx512Bf16Vnni));
  const int64_t before = emulated_tile_dots();
  expect_products_of_bf16(emulated_tile_kernels());
  EXPECT_GT(emulated_tile_dots(), before) << "no product went through tiles";
  if (has_isa(Isa::kAvx512Amx)) expect_products_of_bf16(kernel_table(Isa::kAvx512Amx));
}

TEST(TilesTest, EmulatedTilesMultiplyAsVectorsDo) {
  SKIP_WITHOUT(Isa::kAvx512Bf16Vnni);
  const int64_t before = emulated_tile_dots();
  expect_products_of_vectors(emulated_tile_kernels());
  EXPECT_GT(emulated_tile_dots(), before) << "no product went through tiles";
}

TEST(TilesTest, TilesMultiplyAsVectorsDo) {
  SKIP_WITHOUT(Isa::kAvx512Amx);
  expect_products_of_vectors(kernel_table(Isa::kAvx512Amx));
}

}  // namespace
}  // namespace moestro::kernels::cpu

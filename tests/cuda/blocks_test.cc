// Weights of blocks in the kernels: decoded numbers are those of the formats, bit by bit; products are the reference's
// over the same numbers, of few tokens in f32 and of many rounded to bf16.

#include "tests/kernels/random_blocks.h"

#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/block_formats.h"
#endif

namespace moestro::kernels::test {
namespace {

class Blocks : public CudaTest {
 protected:
  Random random_;
};

std::vector<float> to_bf16(std::vector<float> v) {
  for (float& f : v) f = bf16_to_f32(f32_to_bf16(f));
  return v;
}

std::string described(DType d, int64_t n, int64_t rows, int64_t cols) {
  return std::string(dtype_name(d)) + ", n " + std::to_string(n) + ", " + std::to_string(rows) + " by " +
         std::to_string(cols);
}

/// What results of normal activations are about as large as.
double size_of(const BlockMatrix& m) {
  double squares = 0;
  for (const float w : m.values) squares += static_cast<double>(w) * w;
  return std::max(1.0, std::sqrt(squares / static_cast<double>(m.weight.rows)));
}

/// Columns that a row of a format may have: those given, up to whole blocks.
int64_t whole(DType d, int64_t cols) { return round_up(cols, block_shape(d).columns); }

#ifndef MOESTRO_CUDA_PLUGIN
/// Blocks of any bits that a pack may have, at every address that their size allows.
TEST_F(Blocks, DecodedNumbersAreThoseOfTheFormatsBitByBit) {
  for (const DType d : block_formats_of_gpus()) {
    const BlockShape shape = block_shape(d);
    const cuda::BlockFormat format = cuda::block_format(static_cast<int32_t>(d));
    ASSERT_EQ(format.columns(), shape.columns) << dtype_name(d);
    ASSERT_EQ(format.bytes, shape.bytes) << dtype_name(d);
    constexpr int64_t kCount = 64;
    alignas(16) std::byte room[kCount * 256 + 16];
    std::vector<float> want(static_cast<size_t>(kCount * shape.columns));
    for (const int64_t at : {0, 4, 8, 12}) {
      std::byte* blocks = room + at;
      fill_blocks(random_, d, blocks, kCount, {.subnormal = at % 8 == 4});  // at two of them with subnormal scales
      if (d == DType::kMXFP4)  // every exponent that gives finite numbers
        for (int64_t i = 0; i < kCount; ++i) blocks[i * shape.bytes] = static_cast<std::byte>(i < 8 ? i : i * 3 + 63);
      formats::dequantise(d, blocks, kCount * shape.columns, want.data());
      for (int64_t i = 0; i < kCount; ++i)
        for (int c = 0; c < shape.columns; c += 4) {
          if ((c & format.half) != 0) continue;
          float got[8];
          cuda::with_block(format.dtype, [&](auto block) {
            decltype(block)::decode(reinterpret_cast<const char*>(blocks + i * shape.bytes), c, got);
          });
          for (int j = 0; j < 8; ++j)
            ASSERT_EQ(got[j], want[static_cast<size_t>(i * shape.columns + c + j % 4 + j / 4 * format.half)])
                << dtype_name(d) << " block " << i << " column " << c << " number " << j;
        }
    }
  }
}

TEST_F(Blocks, EveryByteOfE4M3IsItsNumber) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7f) == 0x7f) continue;  // a pack has none
    for (int i = 0; i < 4; ++i)
      ASSERT_EQ(cuda::e4m3_of(byte << (8 * i) | (0xa5a5a5a5u & ~(0xffu << (8 * i))), i),
                formats::e4m3_to_f32(static_cast<uint8_t>(byte)));
  }
}
#endif

TEST_F(Blocks, RowsOfATableAreTheReferenceBitByBit) {
  const auto ops = cuda_ops();
  for (const DType d : block_formats_of_gpus()) {
    const int64_t cols = whole(d, 352);
    const BlockMatrix m(random_, d, 5, cols);
    const std::vector<int32_t> ids = {3, 0, 4};
    std::vector<float> got(static_cast<size_t>(3 * cols), NAN);
    ops->gather_rows(m.weight, ids, got.data());
    for (size_t i = 0; i < ids.size(); ++i)
      expect_same(got.data() + static_cast<int64_t>(i) * cols, m.values.data() + ids[i] * cols, cols,
                  std::string(dtype_name(d)));
  }
}

TEST_F(Blocks, FewTokensAreTheReferencesAndOfOneTheSameWithOthers) {
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops();
  constexpr int64_t kTokens = 6;
  struct Shape {
    int64_t rows, cols;
  };
  // Rows of one block, of a part of a span, of whole ones and a part, of many; one row, and more than a block's.
  for (const DType d : block_formats_of_gpus())
    for (const auto& [rows, cols] : {Shape{1, 32}, Shape{33, 96}, Shape{17, 1312}, Shape{3, 4608}}) {
      const int64_t width = whole(d, cols);
      const BlockMatrix m(random_, d, rows, width);
      const auto x = random_.normal(kTokens * width), bias = random_.normal(rows);
      std::vector<float> all(static_cast<size_t>(kTokens * rows), NAN), want(all), one(all);
      ops->matmul(x.data(), kTokens, m.weight, bias.data(), all.data(), Activations::kExact);
      reference->matmul(x.data(), kTokens, m.wide, bias.data(), want.data());
      expect_close(all, want, 1e-5, described(d, kTokens, rows, width), size_of(m));
      for (const int64_t n : {1, 2, 5}) {
        ops->matmul(x.data() + width, n, m.weight, bias.data(), one.data(), Activations::kExact);
        expect_same(one.data(), all.data() + rows, n * rows, described(d, n, rows, width));
      }
    }
}

/// Matrices with the same x in one launch, and products that are added to what is there.
TEST_F(Blocks, GroupsAndSumsAreTheReferences) {
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops();
  const int64_t n = 3, cols = 512;
  for (const DType d : {DType::kQ4K, DType::kMXFP4, DType::kQ8_0}) {
    const BlockMatrix q(random_, d, 40, cols), k(random_, d, 7, cols);
    const auto x = random_.normal(n * cols), base = random_.normal(n * 40);
    std::vector<float> of_q(static_cast<size_t>(n * 40)), of_k(static_cast<size_t>(n * 7)), want(of_q), want_k(of_k),
        sum(base), product(of_q);
    const GroupProduct both[] = {{&q.weight, nullptr, of_q.data()}, {&k.weight, nullptr, of_k.data()}};
    ops->matmul_group(x.data(), n, both, Activations::kRounded);
    reference->matmul(x.data(), n, q.wide, nullptr, want.data());
    reference->matmul(x.data(), n, k.wide, nullptr, want_k.data());
    expect_close(of_q, want, 1e-5, described(d, n, 40, cols), size_of(q));
    expect_close(of_k, want_k, 1e-5, described(d, n, 7, cols), size_of(k));
    ops->matmul_onto(x.data(), n, q.weight, nullptr, product.data(), sum.data());
    for (size_t i = 0; i < want.size(); ++i) want[i] += base[i];
    expect_close(sum, want, 1e-5, described(d, n, 40, cols), size_of(q));
  }
}

TEST_F(Blocks, ManyTokensAreThoseOfTheRoundedNumbers) {
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  struct Shape {
    int64_t n, rows, cols;
  };
  // Each shape of tiles, whole and not; columns in parts, which begin within a span, and in one.
  for (const DType d : block_formats_of_gpus())
    for (const auto& [n, rows, cols] : {Shape{2, 5, 32}, Shape{33, 70, 416}, Shape{70, 66, 1376},
                                       Shape{129, 65, 288}}) {
      const int64_t width = whole(d, cols);
      const BlockMatrix m(random_, d, rows, width);
      const auto rounded = to_bf16(m.values);
      const auto x = random_.normal(n * width), bias = random_.normal(rows);
      std::vector<float> got(static_cast<size_t>(n * rows), NAN), want(got.size());
      ops->matmul(x.data(), n, m.weight, bias.data(), got.data(), Activations::kRounded);
      reference->matmul(to_bf16(x).data(), n, {rounded.data(), DType::kF32, rows, width}, bias.data(), want.data());
      expect_close(got, want, 1e-5, described(d, n, rows, width), size_of(m));
    }
}

TEST_F(Blocks, WhatIsNotFiniteShowsAndStaysAlone) {
  const auto ops = cuda_ops(false);
  for (const DType d : {DType::kQ4K, DType::kMXFP4, DType::kFP8})
    for (const float bad : {NAN, INFINITY})
      for (const int64_t n : {1, 40}) {
        const BlockMatrix m(random_, d, 20, 512);
        auto x = random_.normal(n * 512);
        x[static_cast<size_t>((n - 1) * 512 + 70)] = bad;
        std::vector<float> y(static_cast<size_t>(n * 20));
        ops->matmul(x.data(), n, m.weight, nullptr, y.data(), Activations::kRounded);
        for (int64_t t = 0; t < n; ++t)
          for (int64_t r = 0; r < 20; ++r)
            ASSERT_EQ(std::isfinite(y[static_cast<size_t>(t * 20 + r)]), t < n - 1) << dtype_name(d) << " token " << t;
      }
}

/// Experts of blocks, with plain numbers of 16 bits in the matrices that are no blocks.
std::vector<std::byte> expert_of(Random& random, const ExpertLayout& layout) {
  std::vector<std::byte> blob = random_expert(random, layout);
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const auto plain = [&](DType d, int64_t at) {
      if (is_blocks(d)) return;
      const auto part = store_weight(random.normal(t.ffn * layout.hidden(), 0.3f), d, t.ffn, layout.hidden());
      std::memcpy(blob.data() + t.offset + at, part.bytes.data(),
                  static_cast<size_t>(t.ffn * row_bytes(d, layout.hidden())));
    };
    plain(layout.formats().gate, t.gate), plain(layout.formats().up, t.up), plain(layout.formats().down, t.down);
  }
  return blob;
}

struct ExpertShape {
  ExpertFormats formats;
  int64_t hidden, ffn;
};
/// Every format, and experts of several; one tile and several, whole spans of down and not, a narrow last tile.
std::vector<ExpertShape> expert_shapes() {
  std::vector<ExpertShape> shapes;
  for (const DType d : block_formats_of_gpus())
    for (const auto& [hidden, ffn] : {std::pair<int64_t, int64_t>{64, 96}, {1056, 288}})
      shapes.push_back({d, whole(d, hidden), whole(d, ffn)});
  shapes.push_back({DType::kMXFP4, 2880, 288});
  shapes.push_back({DType::kMXFP4, 7168, 192});
  shapes.push_back({{DType::kQ4K, DType::kQ4K, DType::kQ6K}, 512, 768});
  shapes.push_back({{DType::kQ4K, DType::kQ4K, DType::kQ8_0}, 2048, 416});
  shapes.push_back({{DType::kQ6K, DType::kQ6K, DType::kBF16}, 256, 96});
  shapes.push_back({{DType::kF16, DType::kF16, DType::kQ4K}, 96, 256});
  shapes.push_back({{DType::kQ2K, DType::kQ8_0, DType::kQ3K}, 512, 512});
  shapes.push_back({{DType::kMXFP4, DType::kBF16, DType::kBF16}, 2880, 288});
  return shapes;
}
std::string described(const ExpertShape& s, int64_t n) {
  return std::string(dtype_name(s.formats.gate)) + " and " + described(s.formats.down, n, s.hidden, s.ffn);
}
std::vector<RoutedRow> rows_of(int64_t n) {
  std::vector<RoutedRow> rows;
  for (int32_t t = 0; t < n; ++t) rows.push_back({t, 0});
  return rows;
}

TEST_F(Blocks, ExpertsOfFewTokensAreTheReferencesAndOfOneTheSameWithOthers) {
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops();
  constexpr int64_t kTokens = 6;
  for (const ExpertShape& s : expert_shapes()) {
    const ExpertLayout layout(s.hidden, s.ffn, s.formats);
    const auto blob = expert_of(random_, layout);
    const auto x = random_.normal(kTokens * s.hidden, 1.0f / std::sqrt(static_cast<float>(s.hidden)));
    const auto rows = rows_of(kTokens);
    std::vector<float> all(x.size(), NAN), want(all), one(all);
    ops->expert_ffn(layout, blob.data(), x.data(), rows, 1, all.data(), {});
    reference->expert_ffn(layout, blob.data(), x.data(), rows, 1, want.data(), {});
    expect_close(all, want, 1e-4, described(s, kTokens));
    for (const size_t n : {1u, 3u}) {
      ops->expert_ffn(layout, blob.data(), x.data(), std::span(rows.data() + 1, n), 1, one.data(), {});
      expect_same(one.data() + s.hidden, all.data() + s.hidden, static_cast<int64_t>(n) * s.hidden, described(s, n));
    }
  }
}

TEST_F(Blocks, ExpertsOfManyTokensAreNearTheReferences) {
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  for (const ExpertShape& s : expert_shapes())
    for (const int64_t n : {3, 40, 70}) {
      if (n == 40 && s.hidden > 1000) continue;  // the emulator is slow
      const ExpertLayout layout(s.hidden, s.ffn, s.formats);
      const auto blob = expert_of(random_, layout);
      const auto x = random_.normal(n * s.hidden, 1.0f / std::sqrt(static_cast<float>(s.hidden)));
      std::vector<float> got(x.size(), NAN), want(got.size());
      ops->expert_ffn(layout, blob.data(), x.data(), rows_of(n), 1, got.data(), {});
      reference->expert_ffn(layout, blob.data(), x.data(), rows_of(n), 1, want.data(), {});
      expect_close(got, want, 0.03, described(s, n));
    }
}

/// gpt-oss: biases of all matrices and the clamped unit, also where gate and up are computed apart.
TEST_F(Blocks, BiasesAndTheClampedUnitAreTheReferences) {
  const auto reference = make_reference_ops();
  constexpr GatedUnit kUnit{.kind = GatedUnit::Kind::kClampedSwiglu, .alpha = 1.702f, .limit = 0.7f};
  const ExpertShape shapes[] = {{DType::kMXFP4, 2880, 288},
                                {{DType::kQ4_0, DType::kQ8_0, DType::kMXFP4}, 96, 160},
                                {{DType::kQ4K, DType::kQ4K, DType::kQ6K}, 256, 256}};
  for (const ExpertShape& s : shapes)
    for (const bool deterministic : {true, false})
      for (const int64_t n : {1, 6, 70}) {
        if (deterministic && n > 6) continue;
        const auto ops = cuda_ops(deterministic);
        const ExpertLayout layout(s.hidden, s.ffn, s.formats, true);
        auto blob = expert_of(random_, layout);
        moestro::test::write_expert_biases(layout, random_.normal(s.ffn), random_.normal(s.ffn),
                                           random_.normal(s.hidden), blob);
        const auto x = random_.normal(n * s.hidden, 1.0f / std::sqrt(static_cast<float>(s.hidden)));
        std::vector<float> got(x.size(), NAN), want(got.size());
        ops->expert_ffn(layout, blob.data(), x.data(), rows_of(n), 1, got.data(), kUnit);
        reference->expert_ffn(layout, blob.data(), x.data(), rows_of(n), 1, want.data(), kUnit);
        expect_close(got, want, deterministic || n == 1 ? 1e-4 : 0.03, described(s, n));
      }
}

/// What no kernel takes is refused: f32 next to blocks, and plain numbers of several formats.
TEST_F(Blocks, ExpertsThatNoKernelTakesAreNamed) {
  using cuda::CudaOps;
  EXPECT_TRUE(CudaOps::computes_with(ExpertFormats(DType::kQ4K, DType::kQ4K, DType::kQ6K)));
  EXPECT_TRUE(CudaOps::computes_with(ExpertFormats(DType::kInt8)));
  EXPECT_FALSE(CudaOps::computes_with(ExpertFormats(DType::kBF16In12)));
  EXPECT_TRUE(CudaOps::computes_with(ExpertFormats(DType::kQ4K, DType::kBF16, DType::kQ6K)));
  EXPECT_FALSE(CudaOps::computes_with(ExpertFormats(DType::kQ4K, DType::kF32, DType::kQ4K)));
  EXPECT_FALSE(CudaOps::computes_with(ExpertFormats(DType::kQ4K, DType::kQ4K, DType::kF32)));
  EXPECT_FALSE(CudaOps::computes_with(ExpertFormats(DType::kBF16, DType::kBF16, DType::kF16)));
}

}  // namespace
}  // namespace moestro::kernels::test

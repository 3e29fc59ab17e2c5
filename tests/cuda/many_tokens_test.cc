// Products on tensor cores: the tile that an instruction multiplies, and what is made of it, against the reference on
// the same numbers rounded to bf16 one by one.

#include <numeric>

#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/hopper.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/tile_weights.h"
#endif
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

class ManyTokens : public CudaTest {};

constexpr DType kRoundedDtypes[] = {DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4};

std::vector<float> to_bf16(std::vector<float> v) {
  for (float& f : v) f = bf16_to_f32(f32_to_bf16(f));
  return v;
}

#ifndef MOESTRO_CUDA_PLUGIN
/// What PTX's manual says of mma.m16n8k16 with bf16, element by element: i is the number of an element among those of a
/// lane.
void tile_kernel(const uint16_t* a, const uint16_t* b, float* d) {
  const int lane = cuda::lane_id(), group = lane >> 2, thread_in_group = lane % 4;
  uint32_t left[4] = {}, right[2] = {};
  for (int i = 0; i < 8; ++i) {
    const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8,
              column = thread_in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    left[i / 2] |= static_cast<uint32_t>(a[row * 16 + column]) << (i % 2 * 16);
  }
  for (int i = 0; i < 4; ++i) {
    const int row = thread_in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    right[i / 2] |= static_cast<uint32_t>(b[row * 8 + group]) << (i % 2 * 16);
  }
  float sums[4] = {1.0f, 2.0f, 3.0f, 4.0f};
  cuda::multiply_tiles(sums, left, right);
  for (int i = 0; i < 4; ++i)
    d[(i < 2 ? group : group + 8) * 8 + thread_in_group * 2 + (i & 1)] = sums[i] - static_cast<float>(i + 1);
}

/// Every weight of 8 and 4 bits, with scales and offsets from tiny to large: what is computed in pairs of bf16 is the
/// weight rounded once.
TEST(Tiles, FragmentsOfQuantisedWeightsAreThoseRoundedOnce) {
  for (const float scale : {1.0f, 0.007843f, -0.3f, 1e-38f, 3e30f}) {
    const uint32_t s = f32_to_bf16(scale);
    for (uint32_t q = 0; q < 256; ++q) {
      uint32_t b[2];
      cuda::Int8Tiles::fragment({q | q << 8 | (q ^ 1u) << 16 | q << 24}, 0, s, b);
      const auto want = [&](uint32_t byte) {
        return f32_to_bf16(static_cast<float>(static_cast<int8_t>(byte)) * bf16_to_f32(static_cast<uint16_t>(s)));
      };
      ASSERT_EQ(b[0], want(q) * 0x10001u) << q << " * " << scale;
      ASSERT_EQ(b[1], want(q ^ 1u) | static_cast<uint32_t>(want(q)) << 16);
    }
    for (const float offset : {0.0f, -0.25f, 1e-3f}) {
      const uint32_t o = f32_to_bf16(offset);
      for (uint32_t q = 0; q < 16; ++q) {
        uint32_t low[2], high[2];
        const uint32_t word = q | (15 - q) << 4 | q << 8 | q << 16 | q << 24;
        cuda::Int4Tiles::fragment({word}, 0, s | o << 16, low);
        cuda::Int4Tiles::fragment({word}, 1, s | o << 16, high);
        const auto want = [&](uint32_t half) {
          return f32_to_bf16(std::fma(static_cast<float>(half), bf16_to_f32(static_cast<uint16_t>(s)),
                                      bf16_to_f32(static_cast<uint16_t>(o))));
        };
        ASSERT_EQ(low[0], want(q) * 0x10001u) << q << " * " << scale << " + " << offset;
        ASSERT_EQ(low[1], low[0]);
        ASSERT_EQ(high[0], want(15 - q) | static_cast<uint32_t>(want(0)) << 16);
      }
    }
  }
}

TEST(Tiles, AreMultipliedAsTheManualLaysThemOut) {
  Random random;
  std::vector<uint16_t> a(16 * 16), b(16 * 8);
  for (uint16_t& v : a) v = f32_to_bf16(static_cast<float>(random.below(17) - 8));
  for (uint16_t& v : b) v = f32_to_bf16(static_cast<float>(random.below(17) - 8));
  std::vector<float> d(16 * 8, NAN);
  cuda::launch(tile_kernel, cuda::dim3(1), cuda::dim3(32), 0, nullptr, a.data(), b.data(), d.data());
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      float want = 0;
      for (size_t k = 0; k < 16; ++k) want += bf16_to_f32(a[row * 16 + k]) * bf16_to_f32(b[k * 8 + column]);
      ASSERT_EQ(d[row * 8 + column], want) << row << ", " << column;
    }
}
#endif

/// The weight as f32 numbers, rounded to bf16.
std::vector<float> as_multiplied(Ops& reference, const Weight& w) {
  std::vector<float> unit(static_cast<size_t>(w.cols * w.cols)), turned(static_cast<size_t>(w.cols * w.rows)),
      out(turned.size());
  for (int64_t i = 0; i < w.cols; ++i) unit[static_cast<size_t>(i * w.cols + i)] = 1.0f;
  reference.matmul(unit.data(), w.cols, w, nullptr, turned.data());
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t c = 0; c < w.cols; ++c)
      out[static_cast<size_t>(r * w.cols + c)] = turned[static_cast<size_t>(c * w.rows + r)];
  return to_bf16(out);
}

struct Shape {
  int64_t n, rows, cols;
};

TEST_F(ManyTokens, MatmulIsThatOfTheRoundedNumbers) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  for (const DType dtype : kRoundedDtypes) {
    for (const auto& [n, rows, cols] : {Shape{17, 1, 1}, Shape{64, 64, 32}, Shape{65, 7, 65}, Shape{30, 130, 100},
                                        Shape{129, 65, 263}, Shape{20, 33, 448},
                                        // Each shape of tiles, whole and not, with columns in parts and in one.
                                        Shape{17, 64, 1024}, Shape{32, 130, 544}, Shape{40, 130, 1056},
                                        Shape{128, 96, 288}, Shape{130, 7000, 32}, Shape{130, 24600, 32},
                                        // On Hopper by its own kernel.
                                        Shape{130, 4288, 64},
                                        // Few tokens.
                                        Shape{5, 40, 64}, Shape{9, 33, 320}, Shape{16, 130, 1088}, Shape{32, 300, 192},
                                        Shape{6, 65, 16}}) {
      const auto x = random.normal(n * cols), bias = random.normal(rows);
      const auto w = store_weight(random.normal(rows * cols), dtype, rows, cols);
      const auto multiplied = as_multiplied(*reference, w.weight);
      std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y.size());
      ops->matmul(x.data(), n, w.weight, bias.data(), y.data(), Activations::kRounded);
      reference->matmul(to_bf16(x).data(), n, {multiplied.data(), DType::kF32, rows, cols}, bias.data(), want.data());
      expect_close(y, want, 1e-5,
                   std::string(dtype_name(dtype)) + " n " + std::to_string(n) + " rows " + std::to_string(rows) +
                       " cols " + std::to_string(cols));
    }
  }
}

#ifdef MOESTRO_CUDA_PLUGIN
TEST_F(ManyTokens, CublasGivesTheSameProducts) {
  char text[512];
  if (functions_under_test().use_dense_library(1, text, sizeof text) != 0) GTEST_SKIP() << text;
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  for (const auto& [n, rows, cols] :
       {Shape{65, 64, 64}, Shape{129, 65, 264}, Shape{512, 1024, 1024}, Shape{70, 8, 8}}) {
    const auto x = random.normal(n * cols), bias = random.normal(rows);
    const auto w = store_weight(random.normal(rows * cols), DType::kBF16, rows, cols);
    const auto multiplied = as_multiplied(*reference, w.weight);
    std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y.size());
    for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
      ops->matmul(x.data(), n, w.weight, added, y.data(), Activations::kRounded);
      reference->matmul(to_bf16(x).data(), n, {multiplied.data(), DType::kF32, rows, cols}, added, want.data());
      expect_close(y, want, 1e-5, "n " + std::to_string(n) + " rows " + std::to_string(rows) + ": " + text);
    }
  }
  (void)functions_under_test().use_dense_library(0, text, sizeof text);
}
#endif

TEST_F(ManyTokens, WhatMayNotBeRoundedIsNot) {
  Random random;
  const auto ops = cuda_ops(false), exact = cuda_ops();
  const int64_t n = 40, rows = 24, cols = 200;
  const auto x = random.normal(n * cols);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kInt8, DType::kInt4}) {
    const auto w = store_weight(random.normal(rows * cols), dtype, rows, cols);
    std::vector<float> y(static_cast<size_t>(n * rows)), want(y.size()), rounded(y.size());
    exact->matmul(x.data(), n, w.weight, nullptr, want.data(), Activations::kRounded);
    ops->matmul(x.data(), n, w.weight, nullptr, y.data(), Activations::kExact);
    expect_same(y.data(), want.data(), n * rows, "exact activations");
    ops->matmul(x.data(), n, w.weight, nullptr, rounded.data(), Activations::kRounded);
    EXPECT_EQ(rounded == want, dtype == DType::kF32)
        << dtype_name(dtype) << ": both kinds of kernels are reached";
  }
}

TEST_F(ManyTokens, ARowThatIsNotFiniteStaysSoAndAlone) {
  Random random;
  const auto ops = cuda_ops(false);
  const int64_t n = 70, rows = 40, cols = 96;
  for (const DType dtype : kRoundedDtypes) {
    for (const float bad : {NAN, INFINITY}) {
      auto x = random.normal(n * cols);
      x[static_cast<size_t>(66 * cols + 50)] = bad;
      const auto w = store_weight(random.normal(rows * cols), dtype, rows, cols);
      std::vector<float> y(static_cast<size_t>(n * rows));
      ops->matmul(x.data(), n, w.weight, nullptr, y.data(), Activations::kRounded);
      for (int64_t t = 0; t < n; ++t)
        for (int64_t r = 0; r < rows; ++r)
          ASSERT_EQ(std::isfinite(y[static_cast<size_t>(t * rows + r)]), t != 66)
              << dtype_name(dtype) << " token " << t;
    }
  }
}

struct AttentionCase {
  AttentionShape shape;
  DType dtype;
};
AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t window) {
  return {heads, kv_heads, head_dim, window, 1.0f / std::sqrt(static_cast<float>(head_dim)), 0};
}

/// What rounding to bf16 makes of outputs that are means of random values.
constexpr double kAttentionBound = 1.5e-2;

TEST_F(ManyTokens, AttentionOfPromptsIsThatOfTheReferenceButForRounding) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false), exact = cuda_ops();
  for (const auto& [shape, dtype] :
       {AttentionCase{shape_of(4, 2, 64, 0), DType::kBF16}, AttentionCase{shape_of(3, 3, 24, 0), DType::kF32},
        AttentionCase{shape_of(8, 1, 128, 50), DType::kF16}, AttentionCase{shape_of(4, 4, 80, 0), DType::kInt8},
        AttentionCase{shape_of(8, 2, 128, 0), DType::kBF16}, AttentionCase{shape_of(6, 2, 96, 70), DType::kBF16},
        AttentionCase{shape_of(4, 2, 192, 0), DType::kBF16}, AttentionCase{shape_of(2, 1, 256, 33), DType::kBF16},
        AttentionCase{shape_of(4, 1, 40, 3), DType::kBF16}, AttentionCase{shape_of(2, 1, 200, 0), DType::kInt8},
        AttentionCase{shape_of(2, 1, 256, 0), DType::kF32}, AttentionCase{shape_of(5, 5, 88, 0), DType::kF16}}) {
    // A long prompt's last chunk, a decode, a whole prompt.
    const std::vector<int64_t> first{90, 70, 0}, tokens{61, 1, 40};
    std::vector<std::byte> bytes(static_cast<size_t>(30 * kv_block_bytes(shape, dtype)), std::byte{0xff});
    const KvView view{bytes.data(), dtype, 30};
    std::vector<std::vector<uint32_t>> blocks(3);
    std::vector<AttentionSequence> past, step;
    int64_t past_rows = 0, rows = 0;
    uint32_t next = 29;
    for (size_t i = 0; i < 3; ++i) {
      for (int64_t b = 0; b < ceil_div(first[i] + tokens[i], kKvBlockTokens); ++b) blocks[i].push_back(next--);
      past.push_back({past_rows, first[i], 0, blocks[i]});
      step.push_back({rows, tokens[i], first[i], blocks[i]});
      past_rows += first[i];
      rows += tokens[i];
    }
    const int64_t kv_width = shape.kv_heads * shape.head_dim, width = shape.heads * shape.head_dim;
    for (const auto& [sequences, n] : {std::pair(&past, past_rows), std::pair(&step, rows)}) {
      const auto k = random.normal(n * kv_width), v = random.normal(n * kv_width);
      ops->kv_write(shape, *sequences, k.data(), v.data(), view);
    }
    const auto q = random.normal(rows * width);
    std::vector<float> got(q.size(), NAN), want(q.size()), in_f32(q.size());
    ops->attention(shape, step, q.data(), nullptr, view, got.data());
    exact->attention(shape, step, q.data(), nullptr, view, in_f32.data());
    reference->attention(shape, step, q.data(), nullptr, view, want.data());
    const std::string what = std::string(dtype_name(dtype)) + " head_dim " + std::to_string(shape.head_dim);
    expect_close(got, want, kAttentionBound, what);
    auto with_logits = shape;
    const auto logits = random.normal(shape.heads, 3.0f);
    with_logits.sink_logits = logits.data();
    std::vector<float> got_with(q.size(), NAN), want_with(q.size());
    ops->attention(with_logits, step, q.data(), nullptr, view, got_with.data());
    reference->attention(with_logits, step, q.data(), nullptr, view, want_with.data());
    expect_close(got_with, want_with, kAttentionBound, what + ", logits of sinks");
    expect_same(got.data() + 61 * width, in_f32.data() + 61 * width, width, "a decode is not rounded");
    EXPECT_NE(got, in_f32) << "prompts are";
  }
}

/// A layer's experts, and what tokens make of them.
struct LayerCase {
  std::vector<int64_t> tokens;  ///< of each expert
  int64_t hidden, ffn;
};
constexpr size_t kMissing = 1;  ///< an expert that is not in device memory

class LayerOfMany {
 public:
  /// dressed: with biases, and the clamped unit.
  LayerOfMany(const LayerCase& c, DType dtype, Random& random, bool dressed = false)
      : layout_(c.hidden, c.ffn, dtype, dressed) {
    if (dressed) unit_ = {.kind = GatedUnit::Kind::kClampedSwiglu, .alpha = 1.702f, .limit = 0.8f};
    const auto deviation = [](int64_t cols) { return 1.0f / std::sqrt(static_cast<float>(cols)); };
    for (size_t e = 0; e < c.tokens.size(); ++e) {
      ids_.insert(ids_.end(), static_cast<size_t>(c.tokens[e]), static_cast<int32_t>(e));
      ExpertMatrices read;
      blobs_.push_back(write_expert_blob(
          layout_,
          {c.hidden, c.ffn, random.normal(c.ffn * c.hidden, deviation(c.hidden)),
           random.normal(c.ffn * c.hidden, deviation(c.hidden)), random.normal(c.hidden * c.ffn, deviation(c.ffn))},
          &read));
      read.gate = to_bf16(read.gate), read.up = to_bf16(read.up), read.down = to_bf16(read.down);
      rounded_.push_back(std::move(read));
      if (dressed) {
        biases_.push_back({random.normal(c.ffn), random.normal(c.ffn), random.normal(c.hidden)});
        ::moestro::test::write_expert_biases(layout_, biases_[e][0], biases_[e][1], biases_[e][2], blobs_.back());
      }
    }
    blobs_[kMissing].clear();
    std::shuffle(ids_.begin(), ids_.end(), random.engine());
    x_ = random.normal(n() * c.hidden);
  }
  int64_t n() const { return static_cast<int64_t>(ids_.size()); }
  std::vector<float> computed(HostFacingOps& ops) const {
    std::vector<float> out(x_.size(), 7.0f);
    ops.experts({layout_, nullptr, ids_.data(), nullptr, n(), static_cast<int64_t>(blobs_.size()), 1, x_.data(),
                 out.data(), false, unit_},
                blobs_);
    return out;
  }
  std::vector<float> wanted(Ops& reference) const {
    const int64_t hidden = layout_.hidden(), ffn = layout_.ffn();
    std::vector<float> out(x_.size(), 7.0f);
    const std::vector<float> in = to_bf16(x_);
    for (size_t e = 0; e < blobs_.size(); ++e) {
      if (e == kMissing) continue;
      std::vector<float> mine;
      for (int64_t t = 0; t < n(); ++t)
        if (is_of(t, e)) mine.insert(mine.end(), in.data() + t * hidden, in.data() + (t + 1) * hidden);
      const auto product = [&](const std::vector<float>& w, int64_t rows, int64_t cols, const std::vector<float>& from,
                               size_t bias) {
        const auto tokens = static_cast<int64_t>(from.size()) / cols;
        std::vector<float> to(static_cast<size_t>(tokens * rows));
        reference.matmul(from.data(), tokens, {w.data(), DType::kF32, rows, cols},
                         layout_.has_bias() ? biases_[e][bias].data() : nullptr, to.data());
        return to;
      };
      std::vector<float> gate = product(rounded_[e].gate, ffn, hidden, mine, 0);
      join(reference, gate, product(rounded_[e].up, ffn, hidden, mine, 1));
      const std::vector<float> down = product(rounded_[e].down, hidden, ffn, to_bf16(gate), 2);
      const float* from = down.data();
      for (int64_t t = 0; t < n(); ++t)
        if (is_of(t, e)) std::copy_n(std::exchange(from, from + hidden), hidden, out.data() + t * hidden);
    }
    return out;
  }

 private:
  bool is_of(int64_t token, size_t expert) const {
    return static_cast<size_t>(ids_[static_cast<size_t>(token)]) == expert;
  }
  void join(Ops& reference, std::vector<float>& gate, const std::vector<float>& up) const {
    if (unit_.kind == GatedUnit::Kind::kSilu)
      return reference.silu_mul(gate.data(), up.data(), static_cast<int64_t>(gate.size()));
    for (size_t i = 0; i < gate.size(); ++i) {
      const float g = std::min(gate[i], unit_.limit), u = std::clamp(up[i], -unit_.limit, unit_.limit);
      gate[i] = g / (1.0f + std::exp(-unit_.alpha * g)) * (u + 1.0f);
    }
  }

  ExpertLayout layout_;
  GatedUnit unit_;
  std::vector<std::array<std::vector<float>, 3>> biases_;  ///< of gate, up and down
  std::vector<std::vector<std::byte>> blobs_;
  std::vector<ExpertMatrices> rounded_;
  std::vector<int32_t> ids_;
  std::vector<float> x_;
};

#ifndef MOESTRO_CUDA_PLUGIN
/// Of the launches within.
template <typename Work>
uint64_t threads_of(Work work) {
  const uint64_t before = cuda::emulated::counters().threads;
  work();
  return cuda::emulated::counters().threads - before;
}
#endif

TEST_F(ManyTokens, ExpertsOfALayerAreThoseOfTheRoundedNumbers) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  for (const DType dtype : kRoundedDtypes) {
    // Rows that are whole chunks of 16 bytes and others; blobs of one tile and of several, the last one narrow; each
    // shape of tiles of tokens, one token more and less than it has; experts without tokens.
    for (const LayerCase& c : {LayerCase{{11, 3, 3}, 33, 70}, LayerCase{{60, 15, 15}, 64, 64},
                               LayerCase{{93, 23, 24}, 200, 131}, LayerCase{{10, 4, 6}, 1500, 200},
                               LayerCase{{17, 0, 33, 0, 32}, 96, 160},
                               LayerCase{{15, 1, 16, 0, 3, 0, 5}, 144, 192}, LayerCase{{65, 7, 64, 0, 63}, 272, 192},
                               LayerCase{{128, 9, 127, 129, 0, 130}, 272, 192}, LayerCase{{70, 80, 90}, 1504, 96},
                               // On Hopper by its own kernels.
                               LayerCase{{128, 9, 127, 129, 0, 130}, 256, 192}, LayerCase{{70, 80, 90}, 1536, 192},
                               // Few tokens, also in more than one pass.
                               LayerCase{{2, 1, 3}, 320, 192}, LayerCase{{14, 3, 8}, 2112, 208},
                               LayerCase{{35, 2, 0, 1, 1}, 64, 448}, LayerCase{{6, 3, 3}, 7168, 192}}) {
      for (const bool dressed : {false, true}) {
        const LayerOfMany layer(c, dtype, random, dressed);
        // An activation next to the middle of two roundings may be rounded either way.
        expect_close(layer.computed(*ops), layer.wanted(*reference), 4e-3,
                     std::string(dtype_name(dtype)) + " n " + std::to_string(layer.n()) + " hidden " +
                         std::to_string(c.hidden) + " ffn " + std::to_string(c.ffn) + (dressed ? ", biases" : ""));
      }
    }
  }
}

/// More tiles of one expert than a run has.
TEST_F(ManyTokens, AnExpertMayHaveManyTiles) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  const LayerOfMany layer({{2200, 0, 5}, 16, 16}, DType::kBF16, random);
  expect_close(layer.computed(*ops), layer.wanted(*reference), 4e-3, "2200 tokens");
}

#ifndef MOESTRO_CUDA_PLUGIN
/// Shapes that have a kernel of their own there, and one that has not.
TEST_F(ManyTokens, HopperComputesTheSame) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  for (const auto& [c, dressed] :
       {std::pair(LayerCase{{128, 9, 127, 129, 0, 130}, 256, 192}, false), {{{70, 80, 90}, 1536, 192}, false},
        {{{70, 80, 90}, 1504, 96}, false}, {{{128, 9, 127, 129, 0, 130}, 256, 192}, true}}) {
    const LayerOfMany layer(c, DType::kBF16, random, dressed);
    const auto elsewhere = layer.computed(*ops);
    const uint64_t threads = threads_of([&] { EXPECT_EQ(layer.computed(*ops), elsewhere); });
    cuda::emulated::hopper_multiprocessors() = 3;
    EXPECT_EQ(threads_of([&] { expect_close(layer.computed(*ops), layer.wanted(*reference), 4e-3, "Hopper"); }) ==
                  threads,
              c.hidden % 64 != 0)
        << "hidden " << c.hidden;
    cuda::emulated::hopper_multiprocessors() = 0;
  }
  const int64_t n = 130, rows = 320, cols = 192;
  const auto x = random.normal(n * cols), bias = random.normal(rows);
  const auto w = store_weight(random.normal(rows * cols), DType::kBF16, rows, cols);
  const auto multiplied = as_multiplied(*reference, w.weight);
  std::vector<float> y(static_cast<size_t>(n * rows), NAN), want(y.size());
  cuda::emulated::hopper_multiprocessors() = 4;
  ops->matmul(x.data(), n, w.weight, bias.data(), y.data(), Activations::kRounded);
  cuda::emulated::hopper_multiprocessors() = 0;
  reference->matmul(to_bf16(x).data(), n, {multiplied.data(), DType::kF32, rows, cols}, bias.data(), want.data());
  expect_close(y, want, 1e-5, "matmul");
}

/// Each shape of tiles: a barrier that is missing, or a place that is copied to too early, changes numbers.
TEST_F(ManyTokens, OrderOfThreadsWarpsAndBlocksChangesNoBit) {
  Random random;
  const auto ops = cuda_ops(false);
  for (const DType dtype : {DType::kBF16, DType::kInt4}) {
    for (const LayerCase& c :
         {LayerCase{{17, 1, 3}, 224, 192}, LayerCase{{60, 15, 30}, 224, 192}, LayerCase{{129, 40, 60}, 224, 192}}) {
      const LayerOfMany layer(c, dtype, random);
      const auto want = layer.computed(*ops);
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        cuda::emulated::set_order(seed);
        EXPECT_EQ(layer.computed(*ops), want) << "seed " << seed;
      }
      cuda::emulated::set_order(0);
    }
  }
}
#endif

}  // namespace
}  // namespace moestro::kernels::test

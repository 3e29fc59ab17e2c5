// Products on tensor cores: the tile that an instruction multiplies, and what is made of it, against the reference on
// the same numbers rounded to bf16 one by one.

#include <numeric>

#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/mma.h"
#include "kernels/cuda/reduce.h"
#endif
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

class ManyTokens : public CudaTest {};

constexpr DType kRoundedDtypes[] = {DType::kBF16, DType::kInt8, DType::kInt4};

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
                                        Shape{129, 65, 263}, Shape{20, 33, 448}}) {
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

TEST_F(ManyTokens, WhatMayNotBeRoundedIsNot) {
  Random random;
  const auto ops = cuda_ops(false), exact = cuda_ops();
  const int64_t n = 40, rows = 24, cols = 200;
  const auto x = random.normal(n * cols);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kInt8}) {
    const auto w = store_weight(random.normal(rows * cols), dtype, rows, cols);
    std::vector<float> y(static_cast<size_t>(n * rows)), want(y.size()), rounded(y.size());
    exact->matmul(x.data(), n, w.weight, nullptr, want.data(), Activations::kRounded);
    ops->matmul(x.data(), n, w.weight, nullptr, y.data(), Activations::kExact);
    expect_same(y.data(), want.data(), n * rows, "exact activations");
    ops->matmul(x.data(), n, w.weight, nullptr, rounded.data(), Activations::kRounded);
    EXPECT_EQ(rounded == want, dtype == DType::kF32 || dtype == DType::kF16)
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

struct LayerCase {
  int64_t n, hidden, ffn;
};

/// All experts of a layer of three, the second of which is missing.
TEST_F(ManyTokens, ExpertsOfALayerAreThoseOfTheRoundedNumbers) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops(false);
  for (const DType dtype : kRoundedDtypes) {
    // Tiles of one slice and of several, the last one narrow.
    for (const auto& [n, hidden, ffn] :
         {LayerCase{17, 33, 70}, LayerCase{90, 64, 64}, LayerCase{140, 200, 131}, LayerCase{20, 1500, 200}}) {
      const ExpertLayout layout(hidden, ffn, dtype);
      std::vector<std::vector<std::byte>> blobs(3);
      std::vector<ExpertMatrices> read(3);
      for (size_t e = 0; e < 3; ++e) {
        const float deviation = 1.0f / std::sqrt(static_cast<float>(hidden));
        blobs[e] = write_expert_blob(
            layout,
            {hidden, ffn, random.normal(ffn * hidden, deviation), random.normal(ffn * hidden, deviation),
             random.normal(hidden * ffn, 1.0f / std::sqrt(static_cast<float>(ffn)))},
            &read[e]);
      }
      blobs[1].clear();
      std::vector<int32_t> ids;  // most tokens go to the first expert
      for (int64_t t = 0; t < n; ++t) ids.push_back(static_cast<int32_t>(std::max<int64_t>(0, random.below(6) - 3)));
      const auto x = random.normal(n * hidden), in = to_bf16(x);
      std::vector<float> got(x.size(), 7.0f), want(got);
      ops->experts({layout, nullptr, ids.data(), nullptr, n, 3, 1, x.data(), got.data()}, blobs);
      for (int64_t t = 0; t < n; ++t) {
        const auto e = static_cast<size_t>(ids[static_cast<size_t>(t)]);
        if (e == 1) continue;
        std::vector<float> gate(static_cast<size_t>(ffn)), up(gate.size());
        const auto product = [&](const std::vector<float>& w, int64_t rows, int64_t cols, const float* from,
                                 float* to) {
          reference->matmul(from, 1, {to_bf16(w).data(), DType::kF32, rows, cols}, nullptr, to);
        };
        product(read[e].gate, ffn, hidden, in.data() + t * hidden, gate.data());
        product(read[e].up, ffn, hidden, in.data() + t * hidden, up.data());
        reference->silu_mul(gate.data(), up.data(), ffn);
        product(read[e].down, hidden, ffn, to_bf16(gate).data(), want.data() + t * hidden);
      }
      // An activation next to the middle of two roundings may be rounded either way.
      expect_close(got, want, 4e-3,
                   std::string(dtype_name(dtype)) + " n " + std::to_string(n) + " hidden " + std::to_string(hidden) +
                       " ffn " + std::to_string(ffn));
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

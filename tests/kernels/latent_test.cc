// Latent attention against the reference, in both forms, and that a query's result does not depend on its company.

#include <utility>

#include "tests/kernels/paged_cache.h"

namespace moestro::kernels::test {
namespace {

using Form = LatentShape::Form;

struct Case {
  int64_t heads, kv_rank, nope_dim, rope_dim, value_dim;
  bool interleaved;
  DType weights;
};
constexpr Case kCases[] = {{2, 32, 16, 8, 16, true, DType::kF32},   {3, 40, 17, 6, 21, false, DType::kBF16},
                           {5, 20, 9, 2, 33, true, DType::kF16},    {1, 100, 1, 10, 1, false, DType::kBF16},
                           {130, 16, 4, 4, 5, true, DType::kF32},   {16, 64, 24, 16, 24, true, DType::kBF16}};

#if MOESTRO_TEST_CUDA
constexpr int64_t kLength = 150;  // beyond a part's end; emulated threads are slow
#else
constexpr int64_t kLength = 530;
#endif

LatentShape shape_of(const Case& c, Form form) {
  const auto scale = 1.0f / std::sqrt(static_cast<float>(c.nope_dim + c.rope_dim));
  return {c.heads, c.kv_rank, c.nope_dim, c.rope_dim, c.value_dim, scale, c.interleaved, form};
}
std::string name_of(const Case& c) {
  return std::to_string(c.heads) + " heads, rank " + std::to_string(c.kv_rank) + ", " + std::to_string(c.nope_dim) +
         " + " + std::to_string(c.rope_dim) + ", values " + std::to_string(c.value_dim);
}

/// What goes into a layer, position by position, and its weights.
struct Stream {
  std::vector<float> q, kv, cos, sin;
};
Stream stream(const LatentShape& s, int64_t length, Random& random) {
  Stream in{random.normal(length * s.heads * s.query_dim()), random.normal(length * (s.kv_rank + s.rope_dim)), {}, {}};
  for (const float angle : random.normal(length * s.rope_dim / 2, 3.0f))
    in.cos.push_back(std::cos(angle)), in.sin.push_back(std::sin(angle));
  return in;
}

class LatentTest : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(std::get<0>(GetParam()));
    ops_ = cpu_ops(std::get<0>(GetParam()));
  }
  void choose(const Case& c, Form form) {
    shape_ = shape_of(c, form);
    norm_ = random_.normal(c.kv_rank, 0.3f);
    for (float& w : norm_) w += 1.0f;
    const int64_t rows = c.heads * (c.nope_dim + c.value_dim);
    kv_b_ = store_weight(random_.normal(rows * c.kv_rank, 0.3f), c.weights, rows, c.kv_rank);
  }
  PagedCache cache(const std::vector<int64_t>& lengths) {
    return {latent_block_bytes(shape_, dtype_), dtype_, lengths, random_};
  }
  void write(Ops& ops, std::span<const AttentionSequence> sequences, const Stream& in, int64_t row,
             const PagedCache& cache) const {
    ops.latent_write(shape_, sequences, in.kv.data() + row * (shape_.kv_rank + shape_.rope_dim), norm_.data(), 1e-6f,
                     in.cos.data() + row * shape_.rope_dim / 2, in.sin.data() + row * shape_.rope_dim / 2,
                     cache.view());
  }
  void attend(Ops& ops, std::span<const AttentionSequence> sequences, const Stream& in, int64_t row,
              const PagedCache& cache, float* out) const {
    ops.latent_attention(shape_, sequences, in.q.data() + row * shape_.heads * shape_.query_dim(),
                         in.cos.data() + row * shape_.rope_dim / 2, in.sin.data() + row * shape_.rope_dim / 2,
                         kv_b_.weight, cache.view(), out + row * shape_.heads * shape_.value_dim);
  }
  /// Steps of `chunk` tokens through the whole stream.
  std::vector<float> in_chunks(Ops& ops, const Stream& in, int64_t length, int64_t chunk) {
    const PagedCache cache = this->cache({length});
    std::vector<float> out(static_cast<size_t>(length * shape_.heads * shape_.value_dim), NAN);
    for (int64_t at = 0; at < length; at += chunk) {
      const auto sequence = cache.sequence(0, 0, std::min(chunk, length - at), at);
      write(ops, {&sequence, 1}, in, at, cache);
      attend(ops, {&sequence, 1}, in, at, cache, out.data());
    }
    return out;
  }
  DType dtype_ = std::get<1>(GetParam());
  LatentShape shape_;
  std::vector<float> norm_;
  StoredWeight kv_b_;
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(IsaAndKv, LatentTest,
                         ::testing::Combine(::testing::ValuesIn(all_isas()),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                                              DType::kInt8)));

/// What a block holds, as numbers.
std::vector<float> numbers_of(const LatentShape& s, const PagedCache& cache) {
  const DType dtype = cache.view().dtype;
  std::vector<float> out;
  for (int64_t b = 0; b < cache.view().blocks; ++b) {
    const auto* block = cache.bytes().data() + b * latent_block_bytes(s, dtype);
    const auto* scales = reinterpret_cast<const float*>(block + latent_scales_offset(s, dtype));
    for (int64_t i = 0; i < kKvBlockTokens * (s.kv_rank + s.rope_dim); ++i) {
      const int64_t of_keys = i - kKvBlockTokens * s.kv_rank;
      const float scale =
          dtype == DType::kInt8 ? scales[of_keys < 0 ? i / s.kv_rank : kKvBlockTokens + of_keys / s.rope_dim] : 1.0f;
      float value = 0.0f;
      switch (dtype) {
        case DType::kF32: value = reinterpret_cast<const float*>(block)[i]; break;
        case DType::kBF16: value = bf16_to_f32(reinterpret_cast<const uint16_t*>(block)[i]); break;
        case DType::kF16: value = f16_to_f32(reinterpret_cast<const uint16_t*>(block)[i]); break;
        default: value = scale * static_cast<float>(reinterpret_cast<const int8_t*>(block)[i]);
      }
      out.push_back(std::isnan(value) ? -1e6f : value);  // what was not written stays so
    }
  }
  return out;
}

TEST_P(LatentTest, AgreesWithTheReferenceOnMixedBatches) {
  for (const Case& c : kCases) {
    for (const Form form : {Form::kAbsorbed, Form::kExpanded}) {
      choose(c, form);
      // A decode beyond a span, an empty share, a first token, a chunk that crosses into the next span, a decode, the
      // middle chunk of a prompt, a prompt.
      std::vector<int64_t> first{300, 0, 0, 250, 40, 13, 0}, tokens{1, 0, 1, 9, 1, 20, 37};
      if (c.heads > 100) first.resize(4), tokens.resize(4);  // the reference takes long
      std::vector<int64_t> lengths;
      for (size_t i = 0; i < first.size(); ++i) lengths.push_back(std::max<int64_t>(1, first[i] + tokens[i]));
      const PagedCache cache = this->cache(lengths);
      std::vector<AttentionSequence> past, step;
      int64_t past_tokens = 0, step_tokens = 0;
      for (size_t i = 0; i < first.size(); ++i) {
        past.push_back(cache.sequence(i, past_tokens, first[i], 0));
        step.push_back(cache.sequence(i, step_tokens, tokens[i], first[i]));
        past_tokens += first[i];
        step_tokens += tokens[i];
      }
      const Stream before = stream(shape_, past_tokens, random_), now = stream(shape_, step_tokens, random_);
      write(*reference_, past, before, 0, cache);
      write(*reference_, step, now, 0, cache);
      const std::vector<float> want_numbers = numbers_of(shape_, cache);
      write(*ops_, past, before, 0, cache);
      write(*ops_, step, now, 0, cache);
      expect_close(numbers_of(shape_, cache), want_numbers, 1e-7, "latent_write " + name_of(c));
      std::vector<float> out(static_cast<size_t>(step_tokens * c.heads * c.value_dim), NAN), want(out.size());
      attend(*ops_, step, now, 0, cache, out.data());
      attend(*reference_, step, now, 0, cache, want.data());
      expect_close(out, want, 5e-6, name_of(c) + (form == Form::kExpanded ? ", expanded" : ", absorbed"));
    }
  }
}

TEST_P(LatentTest, ChunksThreadsAndCompanyChangeNoBit) {
  std::vector<int> numbers_of_threads{1, 3};
#if MOESTRO_TEST_CUDA
  numbers_of_threads.clear();  // they mean nothing to it
#endif
  for (const Case& c : kCases) {
    choose(c, Form::kFaster);
    const int64_t length = c.heads > 100 ? kLength / 2 + 5 : kLength, row = c.heads * c.value_dim;
    const Stream in = stream(shape_, length, random_);
    const auto whole = in_chunks(*ops_, in, length, length);
    for (const int64_t chunk : {7, 16, 150}) {
      const auto parts = in_chunks(*ops_, in, length, chunk);
      expect_same(parts.data(), whole.data(), static_cast<int64_t>(whole.size()),
                  "chunks of " + std::to_string(chunk) + ", " + name_of(c));
    }
    for (const int threads : numbers_of_threads) {
      const auto ops = cpu_ops(std::get<0>(GetParam()), threads);
      const auto other = in_chunks(*ops, in, length, 99);
      expect_same(other.data(), whole.data(), static_cast<int64_t>(whole.size()), "other threads, " + name_of(c));
    }
    // The last token once more, as a decode among others.
    const PagedCache cache = this->cache({length, 20, 300});
    const auto own = cache.sequence(0, 0, length, 0);
    write(*ops_, {&own, 1}, in, 0, cache);
    const std::vector<AttentionSequence> others{cache.sequence(1, 0, 20, 0), cache.sequence(2, 0, 300, 0)};
    const Stream more = stream(shape_, 320, random_);
    for (const AttentionSequence& s : others) write(*ops_, {&s, 1}, more, 0, cache);
    Stream step = stream(shape_, 3, random_);
    std::copy_n(in.q.end() - c.heads * shape_.query_dim(), c.heads * shape_.query_dim(),
                step.q.begin() + c.heads * shape_.query_dim());
    std::copy_n(in.cos.end() - c.rope_dim / 2, c.rope_dim / 2, step.cos.begin() + c.rope_dim / 2);
    std::copy_n(in.sin.end() - c.rope_dim / 2, c.rope_dim / 2, step.sin.begin() + c.rope_dim / 2);
    const std::vector<AttentionSequence> batch{cache.sequence(2, 0, 1, 299), cache.sequence(0, 1, 1, length - 1),
                                               cache.sequence(1, 2, 1, 19)};
    std::vector<float> out(static_cast<size_t>(3 * row), NAN);
    attend(*ops_, batch, step, 0, cache, out.data());
    expect_same(out.data() + row, whole.data() + (length - 1) * row, row, "in a batch, " + name_of(c));
  }
}

#if !MOESTRO_TEST_CUDA  // tests/cuda/latent_tiles_test.cc
TEST_P(LatentTest, WithoutDeterminismTheErrorIsBounded) {
  const auto fast = cpu_ops(std::get<0>(GetParam()), 2, false);
  for (const Case& c : kCases) {
    choose(c, Form::kFaster);
    const int64_t length = 300;
    const Stream in = stream(shape_, length, random_);
    const auto want = in_chunks(*ops_, in, length, length);
    for (const int64_t chunk : {300, 100, 3})
      expect_close(in_chunks(*fast, in, length, chunk), want, 2e-2,
                   name_of(c) + ", chunks of " + std::to_string(chunk));
  }
}
#endif

/// What rounding in the cache adds, relative to the largest output.
double storing_bound(DType dtype) {
  return dtype == DType::kF32 ? 5e-6 : dtype == DType::kF16 ? 4e-3 : dtype == DType::kBF16 ? 3e-2 : 6e-2;
}

TEST_P(LatentTest, WhatStoringAddsIsBounded) {
  for (const Case& c : {kCases[0], kCases[1]}) {
    choose(c, Form::kFaster);
    const int64_t length = 83;
    const Stream in = stream(shape_, length, random_);
    const auto stored = in_chunks(*ops_, in, length, length);
    const DType dtype = std::exchange(dtype_, DType::kF32);
    const auto exact = in_chunks(*reference_, in, length, length);
    dtype_ = dtype;
    expect_close(stored, exact, storing_bound(dtype), std::string(dtype_name(dtype)) + " " + name_of(c));
    if (dtype == DType::kF32) continue;
    double most = 0;
    for (size_t i = 0; i < exact.size(); ++i)
      most = std::max(most, std::fabs(static_cast<double>(stored[i]) - exact[i]));
    EXPECT_GT(most, 1e-4) << "nothing was rounded: the cache is not in " << dtype_name(dtype);
  }
}

TEST_P(LatentTest, ANaNIsSeenByThoseWhoSeeItsPosition) {
  for (const Form form : {Form::kAbsorbed, Form::kExpanded}) {
    choose(kCases[0], form);
    const int64_t length = 290, row = shape_.heads * shape_.value_dim;
    for (const int64_t at : {int64_t{5}, int64_t{270}}) {
      Stream in = stream(shape_, length, random_);
      in.kv[static_cast<size_t>(at * (shape_.kv_rank + shape_.rope_dim))] = NAN;
      const auto out = in_chunks(*ops_, in, length, length);
      for (int64_t p = 0; p < length; ++p)
        EXPECT_EQ(std::isnan(out[static_cast<size_t>(p * row)]), p >= at) << "position " << p;
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

// Paged attention against the reference, and that a query's result does not depend on its company.

#include <limits>
#include <utility>

#include "tests/kernels/paged_cache.h"

namespace moestro::kernels::test {
namespace {

struct Cache : PagedCache {
  Cache(const AttentionShape& shape, DType dtype, const std::vector<int64_t>& lengths, Random& random)
      : PagedCache(kv_block_bytes(shape, dtype), dtype, lengths, random) {}
};

struct Case {
  int64_t heads, kv_heads, head_dim, window, sinks = 0;
};
constexpr Case kCases[] = {{4, 4, 16, 0},    {4, 2, 64, 0},      {6, 2, 48, 5},     {3, 1, 20, 0},
                           {8, 2, 128, 33},  {5, 5, 17, 1},      {16, 4, 64, 20},   {72, 1, 32, 0},
                           {2, 1, 256, 100}, {8, 2, 80, 0},      {6, 3, 80, 24, 4}, {4, 1, 20, 16, 1},
                           {3, 3, 17, 1, 1}, {70, 1, 32, 7, 37}, {2, 2, 64, 9, 16}};

AttentionShape shape_of(const Case& c) {
  return {c.heads, c.kv_heads, c.head_dim, c.window, 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
          c.sinks};
}
std::string name_of(const Case& c) {
  return "head_dim " + std::to_string(c.head_dim) + " window " + std::to_string(c.window) + " sinks " +
         std::to_string(c.sinks);
}

/// q, k, v of whole sequences, position by position.
struct Stream {
  std::vector<float> q, sink_q, k, v;
};
Stream stream(const AttentionShape& s, int64_t length, Random& random) {
  return {random.normal(length * s.heads * s.head_dim), random.normal(length * s.heads * s.head_dim),
          random.normal(length * s.kv_heads * s.head_dim), random.normal(length * s.kv_heads * s.head_dim)};
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(std::get<0>(GetParam()));
    ops_ = cpu_ops(std::get<0>(GetParam()));
  }
  /// Steps of `chunk` tokens through the first `length` tokens of the stream.
  std::vector<float> in_chunks(Ops& ops, const AttentionShape& s, const Stream& in, int64_t length,
                               int64_t chunk) {
    Cache cache(s, dtype_, {length}, random_);
    std::vector<float> out(static_cast<size_t>(length * s.heads * s.head_dim), NAN);
    for (int64_t at = 0; at < length; at += chunk) {
      const auto sequence = cache.sequence(0, 0, std::min(chunk, length - at), at);
      ops.kv_write(s, {&sequence, 1}, in.k.data() + at * s.kv_heads * s.head_dim,
                   in.v.data() + at * s.kv_heads * s.head_dim, cache.view());
      ops.attention(s, {&sequence, 1}, in.q.data() + at * s.heads * s.head_dim,
                    in.sink_q.data() + at * s.heads * s.head_dim, cache.view(),
                    out.data() + at * s.heads * s.head_dim);
    }
    return out;
  }
  DType dtype_ = std::get<1>(GetParam());
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(IsaAndKv, AttentionTest,
                         ::testing::Combine(::testing::ValuesIn(all_isas()),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                                              DType::kInt8)));

TEST_P(AttentionTest, AgreesWithTheReferenceOnMixedBatches) {
  for (const Case& c : kCases) {
    const AttentionShape s = shape_of(c);
    // A prompt, a decode, the middle chunk of a prompt, an empty share, a first token.
    const std::vector<int64_t> first{0, 40, 13, 0, 0}, tokens{37, 1, 50, 0, 1};
    std::vector<int64_t> lengths;
    for (size_t i = 0; i < first.size(); ++i) lengths.push_back(std::max<int64_t>(1, first[i] + tokens[i]));
    Cache cache(s, dtype_, lengths, random_);
    std::vector<AttentionSequence> past, step;
    int64_t past_tokens = 0, step_tokens = 0;
    for (size_t i = 0; i < first.size(); ++i) {
      past.push_back(cache.sequence(i, past_tokens, first[i], 0));
      step.push_back(cache.sequence(i, step_tokens, tokens[i], first[i]));
      past_tokens += first[i];
      step_tokens += tokens[i];
    }
    const Stream before = stream(s, past_tokens, random_), now = stream(s, step_tokens, random_);
    ops_->kv_write(s, past, before.k.data(), before.v.data(), cache.view());
    ops_->kv_write(s, step, now.k.data(), now.v.data(), cache.view());
    const std::vector<std::byte> written = cache.bytes();
    reference_->kv_write(s, past, before.k.data(), before.v.data(), cache.view());
    reference_->kv_write(s, step, now.k.data(), now.v.data(), cache.view());
    ASSERT_EQ(written, cache.bytes()) << "kv_write";
    std::vector<float> out(now.q.size(), NAN), want(now.q.size());
    ops_->attention(s, step, now.q.data(), now.sink_q.data(), cache.view(), out.data());
    reference_->attention(s, step, now.q.data(), now.sink_q.data(), cache.view(), want.data());
    expect_close(out, want, 5e-6, "attention " + name_of(c));
  }
}

/// What small chunks go through: more than two blocks of the cache.
constexpr int64_t kShort = 2 * kKvBlockTokens + 2;

TEST_P(AttentionTest, ChunksChangeNoBit) {
  for (const Case& c : kCases) {
    const AttentionShape s = shape_of(c);
    const int64_t length = 83;
    const Stream in = stream(s, length, random_);
    const auto whole = in_chunks(*ops_, s, in, length, length);
    for (const int64_t chunk : {1, 7, 16, 30}) {
      const auto parts = in_chunks(*ops_, s, in, chunk < kKvBlockTokens ? kShort : length, chunk);
      expect_same(parts.data(), whole.data(), static_cast<int64_t>(parts.size()),
                  "chunks of " + std::to_string(chunk) + ", " + name_of(c));
    }
  }
}

#if !MOESTRO_TEST_CUDA  // has neither
TEST_P(AttentionTest, ThreadsAndModesChangeNoBit) {
  const auto one_thread = cpu_ops(std::get<0>(GetParam()), 1),
             fast = cpu_ops(std::get<0>(GetParam()), 2, false);
  for (const Case& c : kCases) {
    const AttentionShape s = shape_of(c);
    const int64_t length = 83;
    const Stream in = stream(s, length, random_);
    const auto whole = in_chunks(*ops_, s, in, length, length);
    const auto alone = in_chunks(*one_thread, s, in, kShort, 9);
    expect_same(alone.data(), whole.data(), static_cast<int64_t>(alone.size()), "one thread");
    const auto hurried = in_chunks(*fast, s, in, length, length);
    expect_close(hurried, whole, 1e-5, "not deterministic");
  }
}
#endif

TEST_P(AttentionTest, LogitsOfSinksAgreeWithTheReference) {
  for (const Case& c : kCases) {
    AttentionShape s = shape_of(c);
    const int64_t length = 83;
    const Stream in = stream(s, length, random_);
    const auto plain = in_chunks(*ops_, s, in, length, length);
    std::vector<float> logits = random_.normal(s.heads, 3.0f);
    logits.front() = 120.0f;  // takes all the weight
    logits.back() = -120.0f;  // takes none
    s.sink_logits = logits.data();
    const auto out = in_chunks(*ops_, s, in, length, length), want = in_chunks(*reference_, s, in, length, 16);
    expect_close(out, want, 5e-6, "logits of sinks, " + name_of(c));
    const auto parts = in_chunks(*ops_, s, in, kShort, 7);
    expect_same(parts.data(), out.data(), static_cast<int64_t>(parts.size()), "chunks, " + name_of(c));
    for (int64_t t = 0; t < length; ++t) {
      const int64_t at = t * s.heads * s.head_dim, last = at + (s.heads - 1) * s.head_dim;
      expect_same(out.data() + last, plain.data() + last, s.head_dim, "a logit without weight, " + name_of(c));
      if (s.heads > 1)
        for (int64_t d = 0; d < s.head_dim; ++d)
          ASSERT_LT(std::fabs(out[static_cast<size_t>(at + d)]), 1e-20f) << "a logit with all of it, " << name_of(c);
    }
  }
}

/// An encoder's rows, which see those behind them, and a decoder's over a memory, with and without a bias by distance.
TEST_P(AttentionTest, QueriesThatSeeAllOfASequenceAgreeWithTheReference) {
  if (!ops_->supports_encoders()) GTEST_SKIP() << "no encoders on this device";
  for (const Case& c : kCases) {
    if (c.window > 0) continue;
    AttentionShape s = shape_of(c);
    const std::vector<float> biases = random_.normal(s.heads * (2 * 9 + 1), 3.0f);
    const int64_t length = 83;
    const Stream in = stream(s, length, random_);
    Cache cache(s, dtype_, {length}, random_);
    const auto all = cache.sequence(0, 0, length, 0);
    ops_->kv_write(s, {&all, 1}, in.k.data(), in.v.data(), cache.view());
    for (const bool biased : {false, true}) {
      s.position_bias = biased ? biases.data() : nullptr;
      s.bias_reach = 9;
      AttentionSequence first = cache.sequence(0, 0, 50, 0), rest = cache.sequence(0, 50, 33, 50), causal = rest;
      first.seen_first = 0, first.seen_end = 41;  // its last rows see none of their own positions
      rest.seen_first = 50, rest.seen_end = 83;   // from within a block on
      const std::vector<AttentionSequence> cases[] = {{first, rest}, {first, causal}};
      for (const auto& sequences : cases) {
        std::vector<float> out(in.q.size(), NAN), want(in.q.size());
        ops_->attention(s, sequences, in.q.data(), nullptr, cache.view(), out.data());
        reference_->attention(s, sequences, in.q.data(), nullptr, cache.view(), want.data());
        expect_close(out, want, 5e-6, "attention to all, " + name_of(c));
        for (const AttentionSequence& whole : sequences) {  // a row's result does not depend on the others
          AttentionSequence one = whole;
          one.first_token += 20, one.first_position += 20, one.tokens = 1;
          std::vector<float> alone(in.q.size(), NAN);
          ops_->attention(s, {&one, 1}, in.q.data(), nullptr, cache.view(), alone.data());
          const int64_t at = one.first_token * s.heads * s.head_dim;
          expect_same(alone.data() + at, out.data() + at, s.heads * s.head_dim, "alone, " + name_of(c));
        }
      }
    }
  }
}

/// What rounding in the cache adds to attention over random keys and values, relative to the largest output.
double storing_bound(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 2e-3;
    case DType::kBF16:
      return 1.5e-2;
    case DType::kInt8:
      return 3e-2;
    default:
      return 5e-6;
  }
}

TEST_P(AttentionTest, WhatStoringAddsIsBounded) {
  for (const Case& c : kCases) {
    const AttentionShape s = shape_of(c);
    const int64_t length = 83;
    const Stream in = stream(s, length, random_);
    const auto stored = in_chunks(*ops_, s, in, length, length);
    const DType dtype = std::exchange(dtype_, DType::kF32);
    const auto exact = in_chunks(*reference_, s, in, length, length);
    dtype_ = dtype;
    expect_close(stored, exact, storing_bound(dtype), std::string(dtype_name(dtype)) + " " + name_of(c));
    if (dtype == DType::kF32) continue;
    double most = 0, scale = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      most = std::max(most, std::fabs(static_cast<double>(stored[i]) - exact[i]));
      scale = std::max(scale, std::fabs(static_cast<double>(exact[i])));
    }
    EXPECT_GT(most, 1e-4 * scale) << "nothing was rounded: the cache is not in " << dtype_name(dtype);
  }
}

TEST_P(AttentionTest, SinksChangeNothingBeforeTheGap) {
  AttentionShape s = shape_of({6, 2, 48, 20, 13});
  const int64_t length = s.sinks + s.window;  // the last query sees positions 0 to 32: all
  Stream in = stream(s, length, random_);
  std::fill(in.sink_q.begin(), in.sink_q.end(), NAN);
  const auto with_sinks = in_chunks(*ops_, s, in, length, 11);
  s.window = s.sinks = 0;
  const auto plain = in_chunks(*ops_, s, in, length, length);
  expect_same(with_sinks.data(), plain.data(), static_cast<int64_t>(plain.size()), "sinks before the gap");
}

TEST_P(AttentionTest, WhatLiesInTheGapIsNotRead) {
  for (const Case& c : {Case{6, 2, 48, 20, 5}, Case{4, 1, 80, 17, 16}, Case{2, 2, 20, 33, 0}}) {
    const AttentionShape s = shape_of(c);
    const int64_t past = 90, tokens = 3;
    const Stream before = stream(s, past, random_), now = stream(s, tokens, random_);
    std::vector<float> all(now.q.size(), NAN), without(all);
    Cache cache(s, dtype_, {past + tokens}, random_);
    const AttentionSequence first = cache.sequence(0, 0, past, 0), last = cache.sequence(0, 0, tokens, past);
    ops_->kv_write(s, {&first, 1}, before.k.data(), before.v.data(), cache.view());
    ops_->kv_write(s, {&last, 1}, now.k.data(), now.v.data(), cache.view());
    ops_->attention(s, {&last, 1}, now.q.data(), now.sink_q.data(), cache.view(), all.data());
    std::vector<uint32_t> holes(last.blocks.begin(), last.blocks.end());
    for (int64_t b = ceil_div(s.sinks, kKvBlockTokens); (b + 1) * kKvBlockTokens <= past - s.window + 1; ++b)
      holes[static_cast<size_t>(b)] = cache.unwritten();
    ASSERT_NE(holes[2], last.blocks[2]);
    const AttentionSequence holed{0, tokens, past, holes};
    ops_->attention(s, {&holed, 1}, now.q.data(), now.sink_q.data(), cache.view(), without.data());
    for (const float f : all) ASSERT_TRUE(std::isfinite(f));
    expect_same(without.data(), all.data(), static_cast<int64_t>(all.size()), name_of(c));
  }
}

TEST_P(AttentionTest, WhatWasNeverWrittenIsNaN) {
  const AttentionShape s = shape_of({2, 1, 20, 0});
  Cache cache(s, dtype_, {40}, random_);
  const AttentionSequence sequence = cache.sequence(0, 0, 1, 39);
  const Stream in = stream(s, 1, random_);
  ops_->kv_write(s, {&sequence, 1}, in.k.data(), in.v.data(), cache.view());
  std::vector<float> out(in.q.size());
  ops_->attention(s, {&sequence, 1}, in.q.data(), nullptr, cache.view(), out.data());
  for (const float f : out) EXPECT_TRUE(std::isnan(f));
}

/// K and V of one position, of these values.
TEST_P(AttentionTest, StrangeValuesAreStoredAsTheReferenceStoresThem) {
  const AttentionShape s = shape_of({1, 1, 20, 0});
  for (const float strange :
       {0.0f, -0.0f, 1e-36f, 6e-8f, 65519.0f, 65520.0f, -std::numeric_limits<float>::max()}) {
    for (const float rest : {0.0f, 1.0f}) {
      std::vector<float> k(20, rest);
      for (const size_t at : {0, 7, 16, 19}) k[at] = strange;
      Cache cache(s, dtype_, {1}, random_);
      const AttentionSequence sequence = cache.sequence(0, 0, 1, 0);
      ops_->kv_write(s, {&sequence, 1}, k.data(), k.data(), cache.view());
      const std::vector<std::byte> written = cache.bytes();
      reference_->kv_write(s, {&sequence, 1}, k.data(), k.data(), cache.view());
      EXPECT_EQ(written, cache.bytes()) << strange << " beside " << rest;
    }
  }
}

TEST_P(AttentionTest, InfinitiesAndNaNShow) {
  const AttentionShape s = shape_of({1, 1, 20, 0});
  for (const float strange :
       {NAN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const size_t at : {0, 7, 16, 19}) {
      const std::vector<float> q(20, 0.5f), k(20, 1.0f);
      std::vector<float> v = k, out(20);
      v[at] = strange;
      Cache cache(s, dtype_, {1}, random_);
      const AttentionSequence sequence = cache.sequence(0, 0, 1, 0);
      ops_->kv_write(s, {&sequence, 1}, k.data(), v.data(), cache.view());
      ops_->attention(s, {&sequence, 1}, q.data(), nullptr, cache.view(), out.data());
      EXPECT_FALSE(std::isfinite(out[at])) << strange << " in a value";
      if (strange < 0) continue;  // a key whose product is minus infinity has no weight
      ops_->kv_write(s, {&sequence, 1}, v.data(), k.data(), cache.view());
      ops_->attention(s, {&sequence, 1}, q.data(), nullptr, cache.view(), out.data());
      EXPECT_FALSE(std::isfinite(out[0])) << strange << " in a key";
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

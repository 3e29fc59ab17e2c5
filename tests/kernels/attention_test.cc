// Paged attention against the reference, and that a query's result does not depend on its company.

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

/// Sequences over one shuffled cache. What was never written is NaN.
class Cache {
 public:
  Cache(const AttentionShape& shape, DType dtype, const std::vector<int64_t>& lengths, Random& random)
      : shape_(shape) {
    int64_t blocks = 3;
    for (const int64_t n : lengths) blocks += ceil_div(n, kKvBlockTokens);
    bytes_.assign(static_cast<size_t>(blocks * kv_block_bytes(shape, dtype)), std::byte{0xff});
    view_ = {bytes_.data(), dtype, blocks};
    std::vector<uint32_t> ids(static_cast<size_t>(blocks));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random.engine());
    auto next = ids.begin();
    for (const int64_t n : lengths) {
      tables_.emplace_back(next, next + ceil_div(n, kKvBlockTokens));
      next += ceil_div(n, kKvBlockTokens);
    }
  }
  AttentionSequence sequence(size_t i, int64_t first_token, int64_t tokens, int64_t first_position) const {
    return {first_token, tokens, first_position, tables_[i]};
  }
  const KvView& view() const { return view_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  AttentionShape shape_;
  std::vector<std::byte> bytes_;
  std::vector<std::vector<uint32_t>> tables_;
  KvView view_;
};

struct Case {
  int64_t heads, kv_heads, head_dim, window;
};
constexpr Case kCases[] = {{4, 4, 16, 0}, {4, 2, 64, 0},   {6, 2, 48, 5},  {3, 1, 20, 0},   {8, 2, 128, 33},
                           {5, 5, 17, 1}, {16, 4, 64, 20}, {72, 1, 32, 0}, {2, 1, 256, 100}};

AttentionShape shape_of(const Case& c) {
  return {c.heads, c.kv_heads, c.head_dim, c.window, 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
}

/// q, k, v of whole sequences, position by position.
struct Stream {
  std::vector<float> q, k, v;
};
Stream stream(const AttentionShape& s, int64_t length, Random& random) {
  return {random.normal(length * s.heads * s.head_dim), random.normal(length * s.kv_heads * s.head_dim),
          random.normal(length * s.kv_heads * s.head_dim)};
}

class AttentionTest : public ::testing::TestWithParam<std::tuple<Isa, DType>> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(std::get<0>(GetParam()));
    ops_ = cpu_ops(std::get<0>(GetParam()));
  }
  /// Steps of `chunk` tokens through the whole stream.
  std::vector<float> in_chunks(Ops& ops, const AttentionShape& s, const Stream& in, int64_t length,
                               int64_t chunk) {
    Cache cache(s, dtype_, {length}, random_);
    std::vector<float> out(in.q.size(), NAN);
    for (int64_t at = 0; at < length; at += chunk) {
      const auto sequence = cache.sequence(0, 0, std::min(chunk, length - at), at);
      ops.kv_write(s, {&sequence, 1}, in.k.data() + at * s.kv_heads * s.head_dim,
                   in.v.data() + at * s.kv_heads * s.head_dim, cache.view());
      ops.attention(s, {&sequence, 1}, in.q.data() + at * s.heads * s.head_dim, cache.view(),
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
                                            ::testing::Values(DType::kF32, DType::kBF16)));

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
    ops_->attention(s, step, now.q.data(), cache.view(), out.data());
    reference_->attention(s, step, now.q.data(), cache.view(), want.data());
    expect_close(out, want, 5e-6,
                 "attention head_dim " + std::to_string(c.head_dim) + " window " + std::to_string(c.window));
  }
}

TEST_P(AttentionTest, ChunksThreadsAndModesChangeNoBit) {
  const auto one_thread = cpu_ops(std::get<0>(GetParam()), 1),
             fast = cpu_ops(std::get<0>(GetParam()), 2, false);
  for (const Case& c : kCases) {
    const AttentionShape s = shape_of(c);
    const int64_t length = 83;
    const Stream in = stream(s, length, random_);
    const auto whole = in_chunks(*ops_, s, in, length, length);
    for (const int64_t chunk : {1, 7, 16, 30}) {
      const auto parts = in_chunks(*ops_, s, in, length, chunk);
      expect_same(parts.data(), whole.data(), static_cast<int64_t>(whole.size()),
                  "chunks of " + std::to_string(chunk));
    }
    const auto alone = in_chunks(*one_thread, s, in, length, 9);
    expect_same(alone.data(), whole.data(), static_cast<int64_t>(whole.size()), "one thread");
    const auto hurried = in_chunks(*fast, s, in, length, length);
    expect_close(hurried, whole, 1e-5, "not deterministic");
  }
}

}  // namespace
}  // namespace moestro::kernels::test

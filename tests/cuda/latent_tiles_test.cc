// Latent attention on tensor cores against the reference: many shapes, formats and lengths, units that several blocks
// share, and how often latents are read. In f32: parts side by side and one after another.

#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/emulator.h"
#endif
#include "tests/kernels/paged_cache.h"

namespace moestro::kernels::test {
namespace {

struct Case {
  int64_t heads, kv_rank, nope_dim, rope_dim, value_dim;
  bool interleaved;
  DType weights;
};
constexpr Case kCases[] = {{16, 64, 24, 16, 24, true, DType::kBF16}, {17, 40, 17, 8, 21, false, DType::kF16},
                           {1, 32, 16, 8, 16, true, DType::kBF16},   {20, 256, 70, 64, 9, true, DType::kBF16},
                           {33, 16, 5, 8, 7, false, DType::kF32},    {32, 264, 8, 24, 65, true, DType::kF16},
                           {128, 16, 4, 8, 5, true, DType::kBF16},   {16, 512, 12, 64, 130, false, DType::kBF16}};

/// Queries of a sequence, and the positions before them.
struct Share {
  int64_t first, tokens;
};

class LatentTiles : public CudaTest {
 protected:
  void choose(const Case& c, DType cache) {
    dtype_ = cache;
    const auto scale = 1.0f / std::sqrt(static_cast<float>(c.nope_dim + c.rope_dim));
    shape_ = {c.heads, c.kv_rank, c.nope_dim, c.rope_dim, c.value_dim, scale, c.interleaved};
    const int64_t rows = c.heads * shape_.expanded_dim();
    kv_b_ = store_weight(random_.normal(rows * c.kv_rank, 0.2f), c.weights, rows, c.kv_rank);
    name_ = std::to_string(c.heads) + " heads, rank " + std::to_string(c.kv_rank) + ", cache of " +
            std::string(dtype_name(cache));
  }
  std::vector<float> angles(int64_t tokens, bool sine) {
    std::vector<float> all = random_.normal(tokens * shape_.rope_dim / 2, 3.0f);
    for (float& a : all) a = sine ? std::sin(a) : std::cos(a);
    return all;
  }
  /// Attention of a step, and what the reference makes of the same cache.
  void check(const std::vector<Share>& step, double bound = 2e-2) {
    std::vector<int64_t> lengths;
    for (const Share& s : step) lengths.push_back(s.first + s.tokens);
    const PagedCache cache(latent_block_bytes(shape_, dtype_), dtype_, lengths, random_);
    std::vector<AttentionSequence> now;
    int64_t tokens = 0;
    const auto norm = random_.normal(shape_.kv_rank, 0.3f);
    for (size_t i = 0; i < step.size(); ++i) {
      const AttentionSequence whole = cache.sequence(i, 0, lengths[i], 0);
      const auto kv = random_.normal(lengths[i] * (shape_.kv_rank + shape_.rope_dim));
      reference_->latent_write(shape_, {&whole, 1}, kv.data(), norm.data(), 1e-6f, angles(lengths[i], false).data(),
                               angles(lengths[i], true).data(), cache.view());
      now.push_back(cache.sequence(i, tokens, step[i].tokens, step[i].first));
      tokens += step[i].tokens;
    }
    const auto q = random_.normal(tokens * shape_.heads * shape_.query_dim()), cos = angles(tokens, false),
               sin = angles(tokens, true);
    std::vector<float> got(static_cast<size_t>(tokens * shape_.heads * shape_.value_dim), NAN), want(got);
    attend(*ops_, now, q, cos, sin, cache, got);
    attend(*reference_, now, q, cos, sin, cache, want);
    expect_close(got, want, bound, name_);
  }
  void attend(Ops& ops, const std::vector<AttentionSequence>& step, const std::vector<float>& q,
              const std::vector<float>& cos, const std::vector<float>& sin, const PagedCache& cache,
              std::vector<float>& out) {
    ops.latent_attention(shape_, step, q.data(), cos.data(), sin.data(), kv_b_.weight, cache.view(), out.data());
  }

  LatentShape shape_;
  DType dtype_ = DType::kBF16;
  StoredWeight kv_b_;
  std::string name_;
  std::unique_ptr<Ops> ops_ = cuda_ops(false), deterministic_ = cuda_ops(true), reference_ = make_reference_ops();
  Random random_;
};

constexpr DType kCaches[] = {DType::kBF16, DType::kF16, DType::kInt8, DType::kF32};

/// Decodes on both sides of a tile's end, a first token, and sequences that none of the blocks has as a whole.
TEST_F(LatentTiles, DecodesAgreeWithTheReference) {
  for (const Case& c : kCases)
    for (const DType cache : kCaches) {
      choose(c, cache);
      check({{0, 1}, {30, 1}, {31, 1}, {32, 1}, {150, 1}, {5, 0}, {63, 1}});
      if (c.heads <= 40) check({{500, 1}});
    }
}

/// Prompts, a chunk that crosses a tile's end, a chunk behind a long prefix, decodes beside them.
TEST_F(LatentTiles, PromptsAgreeWithTheReference) {
  for (const Case& c : kCases)
    for (const DType cache : kCaches) {
      choose(c, cache);
      check({{0, c.heads > 100 ? 9 : 37}, {40, 1}, {28, 6}, {200, 3}, {3, 1}});
    }
}

/// More queries than are computed at once.
TEST_F(LatentTiles, LongStepsAreCutIntoPasses) {
  choose({128, 8, 2, 8, 2, true, DType::kBF16}, DType::kBF16);
  check({{0, 131}, {2, 1}});
}

/// In f32 many queries have their parts one after another, few have them side by side.
TEST_F(LatentTiles, PartsSideBySideAndOneAfterAnotherGiveTheSameBits) {
  for (const Case& c : {kCases[1], kCases[5]}) {
    choose(c, DType::kF16);
    shape_.heads = 2;
    kv_b_.weight.rows = 2 * shape_.expanded_dim();
    const int64_t length = 300, many = 270, few = 3, width = shape_.heads * shape_.value_dim;
    const PagedCache cache(latent_block_bytes(shape_, dtype_), dtype_, {length}, random_);
    const auto kv = random_.normal(length * (shape_.kv_rank + shape_.rope_dim)), norm = random_.normal(shape_.kv_rank),
               q = random_.normal(length * shape_.heads * shape_.query_dim()), cos = angles(length, false),
               sin = angles(length, true);
    const AttentionSequence all = cache.sequence(0, 0, length, 0);
    deterministic_->latent_write(shape_, {&all, 1}, kv.data(), norm.data(), 1e-6f, cos.data(), sin.data(),
                                 cache.view());
    std::vector<float> want(static_cast<size_t>(length * width), NAN), in_turn(want), side_by_side(want);
    const auto last = [&](int64_t tokens) {
      return std::vector<AttentionSequence>{cache.sequence(0, length - tokens, tokens, length - tokens)};
    };
    attend(*deterministic_, last(many), q, cos, sin, cache, in_turn);
    attend(*deterministic_, last(few), q, cos, sin, cache, side_by_side);
    attend(*reference_, last(many), q, cos, sin, cache, want);
    expect_same(in_turn.data() + (length - few) * width, side_by_side.data() + (length - few) * width, few * width,
                name_);
    const auto from = static_cast<std::ptrdiff_t>((length - many) * width);
    expect_close({in_turn.begin() + from, in_turn.end()}, {want.begin() + from, want.end()}, 5e-6, name_);
  }
}

#ifndef MOESTRO_CUDA_PLUGIN
/// What the kernel copies of latents: all of them for each group of 32 heads, whose blocks run at the same time.
TEST_F(LatentTiles, LatentsAreReadOnceForAGroupOfHeads) {
  for (const int64_t heads : {16, 20, 32, 64, 128}) {
    choose({heads, 512, 2, 64, 2, true, DType::kF32}, DType::kBF16);
    const int64_t length = 300, groups = ceil_div(heads, int64_t{MOESTRO_CUDA_LATENT_TILE_PAIRS});
    const uint64_t before = cuda::emulated::counters().bytes_streamed;
    check({{length - 1, 1}, {length - 1, 1}, {length - 1, 1}});
    const auto read = static_cast<double>(cuda::emulated::counters().bytes_streamed - before),
               latents = 3.0 * static_cast<double>(length * (512 + 64) * 2);
    EXPECT_LE(read, 1.1 * latents * static_cast<double>(groups)) << heads << " heads";
    EXPECT_GE(read, latents * static_cast<double>(groups)) << "another kernel has computed it";
  }
}

/// Without races the order of threads and blocks changes no bit.
TEST_F(LatentTiles, TheOrderOfThreadsChangesNothing) {
  for (const Case& c : {kCases[0], kCases[3], kCases[4]}) {
    choose(c, DType::kBF16);
    const std::vector<int64_t> lengths{170, 40};
    const PagedCache cache(latent_block_bytes(shape_, dtype_), dtype_, lengths, random_);
    const std::vector<AttentionSequence> all{cache.sequence(0, 0, 170, 0), cache.sequence(1, 170, 40, 0)},
        step{cache.sequence(0, 0, 1, 169), cache.sequence(1, 1, 9, 31)};
    const auto kv = random_.normal(210 * (shape_.kv_rank + shape_.rope_dim)), norm = random_.normal(shape_.kv_rank),
               q = random_.normal(10 * shape_.heads * shape_.query_dim()), cos = angles(210, false),
               sin = angles(210, true);
    std::vector<float> want, want_deterministic;
    for (const uint64_t seed : {0, 1, 2, 3}) {
      cuda::emulated::set_order(seed);
      for (Ops* ops : {ops_.get(), deterministic_.get()}) {
        ops->latent_write(shape_, all, kv.data(), norm.data(), 1e-6f, cos.data(), sin.data(), cache.view());
        std::vector<float> out(static_cast<size_t>(10 * shape_.heads * shape_.value_dim), NAN);
        attend(*ops, step, q, cos, sin, cache, out);
        std::vector<float>& first = ops == ops_.get() ? want : want_deterministic;
        if (seed == 0) first = out;
        expect_same(out.data(), first.data(), static_cast<int64_t>(out.size()), "order " + std::to_string(seed));
      }
    }
    cuda::emulated::set_order(0);
  }
}
#endif

}  // namespace
}  // namespace moestro::kernels::test

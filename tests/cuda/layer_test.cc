// What the tables of operations do not reach: routes sorted on the device, a layer's experts together, the guard, long
// contexts; and that no order of threads changes a bit.

#include <numeric>

#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/emulator.h"
#endif
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::ExpertMatrices;
using ::moestro::test::write_expert_blob;

class SortRoutes : public CudaTest {};
class LayerExperts : public CudaTest {};
class Guard : public CudaTest {};
class LongAttention : public CudaTest {};
class Order : public CudaTest {};

#ifdef MOESTRO_CUDA_PLUGIN
/// A device's order of threads is its own at every run; it counts no launches.
void set_order(uint64_t) {}
#else
using cuda::emulated::set_order;
#endif

/// Launches that `work` makes; -1 where they are not counted.
template <typename Work>
int launches_of(Work work) {
#ifdef MOESTRO_CUDA_PLUGIN
  work();
  return -1;
#else
  const uint64_t before = cuda::emulated::counters().launches;
  work();
  return static_cast<int>(cuda::emulated::counters().launches - before);
#endif
}

/// Distinct experts for each token.
std::vector<int32_t> random_routes(int64_t n, int64_t top_k, int64_t experts, Random& random) {
  std::vector<int32_t> ids, all(static_cast<size_t>(experts));
  std::iota(all.begin(), all.end(), 0);
  for (int64_t t = 0; t < n; ++t) {
    std::shuffle(all.begin(), all.end(), random.engine());
    ids.insert(ids.end(), all.begin(), all.begin() + top_k);
  }
  return ids;
}

struct RoutesCase {
  int64_t n, top_k, experts;
};

TEST_F(SortRoutes, RowsOfAnExpertStandTogetherInTheOrderOfTokens) {
  Random random;
  const auto ops = cuda_ops();
  for (const auto& [n, top_k, experts] : {RoutesCase{1, 1, 1}, RoutesCase{1, 8, 128}, RoutesCase{70, 2, 8},
                                          RoutesCase{300, 4, 60}, RoutesCase{9, 3, 1000},
                                          RoutesCase{1500, 5, 33}, RoutesCase{70000, 1, 3}}) {
    std::vector<uint32_t> counts(static_cast<size_t>(MOESTRO_CUDA_ROUTE_RUNS * experts));
    for (const auto& [some_left_out, one_block] : {std::pair(false, false), {true, false}, {true, true}}) {
      const auto ids = random_routes(n, top_k, experts, random);
      std::vector<uint8_t> left_out(static_cast<size_t>(n));
      for (uint8_t& l : left_out) l = some_left_out && random.below(3) == 0;
      const auto pairs = static_cast<size_t>(n * top_k), active_max = std::min(static_cast<size_t>(experts), pairs);
      std::vector<int32_t> offsets(static_cast<size_t>(experts) + 1, -7), active(active_max, -7);
      std::vector<MoestroCudaRoutedRow> sorted(pairs, {-7, -7});
      const MoestroCudaSortRoutes a{
          ids.data(),   some_left_out ? left_out.data() : nullptr, n, top_k, experts, offsets.data(), active.data(),
          sorted.data(), one_block ? nullptr : counts.data()};
      ops->sort_routes(a);
      size_t at = 0, active_at = 0;
      for (int32_t e = 0; e < experts; ++e) {
        ASSERT_EQ(offsets[static_cast<size_t>(e)], static_cast<int32_t>(at));
        const size_t before = at;
        for (size_t i = 0; i < pairs; ++i) {
          if (ids[i] != e || left_out[i / static_cast<size_t>(top_k)] != 0) continue;
          ASSERT_EQ(sorted[at].token, static_cast<int32_t>(i) / top_k);
          ASSERT_EQ(sorted[at++].rank, static_cast<int32_t>(i) % top_k);
        }
        if (at > before) {
          ASSERT_EQ(active[active_at++], e);
        }
      }
      EXPECT_EQ(offsets.back(), static_cast<int32_t>(at));
      EXPECT_TRUE(std::all_of(active.begin() + static_cast<std::ptrdiff_t>(active_at), active.end(),
                              [](int32_t e) { return e == -1; }));
    }
  }
}

/// A layer: experts in the layout of packs, and where they lie.
struct Layer {
  ExpertLayout layout;
  std::vector<std::vector<std::byte>> blobs;
};
Layer random_layer(int64_t experts, int64_t hidden, int64_t ffn, DType dtype, Random& random) {
  Layer l{ExpertLayout(hidden, ffn, dtype), {}};
  for (int64_t e = 0; e < experts; ++e)
    l.blobs.push_back(write_expert_blob(
        l.layout, ExpertMatrices{hidden, ffn, random.normal(ffn * hidden, 0.2f), random.normal(ffn * hidden, 0.2f),
                                 random.normal(ffn * hidden, 0.2f)}));

  return l;
}

TEST_F(LayerExperts, EqualOneExpertAfterAnotherAndLeaveOutWhatIsNotThere) {
  Random random;
  const auto reference = make_reference_ops();
  const auto ops = cuda_ops();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4}) {
    for (const int64_t n : {1, 3, 40}) {
      const int64_t experts = 9, top_k = 3, hidden = 72, ffn = 150;
      const Layer layer = random_layer(experts, hidden, ffn, dtype, random);
      const auto ids = random_routes(n, top_k, experts, random);
      const int32_t missing = ids[0];
      std::vector<std::vector<std::byte>> there = layer.blobs;
      there[static_cast<size_t>(missing)].clear();
      const auto x = random.normal(n * hidden);
      std::vector<float> got(static_cast<size_t>(n * top_k * hidden), 7.0f), want(got);
      ops->experts({layer.layout, nullptr, ids.data(), nullptr, n, experts, top_k, x.data(), got.data()}, there);
      for (int32_t e = 0; e < experts; ++e) {
        std::vector<RoutedRow> rows;
        for (size_t i = 0; i < ids.size(); ++i)
          if (ids[i] == e && e != missing)
            rows.push_back({static_cast<int32_t>(i) / static_cast<int32_t>(top_k),
                            static_cast<int32_t>(i) % static_cast<int32_t>(top_k)});
        reference->expert_ffn(layer.layout, layer.blobs[static_cast<size_t>(e)].data(), x.data(), rows, top_k,
                              want.data());
      }
      expect_close(got, want, 1e-5, std::string(dtype_name(dtype)) + " n " + std::to_string(n));
      EXPECT_TRUE(std::all_of(got.begin(), got.begin() + hidden, [](float f) { return f == 7.0f; }))
          << "the rows of a missing expert are not written";
    }
  }
}

TEST_F(Guard, ARowThatIsNotFiniteBecomesZerosAndIsRememberedByItsFirstLayer) {
  const auto ops = cuda_ops();
  const int64_t dim = 300;
  std::vector<float> x(4 * 300, 1.0f);
  std::vector<int32_t> bad(4, -1);
  x[300 + 299] = NAN;
  ops->guard(x.data(), 4, dim, 5, bad.data());
  EXPECT_EQ(bad, (std::vector<int32_t>{-1, 5, -1, -1}));
  x[300] = INFINITY;
  x[900] = 1e30f;
  ops->guard(x.data(), 4, dim, 6, bad.data());
  EXPECT_EQ(bad, (std::vector<int32_t>{-1, 5, -1, 6}));
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(x[i], i / 300 % 2 == 1 ? 0.0f : 1.0f) << i;
}

/// One sequence in a cache of its own, position p in block (p / 16) from the end.
class LongSequence {
 public:
  LongSequence(const AttentionShape& shape, DType dtype, int64_t length, Ops& ops, Random& random)
      : shape_(shape),
        q_(random.normal(length * shape.heads * shape.head_dim)),
        sink_q_(random.normal(length * shape.heads * shape.head_dim)) {
    const int64_t count = ceil_div(length, kKvBlockTokens);
    bytes_.assign(static_cast<size_t>(count * kv_block_bytes(shape, dtype)), std::byte{0xff});
    for (int64_t i = 0; i < count; ++i) blocks_.push_back(static_cast<uint32_t>(count - 1 - i));
    view_ = {bytes_.data(), dtype, count};
    const auto k = random.normal(length * shape.kv_heads * shape.head_dim),
               v = random.normal(length * shape.kv_heads * shape.head_dim);
    const AttentionSequence all{0, length, 0, blocks_};
    ops.kv_write(shape, {&all, 1}, k.data(), v.data(), view_);
  }
  /// Queries [first, first + tokens).
  std::vector<float> attend(Ops& ops, int64_t first, int64_t tokens) const {
    const int64_t width = shape_.heads * shape_.head_dim;
    std::vector<float> out(static_cast<size_t>(tokens * width), NAN);
    const AttentionSequence part{0, tokens, first, blocks_};
    ops.attention(shape_, {&part, 1}, q_.data() + first * width, sink_q_.data() + first * width, view_, out.data());
    return out;
  }
  /// The query at a position as the only one of a step, in the row `row` of it.
  std::vector<float> attend_in_row(Ops& ops, int64_t position, int64_t row) const {
    const int64_t width = shape_.heads * shape_.head_dim;
    std::vector<float> q(static_cast<size_t>((row + 1) * width)), sink_q(q.size()), out(q.size(), NAN);
    std::copy_n(q_.begin() + position * width, width, q.end() - width);
    std::copy_n(sink_q_.begin() + position * width, width, sink_q.end() - width);
    const AttentionSequence one{row, 1, position, blocks_};
    ops.attention(shape_, {&one, 1}, q.data(), sink_q.data(), view_, out.data());
    return {out.end() - width, out.end()};
  }

 private:
  AttentionShape shape_;
  std::vector<float> q_, sink_q_;
  std::vector<std::byte> bytes_;
  std::vector<uint32_t> blocks_;
  KvView view_;
};

AttentionShape long_shape(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t window, int64_t sinks) {
  return {heads, kv_heads, head_dim, window, 1.0f / std::sqrt(static_cast<float>(head_dim)), sinks};
}

TEST_F(LongAttention, PartsSideBySideAndOneAfterAnotherGiveTheSameBits) {
  Random random;
  const auto ops = cuda_ops();
  const auto reference = make_reference_ops();
  const int64_t length = 5 * MOESTRO_CUDA_ATTENTION_PART + 9, many = 600;
  for (const AttentionShape& shape : {long_shape(4, 2, 24, 0, 0), long_shape(4, 4, 40, 0, 0),
                                      long_shape(4, 2, 24, 150, 20), long_shape(4, 4, 24, 200, 0)}) {
    const LongSequence sequence(shape, DType::kBF16, length, *ops, random);
    const int64_t width = shape.heads * shape.head_dim;
    std::vector<float> whole, few;
    const int for_many = launches_of([&] { whole = sequence.attend(*ops, length - many, many); });
    EXPECT_EQ(for_many, kEmulated ? 1 : -1) << "many queries fill a device: nothing side by side";
    expect_close(whole, sequence.attend(*reference, length - many, many), 5e-6, "against the reference");
    for (const int64_t tokens : {1, 3, 50}) {
      const int for_few = launches_of([&] { few = sequence.attend(*ops, length - tokens, tokens); });
      EXPECT_EQ(for_few, kEmulated ? 2 : -1) << "side by side, and put together";
      expect_same(few.data(), whole.data() + (many - tokens) * width, tokens * width,
                  "the last " + std::to_string(tokens));
    }
  }
}

/// So many parts that they come through shared memory, 32 at a time, when they are put together.
TEST_F(LongAttention, ManyPartsGiveTheSameBits) {
  Random random;
  const auto ops = cuda_ops();
  const auto reference = make_reference_ops();
  const std::vector<float> logits = random.normal(4, 3.0f);
  const int64_t part = MOESTRO_CUDA_ATTENTION_PART;
  for (const auto& [heads, kv_heads, head_dim, window, parts] :
       {std::tuple(2, 1, 8, 0, 140), std::tuple(1, 1, 128, 0, 33), std::tuple(4, 2, 136, 0, 18),
        std::tuple(1, 1, 256, 0, 35), std::tuple(2, 1, 24, 2500, 40), std::tuple(3, 1, 17, 0, 40)}) {
    AttentionShape shape = long_shape(heads, kv_heads, head_dim, window, window > 0 ? 200 : 0);
    if (heads == 4) shape.sink_logits = logits.data();
    const LongSequence sequence(shape, DType::kBF16, parts * part, *ops, random);
    for (const int64_t position : {parts * part - 1, (parts - 1) * part, 17 * part - 1, 16 * part, 16 * part - 1}) {
      const std::string what = std::to_string(head_dim) + " wide, position " + std::to_string(position);
      std::vector<float> side_by_side, in_turn;
      const int for_first = launches_of([&] { side_by_side = sequence.attend_in_row(*ops, position, 0); });
      const int for_last = launches_of([&] { in_turn = sequence.attend_in_row(*ops, position, 300); });
      EXPECT_EQ(for_first, kEmulated ? 2 : -1) << what;
      EXPECT_EQ(for_last, kEmulated ? 1 : -1) << "no room for parts of so many rows; " << what;
      expect_same(side_by_side.data(), in_turn.data(), heads * head_dim, what);
      expect_close(side_by_side, sequence.attend_in_row(*reference, position, 0), 5e-6, what);
    }
  }
}

/// Sequences of many lengths that decode in one step, against each of them alone, and against chunks of a prompt.
TEST_F(LongAttention, ADecodedTokenDoesNotDependOnItsCompany) {
  Random random;
  const auto ops = cuda_ops();
  const auto reference = make_reference_ops();
  const std::vector<int64_t> positions{0, 700, 127, 128, 16, 1300, 255, 31};
  for (const auto& [heads, kv_heads, head_dim, window, dtype] :
       {std::tuple(4, 4, 64, 0, DType::kBF16), std::tuple(8, 2, 128, 0, DType::kInt8),
        std::tuple(6, 1, 96, 300, DType::kF16), std::tuple(16, 2, 40, 100, DType::kF32),
        std::tuple(9, 1, 256, 0, DType::kBF16)}) {
    const AttentionShape shape = long_shape(heads, kv_heads, head_dim, window, window > 0 ? 5 : 0);
    const int64_t width = heads * head_dim, kv_width = kv_heads * head_dim;
    int64_t count = 0;
    for (const int64_t p : positions) count += p / kKvBlockTokens + 1;
    std::vector<std::byte> bytes(static_cast<size_t>(count * kv_block_bytes(shape, dtype)), std::byte{0xff});
    const KvView view{bytes.data(), dtype, count};
    std::vector<std::vector<uint32_t>> blocks;
    std::vector<AttentionSequence> step, chunks;
    for (const int64_t p : positions) {
      auto& own = blocks.emplace_back();
      while (static_cast<int64_t>(own.size()) <= p / kKvBlockTokens) own.push_back(static_cast<uint32_t>(--count));
    }
    const int64_t chunk = 5;
    for (size_t i = 0; i < positions.size(); ++i) {
      const int64_t length = positions[i] + 1, row = static_cast<int64_t>(i);
      const auto k = random.normal(length * kv_width), v = random.normal(length * kv_width);
      const AttentionSequence all{0, length, 0, blocks[i]};
      ops->kv_write(shape, {&all, 1}, k.data(), v.data(), view);
      step.push_back({row, 1, length - 1, blocks[i]});
      const int64_t before = std::min(chunk, length) - 1;
      chunks.push_back({row * chunk, before + 1, length - 1 - before, blocks[i]});
    }
    const auto n = static_cast<int64_t>(positions.size());
    const auto q = random.normal(n * width), sink_q = random.normal(n * width);
    std::vector<float> together(q.size(), NAN), want(q.size());
    ops->attention(shape, step, q.data(), sink_q.data(), view, together.data());
    reference->attention(shape, step, q.data(), sink_q.data(), view, want.data());
    const std::string what = std::string(dtype_name(dtype)) + " head_dim " + std::to_string(head_dim);
    expect_close(together, want, 5e-6, what);
    auto chunk_q = random.normal(n * chunk * width), chunk_sink_q = random.normal(n * chunk * width);
    std::vector<float> in_chunks(chunk_q.size(), NAN);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t last = chunks[static_cast<size_t>(i)].first_token + chunks[static_cast<size_t>(i)].tokens - 1;
      std::copy_n(q.begin() + i * width, width, chunk_q.begin() + last * width);
      std::copy_n(sink_q.begin() + i * width, width, chunk_sink_q.begin() + last * width);
    }
    ops->attention(shape, chunks, chunk_q.data(), chunk_sink_q.data(), view, in_chunks.data());
    for (size_t i = 0; i < positions.size(); ++i) {
      const AttentionSequence alone{0, 1, positions[i], blocks[i]};
      const auto at = static_cast<int64_t>(i) * width;
      std::vector<float> out(static_cast<size_t>(width), NAN);
      ops->attention(shape, {&alone, 1}, q.data() + at, sink_q.data() + at, view, out.data());
      expect_same(out.data(), together.data() + at, width, what + ", alone");
      const int64_t last = chunks[i].first_token + chunks[i].tokens - 1;
      expect_same(in_chunks.data() + last * width, together.data() + at, width, what + ", the last of a chunk");
    }
  }
}

/// Everything once, in the order of threads that `seed` gives.
std::vector<float> everything(uint64_t seed) {
  std::mt19937_64 same(5);
  Random random;
  random.engine() = same;
  set_order(seed);
  const auto ops = cuda_ops();
  std::vector<float> results;
  const auto keep = [&](const std::vector<float>& v) { results.insert(results.end(), v.begin(), v.end()); };
  const int64_t n = 5, hidden = 136, experts = 40, top_k = 4;
  auto x = random.normal(n * hidden);
  const auto weight = random.normal(hidden);
  ops->rms_norm(x.data(), n, hidden, weight.data(), 1e-5f, x.data());
  ops->layer_norm(x.data(), n, hidden, weight.data(), weight.data(), 1e-5f, x.data());
  keep(x);
  std::vector<float> sums(5), logits(static_cast<size_t>(n * experts)), weights(static_cast<size_t>(n * top_k));
  ops->sum_squares(x.data(), n, hidden, sums.data());
  keep(sums);
  const auto router = store_weight(random.normal(experts * hidden), DType::kBF16, experts, hidden);
  ops->matmul(x.data(), n, router.weight, nullptr, logits.data(), Activations::kExact);
  std::vector<int32_t> ids(weights.size());
  ops->router_top_k(logits.data(), n,
                    {.experts = experts, .top_k = top_k, .normalise = true, .groups = 8, .groups_kept = 4}, ids.data(),
                    weights.data());
  keep(weights);
  const Layer layer = random_layer(experts, hidden, 90, DType::kInt8, random);
  std::vector<float> rows(static_cast<size_t>(n * top_k * hidden), NAN);
  ops->experts({layer.layout, nullptr, ids.data(), nullptr, n, experts, top_k, x.data(), rows.data()}, layer.blobs);
  ops->combine(rows.data(), weights.data(), n, top_k, hidden, x.data());
  keep(x);
  for (const DType dtype : {DType::kF16, DType::kInt8}) {
    const LongSequence sequence(long_shape(4, 2, 72, 0, 0), dtype, 300, *ops, random);
    keep(sequence.attend(*ops, 290, 10));
    keep(sequence.attend(*ops, 0, 300));
  }
  set_order(0);
  return results;
}

TEST_F(Order, OfThreadsWarpsAndBlocksChangesNoBit) {
  const auto want = everything(0);
  ASSERT_TRUE(std::all_of(want.begin(), want.end(), [](float f) { return std::isfinite(f); }));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const auto got = everything(seed);
    ASSERT_EQ(got.size(), want.size());
    expect_same(got.data(), want.data(), static_cast<int64_t>(want.size()), "order " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace moestro::kernels::test

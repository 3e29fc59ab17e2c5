// Operations that are one launch on a device, against the separate ones that they replace.

#include <numeric>

#include "tests/kernels/expert_blob.h"
#include "tests/kernels/paged_cache.h"

namespace moestro::kernels::test {
namespace {

class Fused : public CudaTest {
 protected:
  void expect_equal(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
    ASSERT_EQ(got.size(), want.size()) << what;
    expect_same(got.data(), want.data(), static_cast<int64_t>(want.size()), what);
  }
  std::vector<float> nan(int64_t count) { return std::vector<float>(static_cast<size_t>(count), NAN); }

  std::unique_ptr<HostFacingOps> ops_;
  Random random_;
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) ops_ = cuda_ops();
  }
};

class Groups : public Fused, public ::testing::WithParamInterface<std::tuple<bool, DType>> {};
INSTANTIATE_TEST_SUITE_P(Modes, Groups,
                         ::testing::Combine(::testing::Bool(), ::testing::Values(DType::kF32, DType::kBF16, DType::kF16,
                                                                                 DType::kInt8, DType::kInt4)));

TEST_P(Groups, ProductsAreThoseOfEachMatrix) {
  const auto [deterministic, dtype] = GetParam();
  const auto ops = cuda_ops(deterministic);
  for (const auto& [n, cols] :
       {std::pair<int64_t, int64_t>(1, 64), {7, 136}, {4, 37}, {7, 128}, {13, 192}, {40, 128}}) {
    std::vector<StoredWeight> stored;
    std::vector<GroupProduct> products;
    std::vector<std::vector<float>> got, want, biases;
    for (const int64_t rows : {5, 64, 1, 18}) {
      stored.push_back(store_weight(random_.normal(rows * cols), dtype, rows, cols));
      biases.push_back(random_.normal(rows));
      got.push_back(nan(n * rows)), want.push_back(nan(n * rows));
    }
    const auto x = random_.normal(n * cols);
    for (size_t i = 0; i < stored.size(); ++i) {
      const float* bias = i % 2 == 0 ? biases[i].data() : nullptr;
      products.push_back({&stored[i].weight, bias, got[i].data()});
      ops->matmul(x.data(), n, stored[i].weight, bias, want[i].data(), Activations::kRounded);
    }
    ops->matmul_group(x.data(), n, products, Activations::kRounded);
    const std::string what = std::to_string(n) + " rows of " + std::to_string(cols);
    // Where only kernels for many tokens round, a group is not rounded.
    const double bound = deterministic || cols % 64 == 0 ? 0.0 : 0.02;
    for (size_t i = 0; i < stored.size(); ++i) expect_close(got[i], want[i], bound, what);
    auto y = random_.normal(n * 64), onto = y, product = nan(n * 64);
    ops->matmul_onto(x.data(), n, stored[1].weight, biases[1].data(), product.data(), onto.data());
    ops->matmul(x.data(), n, stored[1].weight, biases[1].data(), product.data(), Activations::kRounded);
    ops->add_scaled(product.data(), nullptr, n, 64, y.data());
    expect_close(onto, y, bound, "onto the stream, " + what);
  }
}

TEST_F(Fused, HeadsAreNormedRotatedAndCachedAsOneAfterAnother) {
  struct Case {
    int64_t heads, kv_heads, head_dim, rotary_dim;
    bool norms, sinks;
  };
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    for (const Case& c : {Case{4, 2, 128, 128, false, false}, Case{6, 3, 64, 32, true, false},
                          Case{5, 1, 20, 20, true, true}, Case{2, 2, 256, 256, true, false},
                          Case{3, 3, 34, 18, false, true}}) {
      const AttentionShape shape{c.heads, c.kv_heads, c.head_dim, 0, 0.1f};
      PagedCache cache(kv_block_bytes(shape, dtype), dtype, {40, 9, 1}, random_);
      const std::vector<AttentionSequence> step{cache.sequence(0, 0, 1, 39), cache.sequence(1, 1, 5, 4),
                                                cache.sequence(2, 6, 1, 0)};
      const int64_t n = 7, angles = n * c.rotary_dim / 2;
      const auto q = random_.normal(n * c.heads * c.head_dim), k = random_.normal(n * c.kv_heads * c.head_dim),
                 v = random_.normal(n * c.kv_heads * c.head_dim), q_norm = random_.normal(c.head_dim),
                 k_norm = random_.normal(c.head_dim), cos = random_.normal(angles), sin = random_.normal(angles);
      auto want_q = q, want_k = k;
      if (c.norms) {
        ops_->rms_norm(q.data(), n * c.heads, c.head_dim, q_norm.data(), 1e-5f, want_q.data());
        ops_->rms_norm(k.data(), n * c.kv_heads, c.head_dim, k_norm.data(), 1e-5f, want_k.data());
      }
      auto want_sink_q = want_q;
      ops_->rope(want_q.data(), n, c.heads, c.head_dim, c.rotary_dim, cos.data(), sin.data());
      ops_->rope(want_k.data(), n, c.kv_heads, c.head_dim, c.rotary_dim, cos.data(), sin.data());
      ops_->rope(want_sink_q.data(), n, c.heads, c.head_dim, c.rotary_dim, sin.data(), cos.data());
      const std::vector<std::byte> before = cache.bytes();
      auto got_q = q, sink_q = nan(n * c.heads * c.head_dim);
      HeadsToPlace heads{
          .q = got_q.data(), .k = k.data(), .v = v.data(), .rotary_dim = c.rotary_dim, .cos = cos.data(),
          .sin = sin.data()};
      if (c.norms) heads.q_norm = q_norm.data(), heads.k_norm = k_norm.data(), heads.eps = 1e-5f;
      if (c.sinks) heads.sink_q = sink_q.data(), heads.sink_cos = sin.data(), heads.sink_sin = cos.data();
      ops_->place_heads(shape, step, heads, cache.view());
      const std::vector<std::byte> got = cache.bytes();
      std::copy(before.begin(), before.end(), static_cast<std::byte*>(cache.view().data));
      ops_->kv_write(shape, step, want_k.data(), v.data(), cache.view());
      const std::string what = std::string(dtype_name(dtype)) + ", heads of " + std::to_string(c.head_dim);
      EXPECT_EQ(got, cache.bytes()) << what;
      expect_equal(got_q, want_q, what);
      if (c.sinks) expect_equal(sink_q, want_sink_q, what + ", for sinks");
    }
  }
}

struct RouteCase {
  int64_t n, hidden, experts, top_k, groups = 1;
};

TEST_F(Fused, RoutesOfTheStreamAreThoseOfNormProductAndChoice) {
  for (const RouteCase& c :
       {RouteCase{1, 64, 4, 2}, RouteCase{1, 512, 8, 2}, RouteCase{5, 300, 60, 4}, RouteCase{9, 1028, 128, 8, 8},
        RouteCase{64, 36, 17, 3}, RouteCase{65, 36, 17, 3}, RouteCase{3, 4096, 9, 2}, RouteCase{2, 35, 300, 12}}) {
    const auto x = random_.normal(c.n * c.hidden), norm = random_.normal(c.hidden), bias = random_.normal(c.experts),
               choice_bias = random_.normal(c.experts, 0.1f);
    const auto router = store_weight(random_.normal(c.experts * c.hidden), DType::kF32, c.experts, c.hidden);
    const RouterSpec spec{.experts = c.experts,
                          .top_k = c.top_k,
                          .scores = c.groups > 1 ? RouterSpec::Scores::kSigmoid : RouterSpec::Scores::kSoftmax,
                          .normalise = true,
                          .bias = c.groups > 1 ? choice_bias.data() : nullptr,
                          .groups = c.groups,
                          .groups_kept = std::max<int64_t>(1, c.groups / 2),
                          .group_best = 2};
    auto normed = nan(c.n * c.hidden), want_normed = normed, logits = nan(c.n * c.experts), want_logits = logits,
         weights = nan(c.n * c.top_k), want_weights = weights;
    std::vector<int32_t> ids(weights.size(), -7), want_ids = ids;
    const std::string what = std::to_string(c.n) + " rows of " + std::to_string(c.hidden);
    ops_->norm_route({x.data(), c.n, c.hidden, norm.data(), 1e-5f, normed.data(), router.weight, bias.data(),
                      logits.data()},
                     spec, ids.data(), weights.data());
    ops_->rms_norm(x.data(), c.n, c.hidden, norm.data(), 1e-5f, want_normed.data());
    expect_equal(normed, want_normed, what + ", norm");
    ops_->matmul(normed.data(), c.n, router.weight, bias.data(), want_logits.data(), Activations::kExact);
    expect_close(logits, want_logits, 3e-6, what + ", logits");
    ops_->router_top_k(logits.data(), c.n, spec, want_ids.data(), want_weights.data());
    EXPECT_EQ(ids, want_ids) << what;
    expect_equal(weights, want_weights, what + ", weights");
  }
}

TEST_F(Fused, ALogitDoesNotDependOnTheOtherRows) {
  const int64_t many = 70, hidden = 200, experts = 20, top_k = 3;
  const auto x = random_.normal(many * hidden), norm = random_.normal(hidden);
  const auto router = store_weight(random_.normal(experts * hidden), DType::kF32, experts, hidden);
  const auto logits_of = [&](int64_t first, int64_t n) {
    auto normed = nan(n * hidden), logits = nan(n * experts), weights = nan(n * top_k);
    std::vector<int32_t> ids(weights.size());
    ops_->norm_route({x.data() + first * hidden, n, hidden, norm.data(), 1e-5f, normed.data(), router.weight, nullptr,
                      logits.data()},
                     {.experts = experts, .top_k = top_k}, ids.data(), weights.data());
    return logits;
  };
  const auto all = logits_of(0, many);
  for (const auto& [first, n] : {std::pair<int64_t, int64_t>(0, 1), {69, 1}, {3, 6}, {6, 64}}) {
    const auto some = logits_of(first, n);
    expect_same(some.data(), all.data() + first * experts, n * experts, std::to_string(n) + " rows");
  }
}

TEST_F(Fused, ExpertsFindTheRoutesThatTheRouterHasSorted) {
  using ::moestro::test::ExpertMatrices;
  for (const auto& [n, experts, top_k] : {std::tuple<int64_t, int64_t, int64_t>(1, 8, 2), {11, 40, 4}, {66, 5, 2}}) {
    const int64_t hidden = 72, ffn = 24;
    const ExpertLayout layout(hidden, ffn, DType::kBF16);
    std::vector<std::vector<std::byte>> blobs;
    for (int64_t e = 0; e < experts; ++e)
      blobs.push_back(::moestro::test::write_expert_blob(
          layout, ExpertMatrices{hidden, ffn, random_.normal(ffn * hidden, 0.2f), random_.normal(ffn * hidden, 0.2f),
                                 random_.normal(ffn * hidden, 0.2f)}));
    const auto x = random_.normal(n * hidden), norm = random_.normal(hidden);
    const auto router = store_weight(random_.normal(experts * hidden), DType::kF32, experts, hidden);
    auto normed = nan(n * hidden), logits = nan(n * experts), weights = nan(n * top_k), rows = nan(n * top_k * hidden),
         want = rows;
    std::vector<int32_t> ids(weights.size(), -7);
    ops_->route_and_compute(
        {x.data(), n, hidden, norm.data(), 1e-5f, normed.data(), router.weight, nullptr, logits.data()},
        {.experts = experts, .top_k = top_k}, ids.data(), weights.data(),
        {.layout = layout, .n = n, .experts = experts, .top_k = top_k, .out = rows.data()}, blobs);
    ops_->experts({.layout = layout, .ids = ids.data(), .n = n, .experts = experts, .top_k = top_k, .x = normed.data(),
                   .out = want.data()},
                  blobs);
    expect_equal(rows, want, std::to_string(n) + " tokens");
  }
}

TEST_F(Fused, TheStreamAfterABlockIsThatOfCombineGuardAndNorm) {
  struct Case {
    int64_t n, hidden, top_k;
    bool added, gated, norms, centred = false;
  };
  for (const Case& c : {Case{1, 64, 2, false, false, true}, Case{3, 4096, 8, true, false, true},
                        Case{70, 37, 3, true, true, true}, Case{2, 300, 5, false, false, false},
                        Case{2, 9000, 1, true, true, true}, Case{9, 256, 0, true, false, true},
                        Case{3, 4096, 8, true, false, true, true}, Case{70, 37, 3, true, true, true, true},
                        Case{9, 256, 0, false, false, true, true}}) {
    const auto base = random_.normal(c.n * c.hidden), rows = random_.normal(c.n * c.top_k * c.hidden),
               weights = random_.normal(c.n * c.top_k), added = random_.normal(c.n * c.hidden),
               logit = random_.normal(c.n), norm = random_.normal(c.hidden), norm_bias = random_.normal(c.hidden);
    auto want = base;
    want[static_cast<size_t>((c.n - 1) * c.hidden)] = c.n > 1 ? INFINITY : want[0];
    const auto broken = want;
    std::vector<int32_t> bad(static_cast<size_t>(c.n), -1), want_bad = bad;
    if (c.top_k > 0) ops_->combine(rows.data(), weights.data(), c.n, c.top_k, c.hidden, want.data());
    if (c.added) ops_->add_scaled(added.data(), c.gated ? logit.data() : nullptr, c.n, c.hidden, want.data());
    ops_->guard(want.data(), c.n, c.hidden, 5, want_bad.data());
    auto normed = nan(c.n * c.hidden), want_normed = normed;
    if (c.centred)
      ops_->layer_norm(want.data(), c.n, c.hidden, norm.data(), norm_bias.data(), 1e-5f, want_normed.data());
    else if (c.norms) ops_->rms_norm(want.data(), c.n, c.hidden, norm.data(), 1e-5f, want_normed.data());
    for (const bool in_place : {false, true}) {
      auto y = in_place ? broken : nan(c.n * c.hidden);
      std::fill(bad.begin(), bad.end(), -1);
      MoestroCudaResidual work{};
      work.n = c.n, work.hidden = c.hidden;
      work.base = in_place ? y.data() : broken.data(), work.y = y.data();
      if (c.top_k > 0) work.rows = rows.data(), work.weights = weights.data(), work.top_k = c.top_k;
      if (c.added) work.added = added.data(), work.added_logit = c.gated ? logit.data() : nullptr;
      work.bad_layer = bad.data(), work.layer = 5;
      if (c.norms) work.norm = norm.data(), work.eps = 1e-5f, work.normed = normed.data();
      if (c.centred) work.norm_bias = norm_bias.data(), work.centred = 1;
      ops_->residual(work);
      const std::string what = std::to_string(c.n) + " rows of " + std::to_string(c.hidden);
      EXPECT_EQ(bad, want_bad) << what;
      expect_equal(y, want, what);
      if (c.norms) expect_equal(normed, want_normed, what + ", normed");
    }
  }
}

}  // namespace
}  // namespace moestro::kernels::test

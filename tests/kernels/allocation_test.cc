// After warm-up, no operation allocates.

#include "common/machine/numa_pages.h"
#include "tests/kernels/counted_allocations.h"
#include "tests/kernels/expert_blob.h"
#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using ::moestro::test::allocations;

TEST(AllocationTest, NoneAfterWarmUp) {
  const auto ops = cpu_ops(best_isa(), 2);
  Random random;
  const int64_t hidden = 320, n = 40, top_k = 2;
  const ExpertLayout layout(hidden, 200, DType::kBF16);
  const auto blob = ::moestro::test::write_expert_blob(
      layout,
      {hidden, 200, random.normal(hidden * 200), random.normal(hidden * 200), random.normal(hidden * 200)});
  const auto w = store_weight(random.normal(hidden * hidden), DType::kBF16, hidden, hidden);
  const AttentionShape shape{5, 1, 64, 0, 0.125f};
  std::vector<uint32_t> blocks{0, 1, 2, 3};
  std::vector<float> cache(static_cast<size_t>(4 * kv_block_bytes(shape, DType::kF32)) / 4),
      x = random.normal(n * hidden), y(x), rows(static_cast<size_t>(n * top_k * hidden)),
      weights(static_cast<size_t>(n * top_k));
  std::vector<int32_t> ids(weights.size());
  std::vector<RoutedRow> routed;
  for (int32_t t = 0; t < n; ++t) routed.push_back({t, t % 2});
  const AttentionSequence sequence{0, n, 0, blocks};
  const KvView view{cache.data(), DType::kF32, 4};
  const RouterSpec grouped{.experts = 16,
                           .top_k = top_k,
                           .scores = RouterSpec::Scores::kSigmoid,
                           .bias = x.data(),
                           .groups = 4,
                           .groups_kept = 2};
  const LatentShape latent{.heads = 4, .kv_rank = 32, .nope_dim = 40, .rope_dim = 40, .value_dim = 40, .scale = 0.1f};
  LatentShape expanded = latent;
  expanded.form = LatentShape::Form::kExpanded;
  const auto kv_b = store_weight(random.normal(320 * 32), DType::kBF16, 320, 32);
  const RouterSpec mixer{
      .experts = 16, .top_k = 2, .scores = RouterSpec::Scores::kSparseMixer, .jitter = 0.01f};
  const DeltaShape delta{.key_heads = 2, .value_heads = 4, .key_dim = 32, .value_dim = 48, .conv = 4};
  std::vector<float> states(static_cast<size_t>(delta_state_floats(delta)));
  const std::vector<float> conv = random.normal(delta.channels() * delta.conv);
  const StateWrite end{n, 0};
  const AttentionSequence stated{.tokens = n, .states = {&end, 1}};
  const auto step = [&] {
    ops->gated_delta(delta, {&stated, 1},
                     {x.data(), y.data(), rows.data(), x.data(), x.data(), conv.data(), x.data(), x.data()},
                     states.data(), y.data());
    ops->sigmoid_mul(y.data(), rows.data(), n * hidden);
    for (const LatentShape& form : {latent, expanded}) {
      ops->latent_write(form, {&sequence, 1}, x.data(), x.data(), 1e-6f, x.data(), y.data(), view);
      ops->latent_attention(form, {&sequence, 1}, x.data(), x.data(), x.data(), kv_b.weight, view, y.data());
    }
    ops->rms_norm(x.data(), n, hidden, x.data(), 1e-5f, y.data());
    ops->layer_norm(y.data(), n, hidden, x.data(), nullptr, 1e-5f, y.data());
    ops->sum_squares(y.data(), n, hidden, rows.data());
    ops->matmul(y.data(), n, w.weight, nullptr, x.data());
    ops->kv_write(shape, {&sequence, 1}, x.data(), y.data(), view);
    ops->attention(shape, {&sequence, 1}, x.data(), nullptr, view, y.data());
    ops->router_top_k(x.data(), n, {.experts = 16, .top_k = top_k, .normalise = true}, ids.data(), weights.data());
    ops->router_top_k(x.data(), n, grouped, ids.data(), weights.data());
    ops->router_top_k(x.data(), n, mixer, ids.data(), weights.data());
    ops->expert_ffn(layout, blob.data(), y.data(), routed, top_k, rows.data());
    ops->combine(rows.data(), weights.data(), n, top_k, hidden, y.data());
  };
  const int64_t before = allocations.load();
  step();
  EXPECT_GT(allocations.load(), before) << "the first step cannot do without";
  const int64_t warm = allocations.load();
  for (int round = 0; round < 100; ++round) step();
  EXPECT_EQ(allocations.load(), warm);
}

TEST(AllocationTest, NoneAfterWarmUpInAnExpertOfSeveralTilesOverSeveralNodes) {
  const auto ops = make_cpu_ops({.threads = 3, .deterministic = false, .isa = best_isa(), .nodes = {0, 1, 0}});
  Random random;
  const int64_t hidden = 512;
  for (const DType dtype : {DType::kBF16, DType::kInt8, DType::kBF16In12}) {
    const ExpertLayout layout(hidden, 1700, dtype);
    ASSERT_GT(layout.tiles(), 2);
    const auto blob = ::moestro::test::write_expert_blob(
        layout,
        {hidden, 1700, random.normal(hidden * 1700), random.normal(hidden * 1700), random.normal(hidden * 1700)});
    ops->set_weight_nodes(machine::NodeMap(
        blob, std::vector<int16_t>((blob.size() + machine::kNodePieceBytes - 1) / machine::kNodePieceBytes, 1)));
    const auto x = random.normal(3 * hidden);
    const std::vector<RoutedRow> routed{{0, 0}, {1, 0}, {2, 0}};
    std::vector<float> rows(static_cast<size_t>(3 * hidden));
    const auto step = [&] {
      for (const size_t n : {3, 1})
        ops->expert_ffn(layout, blob.data(), x.data(), std::span(routed).first(n), 1, rows.data());
    };
    step();
    const int64_t warm = allocations.load();
    for (int round = 0; round < 100; ++round) step();
    EXPECT_EQ(allocations.load(), warm) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace moestro::kernels::test

// Sizes against figures computed by hand, against the kernels' cache, and the formula of distinct experts against
// drawing them.

#include <gmock/gmock.h>

#include <random>
#include <set>

#include "kernels/ops.h"
#include "tests/planner/planned_models.h"

namespace moestro::planner {
namespace {

TEST(ModelSizes, OfMixtral8x7B) {
  const ModelSizes sizes = mixtral_sizes();
  EXPECT_EQ(sizes.expert_bytes, 3u * 4096 * 14336 * 2);
  EXPECT_EQ(sizes.expert_parameters, 3.0 * 4096 * 14336);
  EXPECT_EQ(sizes.all_experts(), 32 * 8);
  EXPECT_EQ(sizes.kv_bytes_per_token(), 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(sizes.layers[0].attention_parameters, 4096.0 * (4096 + 1024 + 1024 + 4096));
  EXPECT_EQ(sizes.layers[0].router_parameters, 4096.0 * 8);
  EXPECT_EQ(sizes.head_parameters, 32000.0 * 4096);
  // Embedding and head; in each layer q, k, v, o, the router and two norms; the last norm.
  const uint64_t weights = 2ull * 32000 * 4096 + 32ull * (4096 * 10240 + 8 * 4096 + 2 * 4096) + 4096;
  EXPECT_EQ(sizes.dense_bytes, 2 * weights);
  const double total = static_cast<double>(sizes.experts_bytes() + sizes.dense_bytes) / 2;
  EXPECT_NEAR(total, 46.7e9, 0.05e9) << "the published number of parameters";
}

TEST(ModelSizes, QuantisedWeightsHaveScales) {
  const ModelSizes int8 = mixtral_sizes({DType::kInt8, DType::kInt8, DType::kInt8});
  EXPECT_EQ(int8.expert_bytes, 3ull * 4096 * 14336 * 66 / 64) << "a scale of two bytes for 64 weights";
  const uint64_t matrices = 32000ull * 4096 + 32ull * 4096 * 10240;
  const uint64_t rest = 32000ull * 4096 + 32ull * (8 * 4096 + 2 * 4096) + 4096;
  EXPECT_EQ(int8.dense_bytes, matrices * 66 / 64 + 2 * rest) << "embedding, routers and norms stay bf16";
  EXPECT_EQ(int8.kv_bytes_per_token(), 2 * 32 * 8 * (128 + 4));
}

TEST(ModelSizes, TheCacheIsTheKernels) {
  const model::ModelDescription model = mixtral_8x7b();
  const kernels::AttentionShape shape{.heads = 32, .kv_heads = 8, .head_dim = 128};
  static_assert(kKvTokensPerBlock == kernels::kKvBlockTokens);
  for (const DType kv : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    const auto sizes = model_sizes(model, {.kv = kv});
    ASSERT_TRUE(sizes.is_ok());
    EXPECT_EQ(sizes->kv_block_bytes, 32u * static_cast<uint64_t>(kernels::kv_block_bytes(shape, kv)));
  }
}

TEST(ModelSizes, KvIsOfWholeBlocks) {
  const ModelSizes sizes = mixtral_sizes();
  EXPECT_EQ(sizes.kv_bytes(3, 17), 3 * 2 * sizes.kv_block_bytes);
  EXPECT_EQ(sizes.kv_bytes(1, 16), sizes.kv_block_bytes);
}

TEST(ModelSizes, ACacheOfFourBitsIsRefused) {
  const auto sizes = model_sizes(mixtral_8x7b(), {.kv = DType::kInt4});
  ASSERT_FALSE(sizes.is_ok());
  EXPECT_THAT(sizes.status().message(), testing::HasSubstr("int4"));
}

TEST(DistinctExperts, AsDrawn) {
  std::mt19937_64 random(11);
  const struct { int experts, top_k, rows; } cases[] = {{8, 2, 1}, {8, 2, 4}, {128, 8, 16}, {64, 6, 100}};
  for (const auto& c : cases) {
    constexpr int kRounds = 2000;
    double sum = 0;
    for (int round = 0; round < kRounds; ++round) {
      std::set<int> used;
      for (int row = 0; row < c.rows; ++row) {
        std::set<int> chosen;
        while (static_cast<int>(chosen.size()) < c.top_k) chosen.insert(static_cast<int>(random() % c.experts));
        used.insert(chosen.begin(), chosen.end());
      }
      sum += static_cast<double>(used.size());
    }
    EXPECT_NEAR(distinct_experts(c.experts, c.top_k, c.rows), sum / kRounds, 0.01 * c.experts)
        << c.experts << " experts, " << c.rows << " rows";
  }
}

TEST(DistinctExperts, AtTheEnds) {
  EXPECT_EQ(distinct_experts(8, 2, 0), 0);
  EXPECT_DOUBLE_EQ(distinct_experts(8, 2, 1), 2);
  EXPECT_EQ(distinct_experts(8, 8, 1), 8);
  EXPECT_NEAR(distinct_experts(8, 2, 1000), 8, 1e-9);
}

}  // namespace
}  // namespace moestro::planner

// Latent attention in the engine: what its cache takes, and what is refused by name.

#include <gtest/gtest.h>

#include <cmath>

#include "common/model/mixer.h"
#include "services/worker/engine/sequence_mixer.h"
#include "services/worker/engine/visible_positions.h"
#include "store/resident_source.h"
#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

std::vector<Fixture> with_latents() {
  std::vector<Fixture> all = fixtures();
  std::erase_if(all, [](const Fixture& fixture) { return !fixture.has_latents(); });
  return all;
}

class LatentEngineTest : public ::testing::TestWithParam<Fixture> {};
INSTANTIATE_TEST_SUITE_P(Fixtures, LatentEngineTest, ::testing::ValuesIn(with_latents()),
                         [](const auto& param) { return param.param.name; });

TEST_P(LatentEngineTest, TheCacheHoldsALatentAndAKey) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    BenchOptions options;
    options.engine.kv_dtype = dtype;
    options.engine.kv_tokens = 160;
    Bench bench(GetParam(), options);
    const model::ModelSpec& spec = bench.engine().spec();
    int64_t expected = 0;
    for (const model::LayerSpec& layer : spec.layers) {
      const model::LatentSpec& latent = *layer.latent;
      const int64_t scales = dtype == DType::kInt8 ? 2 * 4 : 0;
      expected += round_up(16 * ((latent.kv_rank + latent.rope_dim) * dtype_bytes(dtype) + scales), 64);
      EXPECT_EQ(model::kv_block_bytes(layer.kv, dtype), kernels::latent_block_bytes(latent_shape(latent), dtype));
    }
    EXPECT_EQ(bench.engine().kv_bytes(), 10 * expected) << dtype_name(dtype);
  }
}

/// Without determinism a prompt is computed with the keys and values of every head, a decode with latents.
TEST_P(LatentEngineTest, PromptsAndDecodesAgreeWithTheReferenceInEveryMode) {
  for (const DType kv : {DType::kF32, DType::kBF16}) {
    BenchOptions options;
    options.deterministic = false;
    options.threads = 2;
    options.engine.kv_dtype = kv;
    for (const size_t chunk : {size_t{1000}, size_t{1}}) {
      Bench bench(GetParam(), options);
      double sum = 0, count = 0;
      for (const Reference& r : GetParam().prompts("f32")) {
        const auto scores = bench.score({r.ids}, chunk).front();
        ASSERT_EQ(scores.size(), r.logprobs.size());
        for (size_t i = 0; i < scores.size(); ++i) {
          const double error = std::abs(static_cast<double>(scores[i]) - r.logprobs[i]);
          if (kv == DType::kF32) ASSERT_LE(error, 1e-3) << "position " << i;
          sum += error, ++count;
        }
      }
      EXPECT_LT(sum / count, 5e-2) << dtype_name(kv) << ", chunks of " << chunk;
    }
  }
}

TEST_P(LatentEngineTest, WindowsAreRefusedByName) {
  const auto source = store::ResidentSource::open(packed(GetParam(), DType::kF32, DType::kF32));
  ASSERT_TRUE(source.is_ok());
  const auto description =
      model::describe_model((*source)->manifest().config_json, (*source)->manifest().generation_config_json);
  ASSERT_TRUE(description.is_ok());
  const auto ops = kernels::make_reference_ops();
  EXPECT_TRUE(check_mixers(description->spec, {}, *ops).is_ok());
  const Status refused = check_mixers(description->spec, {.sinks = 2, .window = 8}, *ops);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_NE(refused.message().find("--kv-window with latent attention"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace moestro::engine::testing

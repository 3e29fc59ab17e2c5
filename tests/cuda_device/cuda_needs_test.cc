// What an engine takes of a device's memory is what was reckoned before it was made.

#include "services/worker/cuda/cuda_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "kernels/cuda/emulated/functions.h"
#include "store/resident_source.h"
#include "services/worker/cuda/model_on_gpu.h"
#include "store/pack/manifest.h"
#include "tests/device/device_bench.h"

namespace moestro::cuda {
namespace {

using device::testing::DeviceBench;
using engine::testing::Fixture;

uint64_t taken = 0;  ///< by all that was allocated and not given back, at most
std::map<void*, uint64_t> allocated;

/// The emulator's functions, counting.
const MoestroCudaFunctions& counting_functions() {
  static MoestroCudaFunctions table = kernels::cuda::emulated::functions();
  table.allocate = [](uint64_t bytes, void** memory) {
    const MoestroCudaResult result = kernels::cuda::emulated::functions().allocate(bytes, memory);
    if (result == 0) allocated[*memory] = bytes, taken += bytes;
    return result;
  };
  table.release = [](void* memory) {
    taken -= allocated[memory];
    allocated.erase(memory);
    return kernels::cuda::emulated::functions().release(memory);
  };
  return table;
}

class CudaNeedsTest : public ::testing::TestWithParam<Fixture> {};
INSTANTIATE_TEST_SUITE_P(Fixtures, CudaNeedsTest,
                         ::testing::ValuesIn(device::testing::on_gpus(engine::testing::fixtures())),
                         [](const auto& param) { return param.param.name; });

TEST(CudaNeeds, TheGatedDeltaRuleIsRefusedByName) {
  int refused = 0;
  for (const Fixture& fixture : engine::testing::fixtures()) {
    if (!fixture.has_states()) continue;
    const auto source = store::ResidentSource::open(engine::testing::packed(fixture, DType::kBF16, DType::kBF16));
    ASSERT_TRUE(source.is_ok()) << source.status().message();
    const auto needs = device_needs((*source)->manifest(), {}, DType::kBF16);
    ASSERT_FALSE(needs.is_ok()) << fixture.name;
    const std::string& said = needs.status().message();
    EXPECT_TRUE(said.find("the gated delta rule") != std::string::npos ||
                said.find("attention with an output gate") != std::string::npos)
        << said;
    ++refused;
  }
  EXPECT_GE(refused, 4);
}

/// Of small arrays, which no formula has.
constexpr uint64_t kAllowance = uint64_t{8} << 20;

TEST_P(CudaNeedsTest, AreWhatIsTaken) {
  for (const int64_t step_tokens : {8, 300}) {
    engine::testing::BenchOptions options{.experts = DType::kBF16, .dense = DType::kBF16};
    options.engine.step_tokens_max = step_tokens;
    options.engine.kv_tokens = 2048;
    taken = 0;
    DeviceBench bench(GetParam(), {.slots = 2, .predictor = "gate", .engine = options, .cuda = &counting_functions()});
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < step_tokens; ++i) prompt.push_back(static_cast<TokenId>(i % 50));
    bench.bench().add(1, prompt).sample = true;
    ASSERT_TRUE(bench.bench().run().is_ok());

    const auto needs = device_needs(bench.device().manifest(), options.engine, DType::kBF16);
    ASSERT_TRUE(needs.is_ok()) << needs.status().message();
    const uint64_t planned = needs->dense_bytes + needs->kv_bytes + needs->workspace_bytes,
                   of_slots = 2 * needs->expert_bytes;
    const auto off = static_cast<int64_t>(taken - of_slots) - static_cast<int64_t>(planned - kAllowance);
    EXPECT_LE(std::abs(off), int64_t{64} << 10) << step_tokens << " tokens: the small arrays are all that may differ";
    EXPECT_EQ(needs->experts,
              static_cast<uint64_t>(bench.device().layers()) * static_cast<uint64_t>(bench.device().experts()));
  }
}

// Each by its name, and by the same check before anything is taken and before a pass is made.
TEST(ModelsOnGpus, SettingsThatKernelsLackAreRefused) {
  std::map<std::string, std::string> said;
  for (const Fixture& f : engine::testing::fixtures()) {
    const auto packed = store::open_pack(engine::testing::packed(f, DType::kF32, DType::kF32));
    ASSERT_TRUE(packed);
    const auto needs = device_needs(*packed, {.model = "m", .kv_tokens = 256}, DType::kF32);
    if (!needs) {
      EXPECT_EQ(needs.status().code(), Code::kUnsupported);
      said[f.name] = needs.status().message();
    }
  }
  using ::testing::HasSubstr;
  EXPECT_THAT(said["gpt_oss_yarn"], HasSubstr("GptOssForCausalLM on --device cuda: experts with a clamped SwiGLU"));
  EXPECT_THAT(said["phimoe_short"], HasSubstr("LayerNorm is not there yet"));
  EXPECT_THAT(said["granitemoe_factors"], HasSubstr("a factor of embedding, residual stream or logits"));
  EXPECT_THAT(said["llama4_scout"], HasSubstr("chunked attention"));
  EXPECT_FALSE(said.contains("ernie4_5_moe_shared")) << said["ernie4_5_moe_shared"];
  EXPECT_FALSE(said.contains("deepseek_v3_yarn")) << said["deepseek_v3_yarn"];
  model::ModelSpec spec;
  spec.layers.resize(1);
  EXPECT_TRUE(check_on_gpu(spec).is_ok());
  for (const model::LatentSpec& wide :
       {model::LatentSpec{.kv_rank = 520}, {.rope_dim = 66}, {.nope_dim = 513}, {.value_dim = 513}}) {
    spec.layers[0].latent = wide;
    EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("latent attention (MLA) wider than"));
  }
  spec.layers[0].latent = model::LatentSpec{.kv_rank = 512, .nope_dim = 512, .rope_dim = 64, .value_dim = 512};
  EXPECT_TRUE(check_on_gpu(spec).is_ok());
  spec.layers[0].latent.reset();
  spec.layers[0].moe_index = MoeLayerId(0);
  spec.layers[0].moe.expert.bias = true;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("experts with biases"));
  spec.layers[0].moe.expert.activation = model::Activation::kClampedSwiglu;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("a clamped SwiGLU"));
  spec.layers[0].moe.expert = {};
  spec.layers[0].moe.router.scores = model::RouterSpec::Scores::kSparseMixer;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("SparseMixer"));
  spec.layers[0].moe.router = {.on_input = true};
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("weights multiply the experts' inputs"));
  spec.layers[0].moe.before_attention = true;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("a layer's input before attention"));
  spec.layers[0].attention.temperature.emplace();
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("queries scaled by their position"));
  spec.layers[0].attention.qk_norm = model::AttentionSpec::QkNorm::kRotatedHeads;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("a norm of heads after"));
  spec.layers[0].attention.rope = false;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("without RoPE"));
  spec.head_bias = true;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("a bias of the head"));
}

}  // namespace
}  // namespace moestro::cuda

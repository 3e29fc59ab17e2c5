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

store::Manifest manifest_of(const Fixture& fixture, DType experts, DType dense) {
  auto pack = store::open_pack(engine::testing::packed(fixture, experts, dense));
  MOESTRO_CHECK(pack.is_ok(), pack.status().message());
  return std::move(*pack);
}

size_t moe_layers(const store::Manifest& manifest) {
  const auto described = model::describe_model(manifest.config_json, "");
  MOESTRO_CHECK(described.is_ok(), described.status().message());
  return static_cast<size_t>(described->spec.moe_layers());
}

TEST(CudaNeeds, FormatsWithoutKernelsAreRefusedByName) {
  const Fixture& fixture = engine::testing::any_fixture();
  const auto refusal = [](const store::Manifest& manifest, DType precision) {
    const auto needs = device_needs(manifest, {.model = "m", .kv_tokens = 256}, precision);
    return needs.is_ok() ? std::string() : needs.status().message();
  };
  using ::testing::HasSubstr;
  store::Manifest manifest = manifest_of(fixture, DType::kBF16, DType::kBF16);
  EXPECT_EQ(refusal(manifest, DType::kBF16), "");
  EXPECT_THAT(refusal(manifest, DType::kBF16In12), HasSubstr("experts as bf16-12bit on this device"));
  EXPECT_THAT(check_format("experts", DType::kInt2).message(), HasSubstr("experts as int2 on this device"));
  using kernels::cuda::CudaOps;
  EXPECT_FALSE(CudaOps::computes_with(ExpertFormats(DType::kInt2, DType::kInt2, DType::kQ4K)));
  EXPECT_FALSE(CudaOps::computes_with(ExpertFormats(DType::kBF16, DType::kBF16, DType::kInt2)));
  EXPECT_TRUE(CudaOps::computes_with(ExpertFormats(DType::kQ8_0, DType::kQ8_0, DType::kF16)));
  manifest.expert_formats.assign(moe_layers(manifest), DType::kBF16);
  ASSERT_GT(manifest.expert_formats.size(), 1u);
  EXPECT_EQ(refusal(manifest, DType::kMixed), "");
  manifest.expert_formats[1] = ExpertFormats(DType::kBF16, DType::kBF16, DType::kF16);
  EXPECT_THAT(refusal(manifest, DType::kMixed),
              HasSubstr("experts with gate as bf16, up as bf16 and down as f16 (MoE layer 1) on this device"));
  // Next to blocks, kernels read halves 32 at a time; the experts' down has rows of fewer.
  manifest.expert_formats[1] = ExpertFormats(DType::kQ8_0, DType::kQ8_0, DType::kF16);
  EXPECT_THAT(refusal(manifest, DType::kMixed), HasSubstr("down as f16 (MoE layer 1) on this device"));
  const auto matrix = std::ranges::find_if(manifest.tensors, [](const store::PackedTensor& t) {
    return t.shape.size() == 2 && t.name.ends_with(".attn.o.weight");
  });
  ASSERT_NE(matrix, manifest.tensors.end());
  matrix->dtype = DType::kBF16In12;
  EXPECT_THAT(refusal(manifest, DType::kBF16), HasSubstr("tensor '" + matrix->name + "' as bf16-12bit"));
}

/// Slots are as long as the longest expert of any layer.
TEST(CudaNeeds, OfLayersThatDifferAreThoseOfTheLongestExpert) {
  store::Manifest manifest = manifest_of(engine::testing::any_fixture(), DType::kBF16, DType::kBF16);
  const auto slot_bytes = [&](DType precision) {
    const auto needs = device_needs(manifest, {.model = "m", .kv_tokens = 256}, precision);
    MOESTRO_CHECK(needs.is_ok(), needs.status().message());
    return needs->expert_bytes;
  };
  manifest.expert_formats.assign(moe_layers(manifest), DType::kF16);
  EXPECT_EQ(slot_bytes(DType::kMixed), slot_bytes(DType::kF16));
  manifest.expert_formats.back() = DType::kF32;
  EXPECT_EQ(slot_bytes(DType::kMixed), slot_bytes(DType::kF32));
  EXPECT_GT(slot_bytes(DType::kF32), slot_bytes(DType::kF16));
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

/// The same of places for layers that take turns, and of those that stay.
TEST(CudaNeeds, OfDenseWeightsInTurnAreWhatIsTaken) {
  for (const Fixture& fixture : device::testing::one_of_each_gpu_layer()) {
    engine::testing::BenchOptions options{.experts = DType::kBF16, .dense = DType::kBF16};
    options.engine.step_tokens_max = 8, options.engine.kv_tokens = 2048;
    taken = 0;
    DeviceBench bench(fixture, {.slots = 2, .predictor = "gate", .dense_places = 2, .half_of_dense = true,
                                .engine = options, .cuda = &counting_functions()});
    bench.bench().add(1, {1, 2, 3}).sample = true;
    ASSERT_TRUE(bench.bench().run().is_ok());
    const auto needs = device_needs(bench.device().manifest(), options.engine, DType::kBF16);
    ASSERT_TRUE(needs.is_ok()) << needs.status().message();
    ASSERT_EQ(needs->dense_layers.size(), store::dense_layers(bench.device().manifest()).size());
    uint64_t streamed = 0, longest = 0;
    for (const uint32_t blob : bench.device().streamed()) {
      streamed += bench.device().manifest().blobs[blob].length;
      longest = std::max(longest, bench.device().manifest().blobs[blob].length);
    }
    const uint64_t places = std::min<uint64_t>(2, bench.device().streamed().size());
    const uint64_t planned =
        needs->dense_bytes - streamed + places * longest + needs->kv_bytes + needs->workspace_bytes;
    const auto off = static_cast<int64_t>(taken - 2 * needs->expert_bytes) - static_cast<int64_t>(planned - kAllowance);
    EXPECT_LE(std::abs(off), int64_t{64} << 10) << fixture.name;
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
  for (const char* name : {"gpt_oss_yarn", "phimoe_short", "dbrx_clip", "granitemoe_factors", "llama4_scout",
                           "arctic_parallel", "ernie4_5_moe_shared", "deepseek_v3_yarn"})
    EXPECT_FALSE(said.contains(name)) << said[name];
  model::ModelSpec spec;
  spec.layers.resize(1);
  spec.layers[0].stack = model::LayerSpec::Stack::kEncoder;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("encoder-decoder models are not supported yet"));
  spec.layers[0].stack = model::LayerSpec::Stack::kDecoder;
  EXPECT_TRUE(check_on_gpu(spec).is_ok());
  for (const model::LatentSpec& wide :
       {model::LatentSpec{.kv_rank = 520}, {.rope_dim = 66}, {.nope_dim = 513}, {.value_dim = 513}}) {
    spec.layers[0].latent = wide;
    EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("latent attention (MLA) wider than"));
  }
  spec.layers[0].latent = model::LatentSpec{.kv_rank = 512, .nope_dim = 512, .rope_dim = 64, .value_dim = 512};
  EXPECT_TRUE(check_on_gpu(spec).is_ok());
  spec.layers[0].latent.reset();
  spec.layers[0].delta.emplace().conv = 17;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("convolution sees more than 16 positions"));
  spec.layers[0].delta->key_dim = 129;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("a gated delta rule with keys of more than 128 numbers"));
  spec.layers[0].delta->key_dim = 128, spec.layers[0].delta->conv = 16;
  spec.layers[0].moe.experts = 2000;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("more than 1024 experts is not there yet (layer 0)"));
  spec.layers[0].attention.head_dim = 512;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("heads of more than 256 numbers"));
  spec.hidden = 20000;
  EXPECT_THAT(check_on_gpu(spec).message(), HasSubstr("a hidden width of more than 16384"));
}

}  // namespace
}  // namespace moestro::cuda

// Models packed from GGUF files and quantised checkpoints, with the formats as they are in the file, on a CUDA device
// (emulated, or real where the plugin is): transformers' log-probabilities over the dequantised weights, and the CPU's.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "services/worker/cuda/model_on_gpu.h"
#include "tests/cuda/cuda_under_test.h"
#include "tests/device/device_bench.h"

namespace moestro::engine::testing {
namespace {

using device::testing::DeviceBench;
using device::testing::DeviceBenchOptions;

/// Native formats, and a device that holds so many experts.
DeviceBenchOptions on_cuda(int32_t slots, bool deterministic) {
  return {.slots = slots,
          .engine = {.experts = DType::kMixed, .dense = DType::kMixed, .deterministic = deterministic},
          .cuda = &kernels::test::functions_under_test()};
}
constexpr int32_t kAll = 1 << 20;

class NativeFormatsOnCuda : public ::testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(0);
    const auto pack = store::open_pack(packed(GetParam(), DType::kMixed, DType::kMixed));
    ASSERT_TRUE(pack.is_ok()) << pack.status().message();
    const auto described = model::describe_model(pack->config_json, pack->generation_config_json);
    ASSERT_TRUE(described.is_ok()) << described.status().message();
    if (const Status can = cuda::check_on_gpu(described->spec); !can.is_ok()) GTEST_SKIP() << can.message();
  }
  Reference prompt() const { return GetParam().prompts("f32").at(2); }
};
INSTANTIATE_TEST_SUITE_P(Files, NativeFormatsOnCuda, ::testing::ValuesIn(native_fixtures()),
                         [](const ::testing::TestParamInfo<Fixture>& param) {
                           std::string name = param.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST_P(NativeFormatsOnCuda, LogProbabilitiesAreThoseOfTheDequantisedWeights) {
  const Reference r = prompt();
  const auto on_cpu = Bench(GetParam(), on_cuda(kAll, true).engine).score({r.ids}, 7).front();
  DeviceBench device(GetParam(), on_cuda(kAll, true));
  const auto scores = device.bench().score({r.ids}, 7).front();
  ASSERT_EQ(scores.size(), r.logprobs.size());
  ASSERT_EQ(scores.size(), on_cpu.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    ASSERT_NEAR(scores[i], r.logprobs[i], 1e-3) << "position " << i;
    ASSERT_NEAR(scores[i], on_cpu[i], 1e-3) << "position " << i;
  }
}

/// Weights and activations are rounded to bf16, so a token may go to another expert where two are nearly equal.
TEST_P(NativeFormatsOnCuda, TensorCoresAreClose) {
  const Reference r = prompt();
  DeviceBench device(GetParam(), on_cuda(3, false));
  const auto scores = device.bench().score({r.ids}, 30).front();
  ASSERT_EQ(scores.size(), r.logprobs.size());
  double error = 0;
  for (size_t i = 0; i < scores.size(); ++i) error += std::abs(static_cast<double>(scores[i]) - r.logprobs[i]);
  EXPECT_LT(error / static_cast<double>(scores.size()), 0.2);
}

TEST_P(NativeFormatsOnCuda, GreedyTokensAreTheReferences) {
  const Reference r = prompt();
  DeviceBench device(GetParam(), on_cuda(3, true));
  EXPECT_EQ(device.bench().greedy(r.ids, static_cast<int>(r.greedy.size())), r.greedy);
}

/// Which files a GPU computes: a change of what is refused shows here.
TEST(NativeFormatsOnCudaOf, TheFixtures) {
  std::vector<std::string> refused;
  for (const Fixture& fixture : native_fixtures()) {
    const auto pack = store::open_pack(packed(fixture, DType::kMixed, DType::kMixed));
    ASSERT_TRUE(pack.is_ok());
    const auto described = model::describe_model(pack->config_json, pack->generation_config_json);
    ASSERT_TRUE(described.is_ok());
    if (const Status can = cuda::check_on_gpu(described->spec); !can.is_ok()) refused.push_back(can.message());
  }
  EXPECT_THAT(refused, ::testing::Each(::testing::HasSubstr("on --device cuda: ")));
  EXPECT_LE(refused.size(), 9u) << "of " << native_fixtures().size();
}

}  // namespace
}  // namespace moestro::engine::testing

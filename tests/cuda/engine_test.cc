// Whole models on the emulated CUDA kernels, through the engine: log-probabilities of Hugging Face transformers, and the CPU's tokens.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/cuda/emulated_ops.h"
#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

std::unique_ptr<kernels::Ops> emulated() { return kernels::test::emulated_ops(); }

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

class CudaEngineTest : public ::testing::TestWithParam<Fixture> {
 protected:
  Reference prompt() const { return GetParam().prompts("f32").front(); }
};
INSTANTIATE_TEST_SUITE_P(Fixtures, CudaEngineTest, ::testing::ValuesIn(fixtures()), fixture_name);

TEST_P(CudaEngineTest, LogProbabilitiesAreThoseOfTheReference) {
  const Reference r = prompt();
  Bench bench(GetParam(), {.make_ops = emulated});
  const auto scores = bench.score({r.ids}, 7).front();
  ASSERT_EQ(scores.size(), r.logprobs.size());
  for (size_t i = 0; i < scores.size(); ++i) ASSERT_NEAR(scores[i], r.logprobs[i], 1e-3) << "position " << i;
}

TEST_P(CudaEngineTest, GreedyTokensAreTheReferences) {
  const Reference r = prompt();
  Bench bench(GetParam(), {.make_ops = emulated});
  EXPECT_EQ(bench.greedy(r.ids, static_cast<int>(r.greedy.size())), r.greedy);
}

/// In deterministic mode both sides compute in f32 with the same weights and the same cache; they differ in the order of sums.
TEST_P(CudaEngineTest, QuantisedWeightsAndCachesGiveTheCpusLogProbabilities) {
  const Reference r = prompt();
  for (const DType experts : {DType::kBF16, DType::kInt8, DType::kInt4}) {
    const BenchOptions on_cpu{.experts = experts, .dense = DType::kBF16, .engine = {.model = "m", .kv_tokens = 4096, .kv_dtype = DType::kF16, .poison_kv = true}};
    BenchOptions on_cuda = on_cpu;
    on_cuda.make_ops = emulated;
    const auto want = Bench(GetParam(), on_cpu).score({r.ids}, r.ids.size()).front();
    const auto got = Bench(GetParam(), on_cuda).score({r.ids}, r.ids.size()).front();
    ASSERT_EQ(got.size(), want.size());
    // A number next to the middle of two roundings of the cache may be rounded either way.
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-3) << dtype_name(experts) << " position " << i;
  }
}

}  // namespace
}  // namespace moestro::engine::testing

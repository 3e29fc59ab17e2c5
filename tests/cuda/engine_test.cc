// Whole models on a CUDA device (emulated, or real where the plugin is), through the engine: log-probabilities of
// Hugging Face transformers, the CPU's tokens, and the same bits however many experts the device holds.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/cuda/cuda_under_test.h"
#include "tests/device/device_bench.h"
#include "tests/engine/moved_blocks.h"

namespace moestro::engine::testing {
namespace {

using device::testing::DeviceBench;
using device::testing::DeviceBenchOptions;
using device::testing::on_gpus;
using device::testing::one_of_each_gpu_layer;
constexpr int32_t kAll = 1 << 20;

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

DeviceBenchOptions on_cuda(int32_t slots, const std::string& predictor = "none", BenchOptions engine = {}) {
  return {.slots = slots,
          .predictor = predictor,
          .engine = std::move(engine),
          .cuda = &kernels::test::functions_under_test()};
}

class CudaEngineTest : public ::testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override { SKIP_WITHOUT(0); }
  Reference prompt() const { return GetParam().prompts("f32").at(2); }  ///< of 21 tokens
  /// Its first ones, for what is run for every family several times.
  std::vector<TokenId> few_tokens() const {
    std::vector<TokenId> ids = prompt().ids;
    ids.resize(13);
    return ids;
  }
};
INSTANTIATE_TEST_SUITE_P(Fixtures, CudaEngineTest, ::testing::ValuesIn(on_gpus(fixtures())), fixture_name);

/// Where experts and KV blocks lie, and when they are known to be there.
using CudaResidencyTest = CudaEngineTest;
INSTANTIATE_TEST_SUITE_P(Layers, CudaResidencyTest, ::testing::ValuesIn(one_of_each_gpu_layer()), fixture_name);

TEST_P(CudaEngineTest, LogProbabilitiesAreThoseOfTheReference) {
  const Reference r = prompt();
  DeviceBench device(GetParam(), on_cuda(kAll));
  const auto scores = device.bench().score({r.ids}, 7).front();
  ASSERT_GT(scores.size(), 1u);
  ASSERT_EQ(scores.size(), r.logprobs.size());
  for (size_t i = 0; i < scores.size(); ++i) ASSERT_NEAR(scores[i], r.logprobs[i], 1e-3) << "position " << i;
}

TEST_P(CudaEngineTest, GreedyTokensAreTheReferences) {
  Reference r = prompt();
  r.greedy.resize(12);  // the CPU's tests look at all of them
  DeviceBench device(GetParam(), on_cuda(3));
  EXPECT_EQ(device.bench().greedy(r.ids, static_cast<int>(r.greedy.size())), r.greedy);
}

/// In deterministic mode both sides compute in f32 with the same weights and the same cache; they differ in the order
/// of sums.
TEST_P(CudaEngineTest, QuantisedWeightsAndCachesGiveTheCpusLogProbabilities) {
  const std::vector<TokenId> ids = few_tokens();
  for (const DType experts : {DType::kBF16, DType::kInt8, DType::kInt4}) {
    const BenchOptions on_cpu{.experts = experts,
                              .dense = DType::kBF16,
                              .engine = {.model = "m", .kv_tokens = 4096, .kv_dtype = DType::kF16, .poison_kv = true}};
    const auto want = Bench(GetParam(), on_cpu).score({ids}, ids.size()).front();
    DeviceBench device(GetParam(), on_cuda(kAll, "none", on_cpu));
    const auto got = device.bench().score({ids}, ids.size()).front();
    ASSERT_EQ(got.size(), want.size());
    // A number next to the middle of two roundings of the cache may be rounded either way.
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 2e-3) << dtype_name(experts) << " position " << i;
  }
}

bool same(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

/// Two prompts in one batch, then one of them token by token.
std::vector<std::vector<float>> scores_of(Bench& bench, const Fixture& fixture) {
  const auto prompts = fixture.prompts("f32");
  auto scores = bench.score({prompts.at(1).ids, prompts.at(2).ids}, 9);
  scores.push_back(bench.score({prompts.at(1).ids}, 1).front());
  return scores;
}

std::vector<Fixture> with_latents() {
  std::vector<Fixture> all = fixtures();
  std::erase_if(all, [](const Fixture& fixture) { return !fixture.has_latents(); });
  return all;
}
using CudaLatentTest = CudaEngineTest;
INSTANTIATE_TEST_SUITE_P(Latents, CudaLatentTest, ::testing::ValuesIn(with_latents()), fixture_name);

DeviceBenchOptions with_cache(DType dtype, bool deterministic) {
  BenchOptions engine{.engine = {.model = "m", .kv_tokens = 512, .kv_dtype = dtype, .poison_kv = true}};
  engine.deterministic = deterministic;
  return on_cuda(kAll, "none", engine);
}

/// With --deterministic: as a whole, in chunks, token by token, and in a batch.
TEST_P(CudaLatentTest, ChunksAndCompanyChangeNoBit) {
  const std::vector<TokenId> ids = prompt().ids, other = GetParam().prompts("f32").at(1).ids;
  for (const DType cache : {DType::kF32, DType::kBF16, DType::kInt8}) {
    DeviceBench device(GetParam(), with_cache(cache, true));
    const auto want = device.bench().score({ids}, ids.size());
    for (const size_t chunk : {size_t{1}, size_t{5}})
      EXPECT_TRUE(same(device.bench().score({ids}, chunk), want)) << dtype_name(cache) << ", chunks of " << chunk;
    EXPECT_TRUE(same({device.bench().score({other, ids}, 9).back()}, want)) << dtype_name(cache) << ", in a batch";
  }
}

/// Without it prompts are computed on tensor cores, where shapes allow it.
TEST_P(CudaLatentTest, WithoutDeterminismTheErrorIsBounded) {
  const std::vector<TokenId> ids = prompt().ids;
  for (const DType cache : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8}) {
    const auto want = Bench(GetParam(), with_cache(cache, true).engine).score({ids}, ids.size()).front();
    for (const size_t chunk : {ids.size(), size_t{1}}) {
      DeviceBench device(GetParam(), with_cache(cache, false));
      const auto got = device.bench().score({ids}, chunk).front();
      ASSERT_EQ(got.size(), want.size());
      double sum = 0;
      for (size_t i = 0; i < got.size(); ++i) sum += std::abs(static_cast<double>(got[i]) - want[i]);
      EXPECT_LT(sum / static_cast<double>(got.size()), 2e-2) << dtype_name(cache) << ", chunks of " << chunk;
    }
  }
}

/// Ahead of the host where all is there, and waiting where it is not.
TEST_P(CudaResidencyTest, TheNumberOfSlotsAndThePredictorChangeNoBit) {
  DeviceBench all(GetParam(), on_cuda(kAll));
  const auto want = scores_of(all.bench(), GetParam());
  for (const int32_t slots : {1, 3, 9})
    for (const char* predictor : {"none", "gate"}) {
      DeviceBench few(GetParam(), on_cuda(slots, predictor));
      ASSERT_TRUE(same(want, scores_of(few.bench(), GetParam()))) << slots << " slots, prediction " << predictor;
      const tier::TierCounters counters = few.device().tier_counters();
      EXPECT_GT(counters.misses + counters.late + counters.prefetched, 0u);
    }
}

TEST_P(CudaResidencyTest, AModelThatFitsIsSoonThereAsAWhole) {
  DeviceBench device(GetParam(), on_cuda(kAll, "gate"));
  (void)scores_of(device.bench(), GetParam());
  for (int steps = 0; steps < 1000 && !device.device().holds_all(); ++steps)
    (void)device.bench().score({GetParam().prompts("f32").at(1).ids}, 1);
  ASSERT_TRUE(device.device().holds_all());
  const uint64_t rewinds = device.bench().device_work().rewinds;
  (void)scores_of(device.bench(), GetParam());
  EXPECT_EQ(device.bench().device_work().rewinds, rewinds) << "where all is there nothing is queued twice";
}

/// All of its layers are queued before their routes are known, so their copies are looked at before that.
TEST_P(CudaResidencyTest, CopiesOfWhatWasFoundWrongAreMadeAgainBeforeTheyAreUsed) {
  DeviceBenchOptions options = on_cuda(kAll, "gate");
  options.late_host = true;
  DeviceBench device(GetParam(), options);
  const auto want = scores_of(device.bench(), GetParam());
  for (TokenId token = 1; token < 64 && !device.device().holds_all(); ++token)  // others' experts are not at hand
    (void)device.bench().score({std::vector<TokenId>(8, token)}, 8);
  ASSERT_TRUE(device.device().holds_all());
  const store::Manifest& manifest = device.device().manifest();
  for (uint32_t blob = 0; blob < manifest.blobs.size(); ++blob)
    if (manifest.blobs[blob].kind == store::BlobKind::kExpert) device.late_host()->find_wrong(blob);
  const uint64_t moved = device.device().tier_counters().moved_bytes;
  EXPECT_TRUE(same(want, scores_of(device.bench(), GetParam())));
  EXPECT_GT(device.device().tier_counters().moved_bytes, moved);
}

/// Layers are queued before their routes are known, and again when experts were missing after all.
TEST_P(CudaResidencyTest, BeingWrongAboutWhatIsThereChangesNoBit) {
  DeviceBench all(GetParam(), on_cuda(kAll));
  const auto want = scores_of(all.bench(), GetParam());
  uint64_t rewinds = 0;
  for (const int32_t slots : {1, 4, 11}) {
    auto options = on_cuda(slots, "gate");
    options.expects_all = true;
    DeviceBench few(GetParam(), options);
    ASSERT_TRUE(same(want, scores_of(few.bench(), GetParam()))) << slots << " slots";
    rewinds += few.bench().device_work().rewinds;
  }
  EXPECT_GT(rewinds, 0u);
}

/// Hidden states that are summed up for embeddings: near the CPU's, and bitwise the same however many experts are there
/// and however the text is cut.
TEST_P(CudaEngineTest, SumsOfHiddenStatesAreTheCpus) {
  const std::vector<TokenId> ids = few_tokens();
  const auto last = static_cast<int64_t>(ids.size()) - 1;
  Bench cpu(GetParam());
  DeviceBench all(GetParam(), on_cuda(kAll)), few(GetParam(), on_cuda(3, "gate"));
  for (const int64_t from : {int64_t{0}, last}) {
    const auto want = cpu.sum_states(ids, from, ids.size());
    const auto got = all.bench().sum_states(ids, from, ids.size());
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-3 * static_cast<double>(last + 1 - from)) << "from " << from << " value " << i;
    if (from == 0) EXPECT_EQ(few.bench().sum_states(ids, from, 9, {ids}), got);
  }
}

/// Blocks of the KV cache on their way to host memory and back beside the computing.
TEST_P(CudaResidencyTest, MovedBlocksChangeNoBit) {
  const auto options = [](int64_t host_blocks, int32_t slots) {
    return on_cuda(slots, "none",
                   {.engine = {.model = "m",
                               .kv_tokens = 512,
                               .kv_host_tokens = host_blocks * kernels::kKvBlockTokens,
                               .kv_dtype = DType::kF16,
                               .poison_kv = true}});
  };
  DeviceBench still(GetParam(), options(0, kAll));
  if (still.bench().engine().limits().visible.window > 0) GTEST_SKIP() << "refused beside a window";
  const auto want = decode_with_moves(still.bench(), GetParam(), 0);
  DeviceBench moved(GetParam(), options(kHostBlocksOfMoves, 5));
  EXPECT_EQ(decode_with_moves(moved.bench(), GetParam(), 11), want);
}

/// Sequences of one token each, where an earlier step has brought all experts to the device but `broken`, which cannot
/// be read.
StepOutcome step_with_broken(const Fixture& fixture, std::optional<uint32_t> broken, std::vector<uint32_t>& blobs) {
  auto options = on_cuda(kAll);
  options.late_host = true, options.late.broken_blob = broken;
  DeviceBench device(fixture, options);
  const auto step = [&](uint64_t first_id) {
    for (uint64_t i = 0; i < 12; ++i) {
      PlanSequence& s = device.bench().add(first_id + i, {static_cast<TokenId>(3 + i * 5)});
      s.sample = true, s.sampling.logprobs = 0;
    }
    auto outcome = device.bench().run();
    MOESTRO_CHECK(outcome.is_ok(), outcome.status().message());
    return std::move(*outcome);
  };
  (void)step(0);
  StepOutcome outcome = step(100);
  const store::Manifest& manifest = device.device().manifest();
  blobs.clear();
  for (uint32_t b = 0; b < manifest.blobs.size(); ++b)
    if (manifest.blobs[b].kind == store::BlobKind::kExpert && manifest.blobs[b].moe_layer == MoeLayerId(0))
      blobs.push_back(b);
  return outcome;
}

/// Its users' rows are left out of all later layers, and no other's.
TEST_P(CudaResidencyTest, AnExpertThatCannotBeReadFailsItsUsersAlone) {
  std::vector<uint32_t> blobs;
  const StepOutcome want = step_with_broken(GetParam(), std::nullopt, blobs);
  const auto uses = [](const SequenceOutcome& s, size_t expert) {
    return std::ranges::any_of(s.activations,
                               [&](const auto& c) { return c.layer.value == 0 && c.expert.value == expert; });
  };
  size_t expert = 0;
  const auto users = [&] {
    return std::ranges::count_if(want.sequences, [&](const SequenceOutcome& s) { return uses(s, expert); });
  };
  while (expert < blobs.size() && (users() == 0 || users() == std::ssize(want.sequences))) ++expert;
  ASSERT_LT(expert, blobs.size()) << "every expert is used by all or by none";
  const StepOutcome got = step_with_broken(GetParam(), blobs[expert], blobs);
  for (size_t i = 0; i < want.sequences.size(); ++i) {
    const SequenceOutcome& s = got.sequences[i];
    ASSERT_EQ(s.status.is_ok(), !uses(want.sequences[i], expert)) << "sequence " << i;
    if (!s.status.is_ok()) continue;
    EXPECT_EQ(s.sampled.at(0).id, want.sequences[i].sampled.at(0).id);
    EXPECT_EQ(s.sampled.at(0).score.logprob, want.sequences[i].sampled.at(0).score.logprob) << "sequence " << i;
  }
}

TEST_P(CudaResidencyTest, DeterministicExpertsAreTheDevices) {
  const Reference r = prompt();
  auto options = on_cuda(2);
  options.copies_seem_slow = true;
  DeviceBench device(GetParam(), options);
  (void)device.bench().score({r.ids}, 7);
  EXPECT_EQ(device.computed_on_cpu(), 0u);
  EXPECT_EQ(device.bench().device_work().host_experts, 0u);
}

}  // namespace
}  // namespace moestro::engine::testing

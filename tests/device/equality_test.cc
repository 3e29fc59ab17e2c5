// What a device holds and foresees never changes what the model says: bitwise the resident engine's log-probabilities,
// for every cache policy and predictor, from one slot up.

#include <gtest/gtest.h>

#include <cstring>

#include "common/policy/make_policy.h"
#include "common/prediction/make_predictor.h"
#include "services/worker/device/host_outlook.h"
#include "tests/device/device_bench.h"

namespace moestro::device::testing {
namespace {

using engine::testing::Bench;
using engine::testing::Fixture;
using Scores = std::vector<std::vector<float>>;

std::vector<std::vector<TokenId>> prompts_of(const Fixture& fixture) {
  std::vector<std::vector<TokenId>> prompts;
  for (const auto& r : fixture.prompts("f32")) {
    prompts.push_back(r.ids);
    prompts.back().insert(prompts.back().end(), r.greedy.begin(), r.greedy.end());
  }
  prompts.resize(std::min<size_t>(prompts.size(), 3));
  return prompts;
}

/// Prompts in one batch, in chunks; then token by token, as if decoded.
Scores score(Bench& bench, const std::vector<std::vector<TokenId>>& prompts) {
  Scores scores = bench.score(prompts, 7);
  for (const auto& p : prompts) scores.push_back(bench.score({p}, 1).front());
  return scores;
}

bool same(const Scores& a, const Scores& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

class EqualityTest : public ::testing::Test {
 protected:
  const Fixture& fixture_ = engine::testing::any_fixture();
  const std::vector<std::vector<TokenId>> prompts_ = prompts_of(fixture_);
  const Scores resident_ = [this] {
    Bench bench(fixture_);
    return score(bench, prompts_);
  }();
};

TEST_F(EqualityTest, EveryPolicyPredictorAndNumberOfSlots) {
  for (const std::string& cache : policy::device_policy_names())
    for (const std::string& predictor : prediction::predictor_names())
      for (const int32_t slots : {1, 3, 7, 1000}) {
        DeviceBench device(fixture_, {.slots = slots, .cache = cache, .predictor = predictor});
        ASSERT_TRUE(same(resident_, score(device.bench(), prompts_)))
            << cache << ", " << predictor << ", " << slots << " slots";
        const tier::TierCounters counters = device.device().tier_counters();
        EXPECT_GT(counters.misses + counters.late + counters.prefetched, 0u);
        if (slots < device.device().layers() * device.device().experts()) EXPECT_GT(counters.evictions, 0u);
      }
}

TEST(Equality, OfEveryArchitectureOnAnEmulatedDevice) {
  for (const Fixture& fixture : engine::testing::one_of_each_architecture()) {
    const auto prompts = prompts_of(fixture);
    Bench resident(fixture);
    const Scores wanted = score(resident, prompts);
    for (const int32_t slots : {2, 1000}) {
      DeviceBench device(fixture, {.slots = slots, .predictor = "auto"});
      EXPECT_TRUE(same(wanted, score(device.bench(), prompts))) << fixture.name << ", " << slots << " slots";
    }
  }
}

/// Sources go through the encoder's experts, then targets through the decoder's.
TEST(Equality, OfEncoderDecoderModelsInBothPasses) {
  size_t models = 0;
  for (const Fixture& fixture : engine::testing::all_fixtures()) {
    if (!fixture.has_encoder()) continue;
    ++models;
    const auto prompts = prompts_of(fixture);
    Bench resident(fixture);
    const Scores wanted = score(resident, prompts);
    for (const std::string& cache : policy::device_policy_names())
      for (const int32_t slots : {1, 3, 1000}) {
        DeviceBench device(fixture, {.slots = slots, .cache = cache, .late_host = slots == 3});
        ASSERT_TRUE(same(wanted, score(device.bench(), prompts))) << fixture.name << ", " << cache << ", " << slots;
        const tier::TierCounters counters = device.device().tier_counters();
        EXPECT_GT(counters.misses + counters.late, 0u);
        const auto layers = device.device().layers();
        if (slots < layers) EXPECT_GT(counters.evictions, 0u);
        else EXPECT_GT(counters.hits, 0u);
      }
  }
  EXPECT_GE(models, 2u);
}

TEST_F(EqualityTest, ExpertsThatReachHostMemoryLateAndInAnyOrder) {
  for (const int32_t slots : {1, 5})
    for (const std::string& predictor : prediction::predictor_names()) {
      DeviceBench device(fixture_, {.slots = slots, .predictor = predictor, .late_host = true});
      ASSERT_TRUE(same(resident_, score(device.bench(), prompts_))) << predictor << ", " << slots << " slots";
    }
}

TEST_F(EqualityTest, OnTheCpuWithEveryPredictorAndExpertsThatArriveLate) {
  const SteadyClock clock;
  for (const std::string& name : prediction::predictor_names()) {
    Bench bench(fixture_, {}, [](std::unique_ptr<store::BlobSource> inner) {
      return std::make_unique<engine::testing::LateSource>(std::move(inner), engine::testing::LateSource::Options{});
    });
    auto outlook = HostOutlook::create(bench.source(), DType::kF32, nullptr, clock);
    ASSERT_TRUE(outlook) << outlook.status().message();
    const auto top_k = static_cast<int32_t>(bench.engine().spec().moe().top_k);
    auto predictor = prediction::make_predictor(
        name, {.shape = {.layers = (*outlook)->layers(), .experts = (*outlook)->experts(), .top_k = top_k}});
    ASSERT_TRUE(predictor) << predictor.status().message();
    Foresight foresight(**outlook, std::move(*predictor), top_k);
    bench.engine().set_expert_watch(&foresight);
    EXPECT_TRUE(same(resident_, score(bench, prompts_))) << name;
    bench.engine().set_expert_watch(nullptr);
  }
}

TEST_F(EqualityTest, ASequenceThatBeginsBehindBlocksOfAnother) {
  const auto tail_scores = [&](Bench& bench) {
    std::vector<TokenId> prefix;
    for (TokenId t = 0; t < 2 * static_cast<TokenId>(kernels::kKvBlockTokens); ++t)
      prefix.push_back((t * 37 + 5) % static_cast<TokenId>(bench.engine().spec().vocab));
    bench.add(1, prefix);
    EXPECT_TRUE(bench.run().is_ok());
    engine::PlanSequence& behind = bench.add_behind(1, 2, 2, {3, 1, 4, 1});
    behind.score_targets = {1, 4, 1, -1};
    const auto outcome = bench.run();
    EXPECT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok());
    std::vector<float> scores;
    for (const auto& score : outcome->sequences[0].scores) scores.push_back(score.logprob);
    return Scores{scores};
  };
  Bench resident(fixture_);
  const Scores expected = tail_scores(resident);
  for (const std::string& predictor : prediction::predictor_names()) {
    DeviceBench device(fixture_, {.slots = 3, .predictor = predictor});
    EXPECT_TRUE(same(expected, tail_scores(device.bench()))) << predictor;
  }
}

TEST_F(EqualityTest, MicroBatchesInTurn) {
  for (const std::string& predictor : prediction::predictor_names())
    for (const int32_t slots : {1, 5}) {
      DeviceBenchOptions options{.slots = slots, .predictor = predictor, .late_host = slots == 5};
      options.engine.engine.micro_batches = engine::MicroBatches::kInTurn;
      options.engine.micro_batch = 1;
      DeviceBench device(fixture_, options);
      ASSERT_TRUE(same(resident_, score(device.bench(), prompts_))) << predictor << ", " << slots << " slots";
    }
}

TEST_F(EqualityTest, ALinkSlowerThanTheDevice) {
  DeviceBench device(fixture_, {.slots = 3,
                                .predictor = "next-layer-all",
                                .link_bytes_per_s = 200 << 20,
                                .latency = std::chrono::microseconds(20)});
  EXPECT_TRUE(same(resident_, score(device.bench(), prompts_)));
}

TEST_F(EqualityTest, TwoSwappedExpertsAreNoticed) {
  DeviceBench probe(fixture_, {});
  const auto& manifest = probe.device().manifest();
  const uint32_t first = *manifest.expert_blob(MoeLayerId(0), ExpertId(0), DType::kF32);
  const uint32_t second = *manifest.expert_blob(MoeLayerId(0), ExpertId(1), DType::kF32);
  DeviceBench swapped(fixture_, {.slots = 5, .late_host = true, .late = {.swapped = {{first, second}}}});
  EXPECT_FALSE(same(resident_, score(swapped.bench(), prompts_)));
}

TEST_F(EqualityTest, WhatFitsIsCopiedOnce) {
  DeviceBench device(fixture_, {.slots = 1000});
  EXPECT_EQ(device.device().slots(), device.device().layers() * device.device().experts())
      << "no more slots than experts";
  for (int round = 0; round < 3; ++round) score(device.bench(), prompts_);
  const tier::TierCounters counters = device.device().tier_counters();
  EXPECT_LE(counters.misses + counters.late, static_cast<uint64_t>(device.device().slots()));
  EXPECT_EQ(counters.evictions, 0u);
}

}  // namespace
}  // namespace moestro::device::testing

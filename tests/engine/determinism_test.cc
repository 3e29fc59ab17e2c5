// The same tokens give bitwise the same log-probabilities, whatever else is in the batch, however a prompt is cut,
// whenever experts arrive.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::engine::testing {
namespace {

using Scores = std::vector<std::vector<float>>;

std::vector<std::vector<TokenId>> sixteen_prompts(const Fixture& f, int64_t vocab) {
  const auto given = f.prompts("f32");
  std::vector<std::vector<TokenId>> prompts;
  uint32_t state = 12345;
  for (size_t i = 0; i < 16; ++i) {
    std::vector<TokenId> ids = given[i % given.size()].ids;
    ids.resize(std::max<size_t>(std::min<size_t>(ids.size(), 9 + 2 * i), 2), 1);
    for (size_t p = 1; p < ids.size() && i >= given.size(); p += 3) {
      state = state * 1664525u + 1013904223u;
      ids[p] = static_cast<TokenId>(state % static_cast<uint32_t>(vocab));
    }
    prompts.push_back(std::move(ids));
  }
  return prompts;
}

void expect_bitwise_equal(const Scores& a, const Scores& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    ASSERT_EQ(0, std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float))) << "prompt " << i;
  }
}

bool same(const Scores& a, const Scores& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  return true;
}

class DeterminismTest : public ::testing::TestWithParam<Fixture> {
 protected:
  Scores alone(const std::vector<std::vector<TokenId>>& prompts) {
    Bench bench(GetParam());
    Scores scores;
    for (const auto& p : prompts) scores.push_back(bench.score({p}, p.size()).front());
    return scores;
  }
};

TEST_P(DeterminismTest, AloneInABatchAndInChunksOfSeven) {
  Bench bench(GetParam());
  const auto prompts = sixteen_prompts(GetParam(), bench.engine().spec().vocab);
  const Scores reference = alone(prompts);
  expect_bitwise_equal(reference, bench.score(prompts, 1000));
  expect_bitwise_equal(reference, bench.score(prompts, 7));
  Bench two_threads(GetParam(), {.threads = 2});
  expect_bitwise_equal(reference, two_threads.score(prompts, 7));
}

TEST_P(DeterminismTest, EveryKvCacheAndWindow) {
  for (const DType kv : {DType::kBF16, DType::kF16, DType::kInt8}) {
    for (const VisiblePositions visible : {VisiblePositions{}, {3, 8}}) {
      const bool refuses_windows = GetParam().name == "qwen3_moe_dynamic" || GetParam().has_latents() ||
                                   GetParam().has_states() || GetParam().has_encoder() ||
                                   GetParam().name.starts_with("llama4");
      if (visible.window > 0 && refuses_windows) continue;
      BenchOptions options;
      options.engine.kv_dtype = kv;
      options.engine.visible = visible;
      Bench whole(GetParam(), options);
      const auto prompts = sixteen_prompts(GetParam(), whole.engine().spec().vocab);
      Scores one_by_one;
      for (const auto& p : prompts) one_by_one.push_back(whole.score({p}, p.size()).front());
      options.threads = 2;
      Bench cut(GetParam(), options);
      expect_bitwise_equal(one_by_one, cut.score(prompts, 1000));
      expect_bitwise_equal(one_by_one, cut.score(prompts, 7));
    }
  }
}

TEST_P(DeterminismTest, ExpertsThatArriveLateAndInAnyOrder) {
  LateSource* late = nullptr;
  for (const uint32_t seed : {1u, 2u, 3u}) {
    Bench bench(GetParam(), {}, [&](std::unique_ptr<store::BlobSource> inner) {
      auto source = std::make_unique<LateSource>(std::move(inner), LateSource::Options{.seed = seed});
      late = source.get();
      return source;
    });
    const auto prompts = sixteen_prompts(GetParam(), bench.engine().spec().vocab);
    expect_bitwise_equal(alone(prompts), bench.score(prompts, 7));
    EXPECT_EQ(late->waited_holding(), 0u) << "the engine waited while it held experts";
  }
}

TEST_P(DeterminismTest, TwoSwappedExpertsShow) {
  Bench plain(GetParam());
  const auto prompts = sixteen_prompts(GetParam(), plain.engine().spec().vocab);
  const auto& manifest = plain.source().manifest();
  const uint32_t a = *manifest.expert_blob(MoeLayerId(0), ExpertId(0), DType::kF32);
  const uint32_t b = *manifest.expert_blob(MoeLayerId(0), ExpertId(1), DType::kF32);
  Bench swapped(GetParam(), {}, [&](std::unique_ptr<store::BlobSource> inner) {
    return std::make_unique<LateSource>(std::move(inner), LateSource::Options{.swapped = std::pair{a, b}});
  });
  EXPECT_FALSE(same(plain.score(prompts, 7), swapped.score(prompts, 7)))
      << "the comparison would not see a wrong expert";
}

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Fixtures, DeterminismTest, ::testing::ValuesIn(all_fixtures()), fixture_name);

bool uses(const SequenceOutcome& s, uint32_t expert) {
  for (const auto& c : s.activations)
    if (c.layer.value == 0 && c.expert.value == expert) return true;
  return false;
}

/// An expert of layer 0 that some of the sequences use and others do not.
uint32_t expert_of_some(const StepOutcome& outcome, int64_t experts) {
  for (uint32_t e = 0; e < experts; ++e) {
    const auto users =
        std::count_if(outcome.sequences.begin(), outcome.sequences.end(), [e](const auto& s) { return uses(s, e); });
    if (users > 0 && users < static_cast<std::ptrdiff_t>(outcome.sequences.size())) return e;
  }
  ADD_FAILURE() << "every expert is used by all or none";
  return 0;
}

TEST(BrokenExpert, FailsOnlyTheSequencesThatNeedIt) {
  Bench plain(any_fixture());
  const auto prompts = sixteen_prompts(any_fixture(), plain.engine().spec().vocab);
  const auto add_all = [&](Bench& bench) {
    for (size_t i = 0; i < 16; ++i) bench.add(i, {prompts[i][0], prompts[i][1]}).sample = true;
  };
  add_all(plain);
  const auto expected = plain.run();
  ASSERT_TRUE(expected.is_ok());
  const uint32_t expert = expert_of_some(*expected, plain.engine().spec().moe().experts);
  const uint32_t broken = *plain.source().manifest().expert_blob(MoeLayerId(0), ExpertId(expert), DType::kF32);
  Bench bench(any_fixture(), {}, [&](std::unique_ptr<store::BlobSource> inner) {
    return std::make_unique<LateSource>(std::move(inner), LateSource::Options{.broken_blob = broken});
  });
  add_all(bench);
  const auto outcome = bench.run();
  ASSERT_TRUE(outcome.is_ok());
  for (size_t i = 0; i < 16; ++i) {
    const SequenceOutcome& s = outcome->sequences[i];
    if (uses(expected->sequences[i], expert)) {
      EXPECT_EQ(s.status.code(), Code::kCorrupt);
      EXPECT_NE(s.status.message().find("blob " + std::to_string(broken)), std::string::npos);
      EXPECT_TRUE(s.sampled.empty() && s.activations.empty());
    } else {
      ASSERT_TRUE(s.status.is_ok()) << s.status.message();
      EXPECT_EQ(s.sampled.at(0).id, expected->sequences[i].sampled.at(0).id);
      EXPECT_EQ(s.activations, expected->sequences[i].activations);
    }
  }
}

}  // namespace
}  // namespace moestro::engine::testing

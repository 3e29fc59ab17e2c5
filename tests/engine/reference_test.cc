// The engine against Hugging Face transformers, on every fixture.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

class ReferenceTest : public ::testing::TestWithParam<Fixture> {
 protected:
  void compare(DType dtype, double bound, bool deterministic) {
    Bench bench(GetParam(), {.experts = dtype, .dense = dtype, .deterministic = deterministic});
    size_t positions = 0;
    double most = 0;
    for (const Reference& r : GetParam().prompts(std::string(dtype_name(dtype)))) {
      // The prompt, and what the reference continued it with: log-probabilities of all but the first.
      std::vector<TokenId> ids = r.ids;
      ids.insert(ids.end(), r.greedy.begin(), r.greedy.end());
      std::vector<double> wanted = r.logprobs;
      wanted.insert(wanted.end(), r.greedy_logprobs.begin(), r.greedy_logprobs.end());
      const auto scores = bench.score({ids}, r.ids.size()).front();
      ASSERT_EQ(scores.size(), wanted.size());
      for (size_t i = 0; i < scores.size(); ++i) {
        ASSERT_NEAR(scores[i], wanted[i], bound) << "position " << i;
        most = std::max(most, std::abs(static_cast<double>(scores[i]) - wanted[i]));
        ++positions;
      }
    }
    EXPECT_GT(positions, 0u);
    std::printf("%-24s %-5s %zu positions, log-probabilities off by at most %.1e\n", GetParam().name.c_str(),
                std::string(dtype_name(dtype)).c_str(), positions, most);
  }
};

TEST_P(ReferenceTest, LogProbabilitiesInF32) { compare(DType::kF32, 1e-3, true); }
TEST_P(ReferenceTest, LogProbabilitiesInF32FastMode) { compare(DType::kF32, 1e-3, false); }
TEST_P(ReferenceTest, LogProbabilitiesInBf16) { compare(DType::kBF16, 2e-2, true); }

TEST_P(ReferenceTest, Bf16In12BitsIsBf16BitByBit) {
  for (const bool deterministic : {true, false}) {
    Bench wide(GetParam(), {.experts = DType::kBF16, .dense = DType::kBF16, .deterministic = deterministic});
    Bench narrow(GetParam(), {.experts = DType::kBF16In12, .dense = DType::kBF16In12, .deterministic = deterministic});
    for (const Reference& r : GetParam().prompts("bf16")) {
      EXPECT_EQ(narrow.score({r.ids}, r.ids.size()), wide.score({r.ids}, r.ids.size()));
      EXPECT_EQ(narrow.greedy(r.ids, 5), wide.greedy(r.ids, 5));
    }
  }
}

TEST_P(ReferenceTest, GreedyTokensInF32) {
  Bench bench(GetParam());
  for (const Reference& r : GetParam().prompts("f32")) {
    std::vector<double> logprobs;
    EXPECT_EQ(bench.greedy(r.ids, static_cast<int>(r.greedy.size()), &logprobs), r.greedy);
    ASSERT_EQ(logprobs.size(), r.greedy_logprobs.size());
    for (size_t i = 0; i < logprobs.size(); ++i) ASSERT_NEAR(logprobs[i], r.greedy_logprobs[i], 1e-3) << "token " << i;
  }
}

/// The mean error of log-probabilities where weights or activations are rounded; random models are the hardest there
/// are.
void rounding_is_close(const Fixture& f, DType experts, DType dense, double bound, bool deterministic = true) {
  Bench bench(f, {.experts = experts, .dense = dense, .deterministic = deterministic});
  double sum = 0, count = 0;
  for (const Reference& r : f.prompts(dense == DType::kBF16 ? "bf16" : "f32")) {
    const auto scores = bench.score({r.ids}, r.ids.size()).front();
    for (size_t i = 0; i < scores.size(); ++i) {
      ASSERT_TRUE(std::isfinite(scores[i]));
      sum += std::abs(static_cast<double>(scores[i]) - r.logprobs[i]), ++count;
    }
  }
  EXPECT_LT(sum / count, bound);
  ::testing::Test::RecordProperty("mean_error", std::to_string(sum / count));
  EXPECT_GT(sum, 0.0) << "nothing is rounded";
}
TEST_P(ReferenceTest, Int8ExpertsAreClose) { rounding_is_close(GetParam(), DType::kInt8, DType::kF32, 0.1); }
TEST_P(ReferenceTest, Int4ExpertsAreClose) { rounding_is_close(GetParam(), DType::kInt4, DType::kF32, 1.2); }
TEST_P(ReferenceTest, Int8DenseWeightsAreClose) { rounding_is_close(GetParam(), DType::kF32, DType::kInt8, 0.25); }

// The fast mode rounds activations, so a token may go to another expert where two are nearly equal: only the mean is
// bounded.
TEST_P(ReferenceTest, Bf16InFastModeIsClose) { rounding_is_close(GetParam(), DType::kBF16, DType::kBF16, 0.06, false); }
TEST_P(ReferenceTest, Int8InFastModeIsClose) { rounding_is_close(GetParam(), DType::kInt8, DType::kInt8, 0.35, false); }
TEST_P(ReferenceTest, Int4InFastModeIsClose) { rounding_is_close(GetParam(), DType::kInt4, DType::kF32, 1.25, false); }

/// The same, of what the KV cache is stored in; weights are f32. --gtest_filter='*KvCaches*' prints the errors.
void kv_caches_are_close(const Fixture& f, DType dtype, double bound) {
  Bench bench(f, {.engine = {.model = "m", .kv_tokens = 4096, .kv_dtype = dtype, .poison_kv = true}});
  double sum = 0, most = 0, count = 0;
  for (const Reference& r : f.prompts("f32")) {
    const auto scores = bench.score({r.ids}, 5).front();
    for (size_t i = 0; i < scores.size(); ++i) {
      ASSERT_TRUE(std::isfinite(scores[i]));
      const double error = std::abs(static_cast<double>(scores[i]) - r.logprobs[i]);
      sum += error, most = std::max(most, error), ++count;
    }
  }
  std::printf("%-20s KV %-5s log-probabilities off by %.5f, at most %.5f\n", f.name.c_str(),
              std::string(dtype_name(dtype)).c_str(), sum / count, most);
  EXPECT_LT(sum / count, bound);
  if (dtype != DType::kF32) EXPECT_GT(most, 1e-6) << "they are not rounded";
}
TEST_P(ReferenceTest, KvCachesInF32AreClose) { kv_caches_are_close(GetParam(), DType::kF32, 1e-4); }
TEST_P(ReferenceTest, KvCachesInF16AreClose) { kv_caches_are_close(GetParam(), DType::kF16, 6e-3); }
TEST_P(ReferenceTest, KvCachesInBf16AreClose) { kv_caches_are_close(GetParam(), DType::kBF16, 5e-2); }
TEST_P(ReferenceTest, KvCachesInInt8AreClose) { kv_caches_are_close(GetParam(), DType::kInt8, 0.25); }

INSTANTIATE_TEST_SUITE_P(Fixtures, ReferenceTest, ::testing::ValuesIn(all_fixtures()), fixture_name);

TEST(Fixtures, AreThere) { EXPECT_GE(fixtures().size(), 35u) << "sixteen architectures, at least two variants each"; }

}  // namespace
}  // namespace moestro::engine::testing

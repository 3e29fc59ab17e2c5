// Models packed from GGUF files and from quantised checkpoints against Hugging Face transformers over the dequantised
// weights: every family of GGUF, and every number format in experts, attention, embedding and head.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

class NativeFormats : public ::testing::TestWithParam<Fixture> {
 protected:
  /// The mean and the largest difference of log-probabilities from the reference's.
  struct Errors {
    double mean = 0, largest = 0;
  };
  Errors errors(DType experts, DType dense, bool deterministic) {
    Bench bench(GetParam(), {.experts = experts, .dense = dense, .deterministic = deterministic});
    Errors found;
    double count = 0;
    for (const Reference& r : GetParam().prompts("f32")) {
      std::vector<TokenId> ids = r.ids;
      ids.insert(ids.end(), r.greedy.begin(), r.greedy.end());
      std::vector<double> wanted = r.logprobs;
      wanted.insert(wanted.end(), r.greedy_logprobs.begin(), r.greedy_logprobs.end());
      const auto scores = bench.score({ids}, 7).front();
      EXPECT_EQ(scores.size(), wanted.size());
      for (size_t i = 0; i < scores.size(); ++i) {
        const double error = std::abs(static_cast<double>(scores[i]) - wanted[i]);
        EXPECT_TRUE(std::isfinite(error));
        found.mean += error, found.largest = std::max(found.largest, error), ++count;
      }
    }
    found.mean /= count;
    return found;
  }
};

// kMixed: as the file has them.
TEST_P(NativeFormats, LogProbabilitiesAreThoseOfTheDequantisedWeights) {
  EXPECT_LT(errors(DType::kMixed, DType::kMixed, true).largest, 1e-3);
}
// Activations are rounded to 8 bits, so a token may go to another expert where two are nearly equal.
TEST_P(NativeFormats, FastModeIsClose) { EXPECT_LT(errors(DType::kMixed, DType::kMixed, false).mean, 0.35); }
// What is asked for: the same numbers as f32, and rounded from them.
TEST_P(NativeFormats, WidenedToF32IsTheSame) {
  EXPECT_LT(errors(DType::kF32, DType::kF32, true).largest, 1e-3);
}
TEST_P(NativeFormats, RequantisedToInt8IsClose) { EXPECT_LT(errors(DType::kInt8, DType::kF32, true).mean, 0.2); }

TEST_P(NativeFormats, GreedyTokens) {
  Bench bench(GetParam(), {.experts = DType::kMixed, .dense = DType::kMixed});
  for (const Reference& r : GetParam().prompts("f32"))
    EXPECT_EQ(bench.greedy(r.ids, static_cast<int>(r.greedy.size())), r.greedy);
}

// Alone, in a batch, in chunks of any size: the same bits.
TEST_P(NativeFormats, DeterministicModeDoesNotDependOnTheBatch) {
  Bench bench(GetParam(), {.experts = DType::kMixed, .dense = DType::kMixed});
  std::vector<std::vector<TokenId>> prompts;
  for (const Reference& r : GetParam().prompts("f32"))
    if (r.ids.size() > 1) prompts.push_back(r.ids);
  const auto together = bench.score(prompts, 5);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(bench.score({prompts[i]}, 60).front(), together[i]);
}

INSTANTIATE_TEST_SUITE_P(Files, NativeFormats, ::testing::ValuesIn(native_fixtures()),
                         [](const ::testing::TestParamInfo<Fixture>& param) {
                           std::string name = param.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(NativeFixtures, AreThere) { EXPECT_GE(native_fixtures().size(), 20u) << "nine files and eleven checkpoints"; }

}  // namespace
}  // namespace moestro::engine::testing

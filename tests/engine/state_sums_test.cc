// Sums of final hidden states against Hugging Face transformers: what the head makes of a state are the reference's
// log-probabilities. And bitwise the same however a text is cut and whatever else is in the batch.

#include "services/worker/engine/state_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "services/worker/engine/dense_weights.h"
#include "store/resident_source.h"
#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

class StateSumsTest : public ::testing::TestWithParam<Fixture> {};

std::string fixture_name(const ::testing::TestParamInfo<Fixture>& param) {
  std::string name = param.param.name;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Fixtures, StateSumsTest, ::testing::ValuesIn(all_fixtures()), fixture_name);

/// Log-probabilities of the next token, by the head alone.
class Head {
 public:
  explicit Head(const Fixture& fixture)
      : ops_(kernels::make_cpu_ops({.threads = 1, .deterministic = true, .isa = kernels::best_isa()})) {
    auto source = store::ResidentSource::open(packed(fixture, DType::kF32, DType::kF32));
    MOESTRO_CHECK(source.is_ok(), source.status().message());
    source_ = std::move(*source);
    const store::Manifest& manifest = source_->manifest();
    auto description = model::describe_model(manifest.config_json, manifest.generation_config_json);
    MOESTRO_CHECK(description.is_ok(), description.status().message());
    auto weights = DenseWeights::load(*source_, *description, *ops_, kernels::host_memory());
    MOESTRO_CHECK(weights.is_ok(), weights.status().message());
    weights_.emplace(std::move(*weights));
    logits_.resize(static_cast<size_t>(description->spec.vocab));
    divisor_ = description->spec.logits_divisor;
  }
  double logprob(const std::vector<double>& state, TokenId next) {
    const std::vector<float> row(state.begin(), state.end());
    ops_->matmul(row.data(), 1, weights_->head(), weights_->head_bias(), logits_.data());
    double sum = 0;
    for (const float logit : logits_) sum += std::exp(static_cast<double>(logit) / divisor_);
    return static_cast<double>(logits_[static_cast<size_t>(next)]) / divisor_ - std::log(sum);
  }

 private:
  std::unique_ptr<kernels::Ops> ops_;
  std::unique_ptr<store::BlobSource> source_;
  std::optional<DenseWeights> weights_;
  std::vector<float> logits_;
  double divisor_ = 1;
};

TEST_P(StateSumsTest, TheHeadMakesTheReferencesLogProbabilitiesOfEveryLastState) {
  Bench bench(GetParam());
  Head head(GetParam());
  size_t positions = 0;
  for (const Reference& r : GetParam().prompts("f32")) {
    for (size_t p = 0; p < r.logprobs.size(); ++p) {
      const std::vector<TokenId> begin(r.ids.begin(), r.ids.begin() + static_cast<std::ptrdiff_t>(p + 1));
      const auto state = bench.sum_states(begin, static_cast<int64_t>(p), 1000);
      ASSERT_EQ(static_cast<int64_t>(state.size()), bench.engine().spec().hidden);
      ASSERT_NEAR(head.logprob(state, r.ids[p + 1]), r.logprobs[p], 1e-3) << "position " << p;
      ++positions;
    }
  }
  EXPECT_GT(positions, 20u);
}

/// Token by token each sum is of one state; they are added here.
TEST_P(StateSumsTest, HoweverATextIsCutAndWhateverIsBesideItTheSumIsTheSameBitByBit) {
  const auto prompts = GetParam().prompts("f32");
  Bench alone(GetParam());
  Bench busy(GetParam(), {.threads = 2});
  const std::vector<std::vector<TokenId>> others{prompts.at(0).ids, prompts.at(2).ids};
  for (const Reference& r : prompts) {
    const auto last = static_cast<int64_t>(r.ids.size()) - 1;
    for (const int64_t from : {int64_t{0}, last / 2, last}) {
      const auto one_by_one = alone.sum_states(r.ids, from, 1);
      for (const size_t chunk : {size_t{3}, size_t{7}, size_t{1000}}) {
        EXPECT_EQ(alone.sum_states(r.ids, from, chunk), one_by_one) << "from " << from << " in chunks of " << chunk;
        EXPECT_EQ(busy.sum_states(r.ids, from, chunk, others), one_by_one) << "from " << from << " beside others";
      }
    }
  }
}

TEST_P(StateSumsTest, InFastModeTheyAreClose) {
  const Reference r = GetParam().prompts("f32").at(2);
  const auto n = static_cast<double>(r.ids.size());
  const auto want = Bench(GetParam()).sum_states(r.ids, 0, 1000);
  const auto got = Bench(GetParam(), {.deterministic = false}).sum_states(r.ids, 0, 7);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i] / n, want[i] / n, 1e-3) << "value " << i;
}

/// Rows of a sequence that is alone in its step.
StepBatch batch_of(int64_t rows) {
  StepBatch batch;
  batch.positions.resize(static_cast<size_t>(rows));
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  batch.summed_rows = {{0, 0, rows}};
  return batch;
}

std::vector<double> sum_of(const std::vector<float>& column, int64_t tile, Status* why = nullptr) {
  StateSums sums(1);
  const StepBatch batch = batch_of(static_cast<int64_t>(column.size()));
  std::vector<Status> failed(1);
  std::vector<SequenceOutcome> outcomes(1);
  sums.add(batch, tile, [&](int64_t first, int64_t) { return column.data() + first; });
  const uint32_t not_finite = sums.finish(batch, failed, outcomes);
  EXPECT_EQ(not_finite, failed[0].is_ok() ? 0u : 1u);
  if (why != nullptr) *why = failed[0];
  return outcomes[0].state_sum;
}

TEST(StateSums, AreExactToTheirRounding) {
  const float tiny = 0x1p-31f, step = 0x1p-30f;
  EXPECT_EQ(sum_of({3 * step, step, 1.0f, -1.0f}, 3), std::vector<double>{4 * 0x1p-30});
  EXPECT_EQ(sum_of({0.9f * tiny, 1.0f}, 1), std::vector<double>{1.0}) << "rounded away";
  const float large = 0x1.fffffep+30f, huge = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of({large}, 1), std::vector<double>{static_cast<double>(large)});
  EXPECT_EQ(sum_of({huge}, 1), std::vector<double>{static_cast<double>(huge)});
  EXPECT_EQ(sum_of({-0.1f}, 1)[0], -0x1.99999ap-4) << "values of 2^-7 and more stay as they are";
}

TEST(StateSums, AStateThatIsNotFiniteFailsItsSequenceByName) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Status why;
    EXPECT_TRUE(sum_of({1.0f, bad, 2.0f}, 2, &why).empty());
    EXPECT_EQ(why.code(), Code::kInternal);
    EXPECT_NE(why.message().find("last norm: 1 of 1 values of the hidden states at positions 0 to 2"),
              std::string::npos)
        << why.message();
  }
}

}  // namespace
}  // namespace moestro::engine::testing

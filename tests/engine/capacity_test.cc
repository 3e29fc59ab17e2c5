// Who gets a place with an expert: all tokens without a capacity factor, the first ones with it; tokens of failed
// sequences none.

#include <gtest/gtest.h>

#include <limits>

#include "services/worker/engine/expert_dispatch.h"
#include "tests/engine/engine_bench.h"

namespace moestro::engine::testing {
namespace {

/// "expert: token/rank ..." of all that have rows, then "dropped: ...".
std::string routed(ExpertDispatch& d, std::span<const int32_t> ids, int64_t top_k,
                   std::span<const uint8_t> left_out = {}, uint32_t layer = 0) {
  const LayerPart part{MoeLayerId(layer)};
  std::string text;
  const auto append = [&](std::span<const kernels::RoutedRow> rows) {
    for (const auto& r : rows) text += " " + std::to_string(r.token) + "/" + std::to_string(r.rank);
  };
  for (const lanes::RoutedExpert& e : d.route(part, ids, top_k, left_out)) {
    EXPECT_EQ(d.rows(part, e.expert).size(), static_cast<size_t>(e.rows));
    text += std::to_string(e.expert) + ":";
    append(d.rows(part, e.expert));
    text += "; ";
  }
  text += "dropped:";
  append(d.dropped(part));
  return text;
}

class CapacityTest : public ::testing::Test {
 protected:
  CapacityTest() : bench_(any_fixture()) {}
  ExpertDispatch dispatch(std::optional<double> factor = {}) {
    const auto& spec = bench_.engine().spec();
    auto d = ExpertDispatch::create(bench_.source(), spec.moe_layers(), spec.moe().experts, DType::kF32);
    MOESTRO_CHECK(d.is_ok(), d.status().message());
    if (factor) d->set_capacity_factor(*factor);
    d->begin_step(PlanId(1));
    return std::move(*d);
  }
  Bench bench_;
};

TEST_F(CapacityTest, IsTheEvenShareTimesTheFactorRoundedUp) {
  EXPECT_EQ(ExpertDispatch::capacity(1.0, 64, 1, 8), 8);
  EXPECT_EQ(ExpertDispatch::capacity(1.25, 64, 2, 8), 20);
  EXPECT_EQ(ExpertDispatch::capacity(1.0, 1, 1, 128), 1) << "a token alone is never dropped";
  EXPECT_EQ(ExpertDispatch::capacity(1e-9, 4096, 8, 8), 1);
  EXPECT_EQ(ExpertDispatch::capacity(1.0, 3, 2, 4), 2);
}

TEST_F(CapacityTest, WithoutAFactorNoneIsDropped) {
  ExpertDispatch d = dispatch();
  const std::vector<int32_t> ids{1, 0, 1, 2, 1, 0, 1, 2};
  EXPECT_EQ(routed(d, ids, 2), "0: 0/1 2/1; 1: 0/0 1/0 2/0 3/0; 2: 1/1 3/1; dropped:");
  EXPECT_EQ(d.over_capacity(), 0u);
}

TEST_F(CapacityTest, TheFirstTokensKeepTheirPlace) {
  const auto experts = static_cast<double>(bench_.engine().spec().moe().experts);
  ExpertDispatch d = dispatch(2.0 * experts / 8.0);  // of 4 tokens x 2: two rows each
  const std::vector<int32_t> ids{1, 0, 1, 2, 1, 0, 1, 2};
  EXPECT_EQ(routed(d, ids, 2), "0: 0/1 2/1; 1: 0/0 1/0; 2: 1/1 3/1; dropped: 2/0 3/0");
  EXPECT_EQ(d.over_capacity(), 2u);
  routed(d, ids, 2, {}, 1);
  EXPECT_EQ(d.over_capacity(), 4u) << "over the layers of a step";
  d.begin_step(PlanId(2));
  EXPECT_EQ(d.over_capacity(), 0u);
}

TEST_F(CapacityTest, TokensThatAreLeftOutTakeNoPlace) {
  const auto experts = static_cast<double>(bench_.engine().spec().moe().experts);
  const std::vector<int32_t> ids{1, 0, 1, 2, 1, 0, 1, 2};
  const std::vector<uint8_t> left_out{1, 0, 0, 0};
  ExpertDispatch all = dispatch(), some = dispatch(2.0 * experts / 8.0);
  EXPECT_EQ(routed(all, ids, 2, left_out), "0: 2/1; 1: 1/0 2/0 3/0; 2: 1/1 3/1; dropped: 0/0 0/1");
  EXPECT_EQ(all.over_capacity(), 0u);
  EXPECT_EQ(routed(some, ids, 2, left_out), "0: 2/1; 1: 1/0 2/0; 2: 1/1 3/1; dropped: 0/0 0/1 3/0");
  EXPECT_EQ(some.over_capacity(), 1u);
  const std::vector<uint8_t> none{1, 1, 1, 1};
  EXPECT_EQ(routed(all, ids, 2, none, 1), "dropped: 0/0 0/1 1/0 1/1 2/0 2/1 3/0 3/1");
}

TEST_F(CapacityTest, InTheEngine) {
  std::vector<TokenId> ids;
  for (const Reference& r : any_fixture().prompts("f32"))
    if (r.ids.size() > ids.size()) ids = r.ids;
  ASSERT_GE(ids.size(), 8u);
  const auto with = [](std::optional<double> factor) {
    BenchOptions options{.deterministic = false};
    options.engine.capacity_factor = factor;
    return std::make_unique<Bench>(any_fixture(), options);
  };
  const auto run = [&](Bench& b) {
    PlanSequence& s = b.add(1, ids);
    s.score_targets.assign(ids.begin() + 1, ids.end());
    s.score_targets.push_back(-1);
    auto outcome = b.run();
    MOESTRO_CHECK(outcome.is_ok() && outcome->sequences[0].status.is_ok(), "a step with a capacity");
    return std::move(*outcome);
  };
  const auto logprobs = [](const StepOutcome& o) {
    std::vector<float> out;
    for (const TokenScore& s : o.sequences[0].scores) out.push_back(s.logprob);
    return out;
  };
  const auto plain = run(*with({})), wide = run(*with(1e6)), narrow = run(*with(0.25));
  EXPECT_EQ(plain.dropped_rows + wide.dropped_rows, 0u);
  EXPECT_EQ(logprobs(wide), logprobs(plain));
  const auto& spec = bench_.engine().spec();
  const auto tokens = static_cast<int64_t>(ids.size());
  const int64_t choices = tokens * spec.moe().top_k * spec.moe_layers();
  const int64_t places = ExpertDispatch::capacity(0.25, tokens, spec.moe().top_k, spec.moe().experts) *
                         spec.moe().experts * spec.moe_layers();
  EXPECT_GE(static_cast<int64_t>(narrow.dropped_rows), choices - places);
  EXPECT_LT(static_cast<int64_t>(narrow.dropped_rows), choices);
  EXPECT_NE(logprobs(narrow), logprobs(plain));
  EXPECT_EQ(logprobs(narrow)[0], logprobs(plain)[0]) << "the first token has the first place";
  int64_t counted = 0;
  for (const auto& c : narrow.sequences[0].activations) counted += c.tokens;
  EXPECT_EQ(counted, choices) << "what is dropped was still routed";
}

TEST_F(CapacityTest, IsRefusedWhereItCannotBe) {
  const SteadyClock clock;
  const auto refusal = [&](double factor, bool deterministic) {
    const auto ops = kernels::make_cpu_ops({.threads = 1, .deterministic = deterministic, .isa = kernels::best_isa()});
    const auto made =
        Engine::create({.model = "m", .kv_tokens = 4096, .capacity_factor = factor}, bench_.source(), *ops, clock);
    return made.is_ok() ? "it was taken" : made.status().message();
  };
  EXPECT_NE(refusal(1.25, true).find("--deterministic"), std::string::npos);
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_NE(refusal(bad, false).find("--capacity-factor"), std::string::npos) << bad;
}

}  // namespace
}  // namespace moestro::engine::testing

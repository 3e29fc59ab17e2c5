// Experts in two copies: which rows are computed with which, and that off, or with everything there, nothing changes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "tests/engine/engine_bench.h"
#include "tests/engine/late_source.h"

namespace moestro::engine::testing {
namespace {

using ::testing::HasSubstr;

std::vector<TokenId> any_prompt() {
  std::vector<TokenId> ids;
  for (const Reference& r : any_fixture().prompts("f32"))
    if (r.ids.size() > ids.size()) ids = r.ids;
  return ids;
}

BenchOptions options_with(std::optional<MixedOptions> mixed) {
  BenchOptions options{.deterministic = false};
  options.engine.mixed = mixed;
  return options;
}

Bench::Wrap late(LateSource::Options options = {}, LateSource** made = nullptr) {
  return [options, made](std::unique_ptr<store::BlobSource> inner) {
    auto source = std::make_unique<LateSource>(std::move(inner), options);
    if (made != nullptr) *made = source.get();
    return source;
  };
}

/// What the prompt's tokens chose, and how the step went, one token a step.
struct Recorded {
  std::vector<float> logprobs;
  std::vector<std::vector<std::vector<float>>> weights;  ///< [token][layer][rank]
  std::vector<std::vector<std::vector<int32_t>>> ids;    ///< the same
  CopyCounts copies;
  std::vector<CopyCounts> after;   ///< `copies` after each token
  std::vector<CopyCounts> layers;  ///< the same by MoE layer
};

/// `before`: called before each token's step.
Recorded recorded(Bench& bench, const std::vector<TokenId>& ids, double share_max = 1,
                  const std::function<void(size_t token)>& before = {}) {
  Recorded record;
  bench.engine().set_route_observer([&](const RoutedTokens& t) {
    auto& weights = record.weights.emplace_back();
    auto& chosen = record.ids.emplace_back();
    for (int64_t l = 0; l < t.moe_layers; ++l) {
      const auto first = static_cast<size_t>((l * t.step_tokens + t.first_row) * t.top_k);
      const auto k = static_cast<size_t>(t.top_k);
      const auto w = t.weights.subspan(first, k);
      const auto e = t.ids.subspan(first, k);
      weights.emplace_back(w.begin(), w.end());
      chosen.emplace_back(e.begin(), e.end());
    }
  });
  for (size_t i = 0; i < ids.size(); ++i) {
    if (before) before(i);
    PlanSequence& s = bench.add(1, {ids[i]});
    s.low_share_max = share_max;
    s.score_targets = {i + 1 < ids.size() ? ids[i + 1] : -1};
    const auto outcome = bench.run();
    MOESTRO_CHECK(outcome.is_ok() && outcome->sequences[0].status.is_ok(), "a step with mixed copies");
    if (i + 1 < ids.size()) record.logprobs.push_back(outcome->sequences[0].scores[0].logprob);
    record.copies += outcome->sequences[0].copies;
    record.after.push_back(record.copies);
    record.layers.resize(outcome->layer_copies.size());
    for (size_t l = 0; l < record.layers.size(); ++l) record.layers[l] += outcome->layer_copies[l];
  }
  return record;
}

/// By the rule, where nothing is ever there.
CopyCounts expected(const Recorded& record, const MixedOptions& mixed) {
  CopyCounts counts;
  for (const auto& token : record.weights)
    for (const auto& weights : token) {
      std::vector<Want> wants(weights.size());
      wants_of_token(weights, mixed, wants);
      counts.choices += wants.size();
      counts.low += static_cast<uint64_t>(std::ranges::count(wants, Want::kLow));
      counts.skipped += static_cast<uint64_t>(std::ranges::count(wants, Want::kNone));
    }
  return counts;
}

class MixedTest : public ::testing::Test {
 protected:
  const std::vector<TokenId> ids_ = any_prompt();
  const MixedOptions low_{.low = DType::kBF16, .t1 = 0, .t2 = 1};
};

TEST_F(MixedTest, WithEverythingThereIsBitwiseWhatItIsWithout) {
  Bench plain(any_fixture(), options_with({})), mixed(any_fixture(), options_with(low_));
  const Recorded a = recorded(plain, ids_), b = recorded(mixed, ids_);
  EXPECT_EQ(a.logprobs, b.logprobs);
  EXPECT_EQ(a.copies, CopyCounts{});
  EXPECT_EQ(b.copies.low + b.copies.skipped, 0u);
  EXPECT_GT(b.copies.choices, 0u);
}

/// The model's weights are those of a bf16 checkpoint: low copies in bf16 are the same where kernels compute in f32.
TEST_F(MixedTest, AMissIsComputedWithTheLowCopy) {
  const MixedOptions int8{.low = DType::kInt8, .t1 = 0, .t2 = 1};
  Bench plain(any_fixture(), options_with({})), mixed(any_fixture(), options_with(int8), late());
  const Recorded full = recorded(plain, ids_), low = recorded(mixed, ids_);
  EXPECT_EQ(low.copies, expected(low, int8));
  EXPECT_GT(low.copies.low, 0u);
  EXPECT_NE(full.logprobs, low.logprobs);
  for (size_t i = 0; i < full.logprobs.size(); ++i) EXPECT_NEAR(full.logprobs[i], low.logprobs[i], 0.1) << i;
}

/// An expert of zeros adds nothing, bitwise.
TEST_F(MixedTest, WhatIsLeftOutCountsAsZero) {
  const MixedOptions skip{.low = DType::kBF16, .t1 = 0, .t2 = 0};
  Bench mixed(any_fixture(), options_with(skip), late());
  const Recorded skipped = recorded(mixed, ids_);
  EXPECT_EQ(skipped.copies, expected(skipped, skip));
  EXPECT_GT(skipped.copies.skipped, 0u);
  EXPECT_EQ(skipped.copies.low, 0u);

  size_t token = 0;
  const store::Manifest* manifest = nullptr;
  const auto without_the_others = [&](uint32_t blob, std::vector<std::byte>& bytes) {
    const store::Blob& b = manifest->blobs[blob];
    if (b.kind == store::BlobKind::kDense) return;
    const auto& weights = skipped.weights[token][b.moe_layer.value];
    const size_t best = static_cast<size_t>(std::ranges::max_element(weights) - weights.begin());
    if (skipped.ids[token][b.moe_layer.value][best] != static_cast<int32_t>(b.expert.value))
      std::ranges::fill(bytes, std::byte{0});
  };
  const auto wrap = [&](std::unique_ptr<store::BlobSource> inner) {
    manifest = &inner->manifest();
    return std::make_unique<LateSource>(std::move(inner), LateSource::Options{.edit = without_the_others});
  };
  Bench zeros(any_fixture(), options_with({}), wrap);
  const Recorded reference = recorded(zeros, ids_, 1, [&](size_t i) { token = i; });
  EXPECT_EQ(skipped.logprobs, reference.logprobs);
}

/// Two tokens a step: an expert that one of them wants full is full for both.
TEST_F(MixedTest, TokensOfAStepThatShareAnExpertGetWhatOneOfThemNeeds) {
  Bench mixed(any_fixture(), options_with(low_), late());
  CopyCounts seen;
  uint64_t raised = 0;  // choices that alone would have been low
  mixed.engine().set_route_observer([&](const RoutedTokens& t) {
    const auto k = static_cast<size_t>(t.top_k);
    for (int64_t l = 0; l < t.moe_layers; ++l) {
      std::set<int32_t> full;
      std::vector<std::pair<int32_t, Want>> all;
      for (int64_t row = t.first_row; row < t.first_row + t.tokens; ++row) {
        const auto first = static_cast<size_t>((l * t.step_tokens + row) * t.top_k);
        std::vector<Want> wants(k);
        wants_of_token(t.weights.subspan(first, k), low_, wants);
        for (size_t i = 0; i < k; ++i) {
          all.emplace_back(t.ids[first + i], wants[i]);
          if (wants[i] == Want::kFull) full.insert(t.ids[first + i]);
        }
      }
      seen.choices += all.size();
      for (const auto& [expert, want] : all) {
        seen.low += !full.contains(expert);
        raised += full.contains(expert) && want == Want::kLow;
      }
    }
  });
  CopyCounts counted;
  for (size_t i = 0; i + 1 < ids_.size(); ++i) {
    mixed.add(100 + i, {ids_[i], ids_[i + 1]});
    const auto outcome = mixed.run();
    ASSERT_TRUE(outcome.is_ok());
    counted += outcome->sequences[0].copies;
  }
  EXPECT_EQ(counted, seen);
  EXPECT_GT(seen.low, 0u);
  EXPECT_GT(raised, 0u);
}

TEST_F(MixedTest, ARequestThatWantsFullCopiesWaitsForThem) {
  Bench plain(any_fixture(), options_with({}), late()), mixed(any_fixture(), options_with(low_), late());
  const Recorded full = recorded(mixed, ids_, 0);
  EXPECT_EQ(full.logprobs, recorded(plain, ids_).logprobs);
  EXPECT_EQ(full.copies.low + full.copies.skipped, 0u);
  EXPECT_GT(full.copies.choices, 0u);
}

/// The first layers of the first token have no share yet, and what is left of a token goes to the next.
TEST_F(MixedTest, ARequestsShareIsNeverExceededAndIsUsed) {
  Bench free(any_fixture(), options_with(low_), late());
  const Recorded unbound = recorded(free, ids_);
  for (const double most : {0.05, 0.2, 0.35}) {
    ASSERT_GT(unbound.copies.not_full_share(), most);
    Bench bench(any_fixture(), options_with(low_), late());
    const Recorded record = recorded(bench, ids_, most);
    for (const CopyCounts& c : record.after)
      ASSERT_LE(static_cast<double>(c.low + c.skipped), most * static_cast<double>(c.choices));
    EXPECT_GT(static_cast<double>(record.copies.low) + 2, most * static_cast<double>(record.copies.choices)) << most;
  }
}

/// Others may go on behind any part of a prompt, so each of its tokens' rows counts with those before it alone.
TEST_F(MixedTest, NoPartOfAChunkHasMoreThanItsShare) {
  for (const double most : {0.05, 0.15, 0.25}) {
    std::set<std::pair<uint32_t, uint32_t>> low;  // MoE layer, expert
    const auto note = [&low](LateSource& source, uint32_t blob) {
      const store::Blob& b = source.manifest().blobs[blob];
      if (b.precision == DType::kBF16) low.emplace(b.moe_layer.value, b.expert.value);
    };
    Bench bench(any_fixture(), options_with(low_), late({.on_lease = note}));
    CopyCounts parts;
    bench.engine().set_route_observer([&](const RoutedTokens& t) {
      for (int64_t row = t.first_row; row < t.first_row + t.tokens; ++row) {
        for (int64_t i = 0; i < t.moe_layers * t.top_k; ++i) {
          const auto at = (i / t.top_k * t.step_tokens + row) * t.top_k + i % t.top_k;
          const auto expert = static_cast<uint32_t>(t.ids[static_cast<size_t>(at)]);
          parts.low += low.contains({static_cast<uint32_t>(i / t.top_k), expert});
        }
        parts.choices += static_cast<uint64_t>(t.moe_layers * t.top_k);
        EXPECT_LE(parts.not_full_share(), most) << "up to row " << row;
      }
    });
    const std::vector<TokenId> chunk(ids_.begin(), ids_.begin() + 6);
    bench.add(1, chunk).low_share_max = most;
    const auto outcome = bench.run();
    ASSERT_TRUE(outcome.is_ok() && outcome->sequences[0].status.is_ok());
    EXPECT_EQ(outcome->sequences[0].copies, parts);
    if (most > 0.1) EXPECT_GT(parts.low, 0u);
  }
}

TEST_F(MixedTest, TheOperatorsShareBindsWhatARequestAsksFor) {
  MixedOptions bounded = low_;
  bounded.max_share = 0.1;
  Bench a(any_fixture(), options_with(bounded), late()), b(any_fixture(), options_with(low_), late()),
      c(any_fixture(), options_with(bounded), late());
  const Recorded by_operator = recorded(a, ids_, 0.9), by_request = recorded(b, ids_, 0.1);
  EXPECT_GT(by_operator.copies.low, 0u);
  EXPECT_EQ(by_operator.copies, by_request.copies);
  EXPECT_EQ(by_operator.logprobs, by_request.logprobs);
  EXPECT_LT(recorded(c, ids_, 0.05).copies.low, by_operator.copies.low) << "a request may ask for less";
}

/// What is skipped counts too; and each sequence of a step has its own share.
TEST_F(MixedTest, SequencesOfAStepHaveTheirOwnShares) {
  Bench bench(any_fixture(), options_with(MixedOptions{.low = DType::kBF16, .t1 = 0, .t2 = 0}), late());
  std::vector<CopyCounts> sums(3);
  const double most[] = {1, 0.1, 0};
  for (size_t i = 0; i < ids_.size(); ++i) {
    for (uint64_t s = 0; s < sums.size(); ++s)
      bench.add(1 + s, {ids_[(i + 7 * s) % ids_.size()]}).low_share_max = most[s];
    const auto outcome = bench.run();
    ASSERT_TRUE(outcome.is_ok());
    for (size_t s = 0; s < sums.size(); ++s) sums[s] += outcome->sequences[s].copies;
  }
  EXPECT_GT(sums[0].not_full_share(), 0.1);
  EXPECT_GT(sums[1].skipped, 0u);
  EXPECT_LE(sums[1].not_full_share(), 0.1);
  EXPECT_EQ(sums[2].skipped, 0u);
}

TEST_F(MixedTest, LayersAddUpToTheWhole) {
  Bench plain(any_fixture(), options_with({}), late());
  EXPECT_TRUE(recorded(plain, ids_).layers.empty());
  Bench bench(any_fixture(), options_with(MixedOptions{.low = DType::kBF16, .t1 = 0, .t2 = 0.6}), late());
  const Recorded record = recorded(bench, ids_);
  ASSERT_EQ(record.layers.size(), record.ids[0].size());
  CopyCounts sum;
  for (const CopyCounts& layer : record.layers) {
    EXPECT_EQ(layer.choices, record.copies.choices / record.layers.size());
    sum += layer;
  }
  EXPECT_EQ(sum, record.copies);
  EXPECT_GT(sum.low, 0u);
}

TEST_F(MixedTest, TheFullCopyIsWaitedForWhereTheLowOneCannotBeRead) {
  LateSource* source = nullptr;
  Bench whole(any_fixture(), options_with(low_), late()), broken(any_fixture(), options_with(low_), late({}, &source));
  const Recorded low = recorded(whole, ids_);
  // A copy that was used: its first token's second expert of the first layer.
  const auto& weights = low.weights[0][0];
  const size_t best = static_cast<size_t>(std::ranges::max_element(weights) - weights.begin());
  const auto expert = static_cast<uint32_t>(low.ids[0][0][best == 0 ? 1 : 0]);
  const uint32_t blob = *source->manifest().expert_blob(MoeLayerId(0), ExpertId(expert), DType::kBF16);
  source->break_blob(blob);
  const Recorded served = recorded(broken, ids_);
  EXPECT_LT(served.copies.low, expected(served, low_).low);
  EXPECT_EQ(source->experts_held(), 0u);
}

TEST_F(MixedTest, IsRefusedWhereItCannotBe) {
  const SteadyClock clock;
  const auto source = std::move(*store::ResidentSource::open(
      packed(any_fixture(), DType::kF32, DType::kF32, DType::kBF16)));
  const auto refusal = [&](std::optional<MixedOptions> mixed, bool deterministic = false,
                           const std::function<void(EngineOptions&)>& change = {}) {
    EngineOptions options{.model = "m", .kv_tokens = 4096, .mixed = mixed};
    if (change) change(options);
    const auto ops = kernels::make_cpu_ops({.threads = 1, .deterministic = deterministic, .isa = kernels::best_isa()});
    const auto made = Engine::create(options, *source, *ops, clock);
    return made.is_ok() ? "it was taken" : made.status().message();
  };
  EXPECT_EQ(refusal(low_), "it was taken");
  EXPECT_THAT(refusal(low_, true), HasSubstr("--mixed and --deterministic exclude each other"));
  EXPECT_THAT(refusal(MixedOptions{.low = DType::kInt4}), HasSubstr("has its experts as f32, bf16"));
  EXPECT_THAT(refusal(low_, false, [](EngineOptions& o) { o.expert_precision = DType::kBF16; }),
              HasSubstr("are not smaller"));
  EXPECT_THAT(refusal(low_, false, [](EngineOptions& o) { o.schedule = ScheduleKind::kExpertPipeline; }),
              HasSubstr("--schedule layerwise"));
}

}  // namespace
}  // namespace moestro::engine::testing

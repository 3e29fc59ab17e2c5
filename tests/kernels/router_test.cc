// The router in all its kinds against the reference, and what it does with ties and with logits that are not numbers.

#include <limits>

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {
namespace {

using Scores = RouterSpec::Scores;

class RouterTest : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT(GetParam());
    ops_ = cpu_ops(GetParam());
  }
  struct Choice {
    std::vector<int32_t> ids;
    std::vector<float> weights;
  };
  static Choice run(Ops& ops, const std::vector<float>& logits, const RouterSpec& spec) {
    const int64_t n = static_cast<int64_t>(logits.size()) / spec.experts;
    Choice c{std::vector<int32_t>(static_cast<size_t>(n * spec.top_k), -1), {}};
    c.weights.assign(c.ids.size(), NAN);
    ops.router_top_k(logits.data(), n, spec, c.ids.data(), c.weights.data());
    return c;
  }
  Choice run(const std::vector<float>& logits, const RouterSpec& spec) { return run(*ops_, logits, spec); }
  /// Logits of n tokens in which no two experts or groups are so close that f32 and double could order them
  /// differently.
  std::vector<float> logits_apart(int64_t n, const RouterSpec& spec) {
    std::vector<float> all;
    for (int64_t t = 0; t < n; ++t) {
      std::vector<float> row = random_.normal(spec.experts, 3.0f);
      for (int tries = 0; !apart(row, spec); ++tries) {
        MOESTRO_CHECK(tries < 1000, "some logits are apart");
        row = random_.normal(spec.experts, 3.0f);
      }
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  static bool apart(const std::vector<float>& row, const RouterSpec& spec) {
    std::vector<double> values;
    double sum = 0;
    for (const float l : row) sum += std::exp(static_cast<double>(l));
    for (const float l : row) {
      const double e = std::exp(static_cast<double>(l));
      values.push_back((spec.scores == Scores::kSoftmax ? e / sum : e / (1 + e)) +
                       (spec.bias ? spec.bias[values.size()] : 0.0));
    }
    const int64_t width = spec.experts / spec.groups;
    std::vector<double> rates;
    for (auto g = values.begin(); g != values.end(); g += width) {
      std::vector<double> group(g, g + width);
      std::sort(group.rbegin(), group.rend());
      double rate = 0;
      for (int64_t i = 0; i < std::min(width, spec.group_best); ++i) rate += group[static_cast<size_t>(i)];
      rates.push_back(rate);
    }
    return all_apart(std::move(values)) && all_apart(std::move(rates));
  }
  static bool all_apart(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    for (size_t i = 1; i < values.size(); ++i)
      if (values[i] - values[i - 1] <= 1e-6 * std::max(std::fabs(values[i]), std::fabs(values[i - 1]))) return false;
    return true;
  }
  void compare(int64_t n, const RouterSpec& spec, const std::string& what) {
    const std::vector<float> logits = logits_apart(n, spec);
    const Choice got = run(logits, spec), want = run(*reference_, logits, spec);
    EXPECT_EQ(got.ids, want.ids) << what;
    expect_close(got.weights, want.weights, 2e-6, what);
  }
  std::unique_ptr<Ops> ops_, reference_ = make_reference_ops();
  Random random_;
};
INSTANTIATE_TEST_SUITE_P(Isa, RouterTest, ::testing::ValuesIn(all_isas()), isa_test_name);

struct Case {
  int64_t n, experts, k;
};
constexpr Case kCases[] = {{0, 8, 2}, {1, 1, 1}, {5, 8, 2}, {40, 60, 4}, {3, 128, 8}, {2, 7, 7}, {200, 65, 6}};

TEST_P(RouterTest, SoftmaxAndSigmoid) {
  for (const auto& [n, experts, k] : kCases) {
    for (const bool normalise : {false, true}) {
      for (const Scores scores : {Scores::kSoftmax, Scores::kSigmoid}) {
        const auto bias = random_.normal(experts, 0.2f);
        for (const float* b : {static_cast<const float*>(nullptr), bias.data()})
          compare(n,
                  {.experts = experts,
                   .top_k = k,
                   .scores = scores,
                   .normalise = normalise,
                   .scale = b ? 2.5f : 1.0f,
                   .bias = b},
                  "router of " + std::to_string(experts));
      }
    }
  }
}

TEST_P(RouterTest, GroupLimited) {
  struct Groups {
    int64_t experts, k, groups, kept, best;
  };
  for (const auto& [experts, k, groups, kept, best] :
       {Groups{256, 8, 8, 4, 2}, Groups{160, 6, 8, 3, 1}, Groups{12, 4, 4, 2, 2}, Groups{6, 1, 6, 1, 2},
        Groups{8, 8, 2, 2, 3}}) {
    for (const Scores scores : {Scores::kSoftmax, Scores::kSigmoid}) {
      const auto bias = random_.normal(experts, 0.1f);
      for (const float* b : {static_cast<const float*>(nullptr), bias.data()})
        compare(30,
                {.experts = experts,
                 .top_k = k,
                 .scores = scores,
                 .normalise = true,
                 .scale = 2.5f,
                 .bias = b,
                 .groups = groups,
                 .groups_kept = kept,
                 .group_best = best},
                std::to_string(groups) + " groups of " + std::to_string(experts));
    }
  }
}

TEST_P(RouterTest, TheBiasChoosesAndDoesNotWeigh) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, -1.0f}, bias{5.0f, 0.0f, 0.0f, 0.0f};
  const Choice c = run(logits, {.experts = 4, .top_k = 2, .scores = Scores::kSigmoid, .bias = bias.data()});
  EXPECT_EQ(c.ids, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(c.weights[0], 0.5f, 1e-6f) << "the sigmoid of 0";
  EXPECT_NEAR(c.weights[1], 0.880797f, 1e-6f);
}

TEST_P(RouterTest, AGroupThatIsNotKeptLosesItsBestExpert) {
  // Groups {0,1} {2,3} {4,5}: expert 4 is the best of all, but its group's two best are the worst pair.
  const std::vector<float> logits{1.0f, 1.1f, 1.2f, 0.9f, 1.5f, -9.0f};
  RouterSpec spec{.experts = 6, .top_k = 2, .scores = Scores::kSigmoid, .groups = 3, .groups_kept = 2};
  EXPECT_EQ(run(logits, spec).ids, (std::vector<int32_t>{2, 1}));
  spec.group_best = 1;
  EXPECT_EQ(run(logits, spec).ids, (std::vector<int32_t>{4, 2}));
}

TEST_P(RouterTest, TiesGoToTheLowerId) {
  const std::vector<float> logits{1, 3, 3, 0, 3, 1, 1, 1};
  for (const Scores scores : {Scores::kSoftmax, Scores::kSigmoid}) {
    EXPECT_EQ(run(logits, {.experts = 8, .top_k = 4, .scores = scores, .normalise = true}).ids,
              (std::vector<int32_t>{1, 2, 4, 0}));
    const std::vector<float> equal(8, 0.5f);
    EXPECT_EQ(run(equal, {.experts = 8, .top_k = 3, .scores = scores, .groups = 4, .groups_kept = 2}).ids,
              (std::vector<int32_t>{0, 1, 2}));
  }
}

TEST_P(RouterTest, WhateverTheLogitsIdsAreDistinctAndInRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const float kinds[] = {kNan, kInf, -kInf, 3e38f, -3e38f, 0.0f, 1.0f};
  for (int round = 0; round < 400; ++round) {
    std::vector<float> logits(16), bias(16);
    const int64_t choices = 1 + random_.below(7);
    for (float& l : logits) l = kinds[random_.below(choices)];
    for (float& b : bias) b = kinds[random_.below(choices)];
    for (const Scores scores : {Scores::kSoftmax, Scores::kSigmoid}) {
      for (const int64_t groups : {1, 4}) {
        for (const float* b : {static_cast<const float*>(nullptr), static_cast<const float*>(bias.data())}) {
          Choice c = run(logits, {.experts = 16,
                                  .top_k = 4,
                                  .scores = scores,
                                  .normalise = round % 2 == 0,
                                  .bias = b,
                                  .groups = groups,
                                  .groups_kept = groups / 2 + groups % 2});
          const bool has_nan = std::any_of(logits.begin(), logits.end(), [](float l) { return std::isnan(l); });
          for (const float w : c.weights) ASSERT_TRUE(!has_nan || std::isnan(w)) << "a NaN is hidden";
          std::sort(c.ids.begin(), c.ids.end());
          ASSERT_EQ(std::unique(c.ids.begin(), c.ids.end()), c.ids.end());
          ASSERT_TRUE(c.ids.front() >= 0 && c.ids.back() < 16);
        }
      }
    }
  }
}

TEST_P(RouterTest, ASigmoidThatRoundsToOneChoosesByItsLogit) {
  for (Ops* ops : {ops_.get(), reference_.get()}) {
    const Choice c = run(*ops, {40.0f, 90.0f, 60.0f, -1.0f}, {.experts = 4, .top_k = 2, .scores = Scores::kSigmoid});
    EXPECT_EQ(c.ids, (std::vector<int32_t>{1, 2}));
    EXPECT_EQ(c.weights, (std::vector<float>{1.0f, 1.0f}));
  }
}

constexpr RouterSpec kMixer{.experts = 16, .top_k = 2, .scores = Scores::kSparseMixer, .jitter = 0.05f};

/// Logits that are not so near a threshold that f32 and double could see them on different sides.
bool clear_of_thresholds(const std::vector<float>& row) {
  std::vector<float> best(row);
  std::sort(best.rbegin(), best.rend());
  for (size_t k = 0; k < 2; ++k)
    for (const float l : row)
      if (std::fabs((best[k] - l) / std::max(std::fabs(l), best[k]) - 0.1f) < 1e-4f) return false;
  return true;
}

TEST_P(RouterTest, SparseMixerAgreesWithTheReference) {
  size_t near = 0;
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> row = random_.normal(16, round % 3 == 0 ? 0.1f : 3.0f);
    if (!all_apart({row.begin(), row.end()}) || !clear_of_thresholds(row)) continue;
    const Choice got = run(row, kMixer), want = run(*reference_, row, kMixer);
    EXPECT_EQ(got.ids, want.ids);
    expect_close(got.weights, want.weights, 2e-6, "SparseMixer");
    near += got.weights[0] < 0.999f || got.weights[1] < 0.999f;
  }
  EXPECT_GT(near, 20u) << "weights are shared with experts that are near";
}

// By the definition, with numbers that can be followed by hand.
TEST_P(RouterTest, SparseMixerSharesAWeightWithThoseThatAreNear) {
  const RouterSpec spec{.experts = 4, .top_k = 2, .scores = Scores::kSparseMixer, .jitter = 0.05f};
  const Choice far = run({1.0f, 4.0f, 2.0f, -3.0f}, spec);
  EXPECT_EQ(far.ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(far.weights, (std::vector<float>{1.0f, 1.0f})) << "nobody is near";
  const Choice near =
      run({3.7f, 4.0f, 3.5f, -3.0f}, spec);  // 0.3 / 4 is within 0.1, 0.5 / 4 and 0.2 / 3.7 are not, are
  EXPECT_EQ(near.ids, (std::vector<int32_t>{1, 0}));
  EXPECT_NEAR(near.weights[0], 1 / (1 + std::exp(-0.3)), 1e-6);
  EXPECT_NEAR(near.weights[1], 1 / (1 + std::exp(-0.2)), 1e-6) << "the first does not count again";
}

TEST_P(RouterTest, SparseMixerChoosesTwoWhateverTheLogits) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  const float kinds[] = {kNan, kInf, -kInf, 3e38f, -3e38f, 0.0f, 1.0f};
  for (int round = 0; round < 400; ++round) {
    std::vector<float> logits(16);
    const int64_t choices = 1 + random_.below(7);
    for (float& l : logits) l = kinds[random_.below(choices)];
    const Choice c = run(logits, kMixer);
    ASSERT_NE(c.ids[0], c.ids[1]);
    for (const int32_t id : c.ids) ASSERT_TRUE(id >= 0 && id < 16);
    if (std::ranges::any_of(logits, [](float l) { return std::isnan(l); }))
      ASSERT_TRUE(std::isnan(c.weights[0]) || std::isnan(c.weights[1])) << "a NaN is hidden";
  }
}

}  // namespace
}  // namespace moestro::kernels::test

#include "services/worker/engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <random>

#include "services/worker/engine/philox.h"

namespace moestro::engine {
namespace {

kernels::Ops& ops() {
  static const auto made = kernels::make_cpu_ops({.threads = 1, .isa = kernels::best_isa()});
  return *made;
}

const std::vector<float> kLogits = {0.5f, 2.0f, -1.0f, 1.0f, 2.0f, 0.0f};

std::vector<double> probabilities(double temperature) {
  double sum = 0;
  std::vector<double> p;
  for (const float x : kLogits) sum += p.emplace_back(std::exp(static_cast<double>(x) / temperature));
  for (double& x : p) x /= sum;
  return p;
}

std::vector<double> frequencies(const Sampling& sampling, int draws) {
  Sampler sampler(ops());
  std::vector<double> f(kLogits.size());
  for (int i = 0; i < draws; ++i) f[static_cast<size_t>(sampler.sample(kLogits, sampling, i))] += 1.0 / draws;
  return f;
}

TEST(Philox, KnownAnswers) {
  // The test vectors of the generator's authors (Random123, kat_vectors).
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) { EXPECT_EQ(Sampler(ops()).sample(kLogits, {}, 0), 1); }

TEST(Sampler, DrawsTheDistributionAtItsTemperature) {
  for (const double t : {0.5, 1.0, 2.0}) {
    const auto f = frequencies({.temperature = static_cast<float>(t), .seed = 3}, 40000);
    const auto p = probabilities(t);
    for (size_t i = 0; i < f.size(); ++i) EXPECT_NEAR(f[i], p[i], 0.015) << "temperature " << t << ", token " << i;
  }
}

TEST(Sampler, TopKKeepsTheBest) {
  const auto f = frequencies({.temperature = 1, .top_k = 3, .seed = 5}, 20000);
  const auto p = probabilities(1);
  const double kept = p[1] + p[4] + p[3];
  for (const size_t i : {1u, 3u, 4u}) EXPECT_NEAR(f[i], p[i] / kept, 0.015);
  for (const size_t i : {0u, 2u, 5u}) EXPECT_EQ(f[i], 0);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatHasIt) {
  const auto p = probabilities(1);  // 1 and 4 together have about 0.69
  const auto f = frequencies({.temperature = 1, .top_p = static_cast<float>(p[1] + p[4] - 0.01), .seed = 5}, 20000);
  EXPECT_NEAR(f[1], 0.5, 0.015);
  EXPECT_NEAR(f[1] + f[4], 1.0, 1e-9);
  const auto tiny = frequencies({.temperature = 1, .top_p = 1e-6f, .seed = 5}, 128);
  EXPECT_DOUBLE_EQ(tiny[1], 1.0) << "the best token is always kept";
}

TEST(Sampler, MinPKeepsWhatIsNearTheBest) {
  const auto f =
      frequencies({.temperature = 1, .min_p = 0.3f, .seed = 5}, 20000);  // exp(-1) = 0.37 stays, exp(-1.5) = 0.22 goes
  for (const size_t i : {0u, 2u, 5u}) EXPECT_EQ(f[i], 0);
  for (const size_t i : {1u, 3u, 4u}) EXPECT_GT(f[i], 0.1);
}

TEST(Sampler, DependsOnSeedChoiceAndPositionAlone) {
  Sampler a(ops()), b(ops());
  const Sampling s{.temperature = 1.5f, .seed = 11, .choice = 2};
  for (int i = 0; i < 50; ++i) (void)b.sample(kLogits, s, i);  // what was drawn before does not matter
  int differ_by_choice = 0, differ_by_seed = 0;
  for (int i = 0; i < 200; ++i) {
    const TokenId t = a.sample(kLogits, s, i);
    EXPECT_EQ(t, b.sample(kLogits, s, i));
    differ_by_choice += t != b.sample(kLogits, {.temperature = 1.5f, .seed = 11, .choice = 3}, i);
    differ_by_seed += t != b.sample(kLogits, {.temperature = 1.5f, .seed = 12, .choice = 2}, i);
  }
  EXPECT_GT(differ_by_choice, 50);
  EXPECT_GT(differ_by_seed, 50);
}

/// What each token is drawn with, the slow way: everything sorted, in double.
std::vector<double> chances(const std::vector<float>& logits, const Sampling& s) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (s.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(s.top_k)));
  std::vector<double> weights;
  for (const size_t i : order)
    weights.push_back(std::exp((static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) /
                               static_cast<double>(s.temperature)));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t kept = 0;
  double sum = 0;
  while (kept < weights.size() && (kept == 0 || sum < static_cast<double>(s.top_p) * total)) sum += weights[kept++];
  while (kept > 1 && weights[kept - 1] < static_cast<double>(s.min_p)) sum -= weights[--kept];
  std::vector<double> p(logits.size());
  for (size_t i = 0; i < kept; ++i) p[order[i]] = weights[i] / sum;
  return p;
}

TEST(Sampler, EqualsTheSortedReferenceOnLargeVocabularies) {
  std::mt19937 random(13);
  const Sampling kinds[] = {{.temperature = 1},
                            {.temperature = 0.7f, .top_p = 0.95f},
                            {.temperature = 1, .top_p = 0.5f},
                            {.temperature = 1.3f, .top_k = 40},
                            {.temperature = 1, .top_k = 200, .top_p = 0.9f},
                            {.temperature = 1, .min_p = 0.05f},
                            {.temperature = 2, .top_k = 1000, .top_p = 0.8f, .min_p = 0.02f}};
  Sampler sampler(ops());
  for (const float spread : {1.0f, 4.0f}) {
    std::vector<float> logits(3001);
    for (float& x : logits) x = std::normal_distribution<float>(0, spread)(random);
    for (size_t i = 0; i < logits.size(); i += 50) logits[i] = -std::numeric_limits<float>::infinity();
    for (size_t i = 3; i < logits.size(); i += 500) logits[i] = 2 * spread;  // equals
    for (Sampling s : kinds) {
      const std::vector<double> p = chances(logits, s);
      // Where the draws fall along the ids: as the chances summed along them say, to within what so many draws scatter.
      constexpr int kDraws = 4000;
      std::vector<double> drawn(logits.size());
      int outside = 0;
      for (int i = 0; i < kDraws; ++i) {
        const auto id = static_cast<size_t>(sampler.sample(logits, s, i));
        drawn[id] += 1.0 / kDraws;
        outside += p[id] == 0;
      }
      EXPECT_LE(outside, kDraws / 1000) << "a token at the border, where the last bit decides, at most";
      double expected = 0, got = 0, apart = 0;
      for (size_t i = 0; i < p.size(); ++i)
        expected += p[i], got += drawn[i], apart = std::max(apart, std::abs(expected - got));
      EXPECT_LT(apart, 1.63 / std::sqrt(kDraws))
          << "Kolmogorov and Smirnov, 1 %; spread " << spread << ", top_k " << s.top_k << ", top_p " << s.top_p;
    }
  }
}

TEST(Sampler, ATinyTemperatureIsGreedy) {
  for (const float t : {1e-6f, 1e-38f, std::numeric_limits<float>::denorm_min()})
    EXPECT_EQ(Sampler(ops()).sample(std::vector<float>{0.5f, 2.0f, 1.0f}, {.temperature = t, .seed = 3}, 7), 1);
}

TEST(Sampler, ARowTakesFarLessThanSorting) {
  std::mt19937 random(17);
  std::vector<float> logits(32000);
  for (float& x : logits) x = std::normal_distribution<float>(0, 2)(random);
  Sampler sampler(ops());
  const Sampling kinds[] = {{.temperature = 1}, {.temperature = 1, .top_p = 0.95f}, {.temperature = 1, .top_k = 40}};
  for (const Sampling& s : kinds) {
    double best_us = 1e9;
    for (int i = 0; i < 50; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      (void)sampler.sample(logits, s, i);
      best_us = std::min(best_us,
                         std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::printf("a token of 32,000, top_k %d, top_p %.2f: %.0f us\n", s.top_k, static_cast<double>(s.top_p), best_us);
    EXPECT_LT(best_us, 2000) << "sorting the vocabulary took 2.8 ms";
  }
}

TEST(Sampler, ScoresAreOfTheUnmodifiedDistribution) {
  TokenScore score;
  Sampler(ops()).score(kLogits, 3, 3, score);
  const auto p = probabilities(1);
  EXPECT_NEAR(score.logprob, std::log(p[3]), 1e-6);
  ASSERT_EQ(score.best.size(), 3u);
  EXPECT_EQ(score.best[0].id, 1);
  EXPECT_EQ(score.best[1].id, 4);
  EXPECT_EQ(score.best[2].id, 3);
  EXPECT_NEAR(score.best[0].logprob, std::log(p[1]), 1e-6);
  Sampler(ops()).score(kLogits, 0, 100, score);
  EXPECT_EQ(score.best.size(), kLogits.size()) << "no more than there are";
}

TEST(Sampler, SeesWhatIsNotFinite) {
  EXPECT_TRUE(Sampler::all_finite(kLogits));
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    auto logits = kLogits;
    logits[4] = bad;
    EXPECT_FALSE(Sampler::all_finite(logits));
  }
}

}  // namespace
}  // namespace moestro::engine

// Policies on generated traces: the oracle above all, frequency above recency where popularity is skewed, prompts that
// touch every expert between sequences that decode.

#include "tests/policy/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <random>

#include "common/policy/lru_policy.h"
#include "common/policy/make_policy.h"

namespace moestro::policy {
namespace {

struct Shape {
  uint32_t layers = 4, experts = 16, top_k = 2;
  double skew = 1;  ///< of popularity: 1 / rank^skew
  uint32_t keys() const { return layers * experts; }
};

class Traffic {
 public:
  Traffic(Shape shape, uint64_t seed) : shape_(shape), random_(seed) { shift(); }

  /// Other experts are popular from now on.
  void shift() {
    order_.resize(shape_.keys());
    for (uint32_t i = 0; i < order_.size(); ++i) order_[i] = i % shape_.experts;
    for (uint32_t layer = 0; layer < shape_.layers; ++layer)
      std::shuffle(order_.begin() + layer * shape_.experts, order_.begin() + (layer + 1) * shape_.experts, random_);
  }
  void decode(int tokens) {
    for (int t = 0; t < tokens; ++t)
      for (uint32_t layer = 0; layer < shape_.layers; ++layer)
        for (const uint32_t expert : choose(layer)) uses.push_back({layer * shape_.experts + expert, 1, true});
  }
  void prompt(int tokens) {
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      std::vector<int> rows(shape_.experts);
      for (int t = 0; t < tokens; ++t)
        for (const uint32_t expert : choose(layer)) ++rows[expert];
      for (uint32_t expert = 0; expert < shape_.experts; ++expert)
        if (rows[expert] > 0)
          uses.push_back(
              {layer * shape_.experts + expert, static_cast<float>(rows[expert]) / static_cast<float>(tokens), false});
    }
  }
  std::vector<ReplayUse> uses;

 private:
  std::vector<uint32_t> choose(uint32_t layer) {
    std::vector<double> weight(shape_.experts);
    for (uint32_t i = 0; i < shape_.experts; ++i)
      weight[order_[layer * shape_.experts + i]] = std::pow(i + 1, -shape_.skew);
    std::vector<uint32_t> chosen;
    while (chosen.size() < shape_.top_k) {
      const auto expert = std::discrete_distribution<uint32_t>(weight.begin(), weight.end())(random_);
      chosen.push_back(expert);
      weight[expert] = 0;
    }
    return chosen;
  }
  Shape shape_;
  std::mt19937_64 random_;
  std::vector<uint32_t> order_;
};

ReplayScore score_of(const std::string& policy, const std::vector<ReplayUse>& uses, size_t keys, size_t slots) {
  return replay(uses, **make_policy(policy, keys), slots);
}

TEST(Replay, CountsWhatHits) {
  const std::vector<ReplayUse> uses{{0}, {1}, {0}, {2}, {0, 0.5, false}, {1}};
  LruPolicy lru;
  const ReplayScore score = replay(uses, lru, 2);
  EXPECT_EQ(score.uses, 6u);
  EXPECT_EQ(score.hits, 2u) << "0 twice; 2 took 1's place";
  EXPECT_EQ(score.decode_uses, 5u);
  EXPECT_EQ(score.decode_hits, 1u);
  EXPECT_EQ(replay_oracle(uses, 2).hits, 2u);
  EXPECT_EQ(replay_oracle(uses, 3).hits, 3u);
}

TEST(Replay, NoPolicyBeatsTheOracle) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const Shape shape{2 + static_cast<uint32_t>(random() % 4), 4 + static_cast<uint32_t>(random() % 20),
                      1 + static_cast<uint32_t>(random() % 3), 0.3 * static_cast<double>(random() % 6)};
    Traffic traffic(shape, seed);
    for (int part = 0; part < 6; ++part) {
      if (random() % 3 == 0) traffic.shift();
      if (random() % 2 == 0) traffic.prompt(1 + static_cast<int>(random() % 60));
      traffic.decode(20);
    }
    const size_t slots = shape.top_k + random() % shape.keys();
    const uint64_t best = replay_oracle(traffic.uses, slots).hits;
    for (const std::string& name : policy_names())
      ASSERT_LE(score_of(name, traffic.uses, shape.keys(), slots).hits, best)
          << name << ", seed " << seed << ", " << slots << " slots";
  }
}

/// What each policy reaches at 10, 25 and 50 % of the entries, beside the oracle: requests that each have favourites of
/// their own among what is popular with all, a prompt before each.
TEST(Replay, RatesAtThreeSizesBesideTheOracle) {
  const Shape common{.layers = 8, .experts = 32, .top_k = 2, .skew = 0.7};
  Traffic traffic(common, 9);
  for (int request = 0; request < 30; ++request) {
    if (request % 10 == 9) traffic.shift();
    traffic.prompt(64);
    traffic.decode(60);
  }
  double last_best = 0;
  for (const int percent : {10, 25, 50}) {
    const size_t slots = common.keys() * static_cast<size_t>(percent) / 100;
    const double best = replay_oracle(traffic.uses, slots).decode_hit_rate();
    std::map<std::string, double> rate;
    for (const std::string& name : policy_names())
      rate[name] = score_of(name, traffic.uses, common.keys(), slots).decode_hit_rate();
    std::printf("%3d %% of the entries: belady %.1f", percent, 100 * best);
    for (const std::string& name : policy_names()) std::printf(", %s %.1f", name.c_str(), 100 * rate[name]);
    std::printf("\n");
    SCOPED_TRACE(percent);
    EXPECT_GT(best, last_best);
    for (const char* name : {"interval", "lfru"}) {
      EXPECT_GT(rate[name], rate["random"] + 0.04) << name;
      EXPECT_GT(rate[name], rate["lru"] - 0.005) << name;
    }
    EXPECT_GT(rate["interval"], rate["lfru"] - 0.01);
    EXPECT_GT(rate["lfu"], rate["random"] + 0.04);
    EXPECT_GT(rate["lfru"], 0.45 * best);
    last_best = best;
  }
}

TEST(Replay, FrequencyBeatsRecencyWherePopularityIsSkewed) {
  const Shape shape;
  Traffic traffic(shape, 3);
  traffic.decode(600);
  const size_t slots = shape.keys() / 4;
  const double lru = score_of("lru", traffic.uses, shape.keys(), slots).hit_rate();
  for (const char* name : {"interval", "lfru", "lfu"})
    EXPECT_GT(score_of(name, traffic.uses, shape.keys(), slots).hit_rate(), lru + 0.03) << name;
}

TEST(Replay, AfterAShiftTheOldFavouritesFade) {
  const Shape shape;
  Traffic traffic(shape, 4);
  traffic.decode(3000);
  const size_t before = traffic.uses.size();
  traffic.shift();
  traffic.decode(300);
  const std::vector<ReplayUse> after(traffic.uses.begin() + static_cast<long>(before), traffic.uses.end());
  const auto hits_after = [&](const std::string& name) {
    const std::vector<ReplayUse> first(traffic.uses.begin(), traffic.uses.begin() + static_cast<long>(before));
    return score_of(name, traffic.uses, shape.keys(), 16).hits - score_of(name, first, shape.keys(), 16).hits;
  };
  for (const char* name : {"interval", "lfru"})
    EXPECT_GT(static_cast<double>(hits_after(name)),
              0.9 * static_cast<double>(score_of(name, after, shape.keys(), 16).hits))
        << name;
}

/// Short requests of changing subjects: what each uses comes in a burst, and then not for long.
TEST(Replay, ShortRequestsOfChangingSubjectsLoseLittleToTheMostRecent) {
  const Shape shape{.layers = 8, .experts = 16, .top_k = 2, .skew = 1.5};
  Traffic traffic(shape, 11);
  for (int request = 0; request < 60; ++request) traffic.shift(), traffic.prompt(24), traffic.decode(16);
  const auto rate = [&](const char* name) {
    return score_of(name, traffic.uses, shape.keys(), shape.keys() / 4).decode_hit_rate();
  };
  std::printf("interval %.1f, lfru %.1f, lru %.1f\n", 100 * rate("interval"), 100 * rate("lfru"), 100 * rate("lru"));
  EXPECT_GT(rate("interval"), rate("lru") - 0.05);
}

/// Steps with so many sequences that nearly every expert of each layer is used: what was used longest ago is next.
TEST(Replay, WhereAllIsUsedInTurnAFixedPartStays) {
  constexpr uint32_t kKeys = 128;
  std::mt19937 chance(7);
  std::vector<ReplayUse> uses;
  for (int step = 0; step < 100; ++step)
    for (uint32_t key = 0; key < kKeys; ++key)
      if (chance() % 50 != 0) uses.push_back({key, 1, true});
  for (const int percent : {10, 25, 50, 75}) {
    const size_t slots = kKeys * static_cast<size_t>(percent) / 100;
    const double best = replay_oracle(uses, slots).hit_rate();
    EXPECT_GT(score_of("interval", uses, kKeys, slots).hit_rate(), 0.9 * best) << percent;
    EXPECT_LT(score_of("lfru", uses, kKeys, slots).hit_rate(), 0.1 * best) << "the trap is there at " << percent;
  }
}

/// The same after many prompts in turn, each of which uses a part of every expert: before the first token is decoded it
/// is known that all intervals are equal.
TEST(Replay, AFixedPartStaysFromTheFirstTokensAfterManyPrompts) {
  constexpr uint32_t kKeys = 128;
  std::vector<ReplayUse> uses;
  const auto step = [&](float weight) {
    for (uint32_t key = 0; key < kKeys; ++key) uses.push_back({key, weight, weight == 1});
  };
  for (int chunk = 0; chunk < 32; ++chunk) step(0.25);
  for (int token = 0; token < 8; ++token) step(1);
  for (const int percent : {10, 25, 50, 75}) {
    const size_t slots = kKeys * static_cast<size_t>(percent) / 100;
    const double fixed = static_cast<double>(slots - 1) / kKeys;  // one slot for what comes and goes
    const ReplayScore score = score_of("interval", uses, kKeys, slots);
    EXPECT_GT(score.decode_hit_rate(), 0.7 * fixed) << percent << ": the first step may miss";
    EXPECT_GT(score.hit_rate(), 0.85 * fixed) << percent;
  }
}

/// Decoding, then a prompt of another request that touches every expert, then the same decoding again.
TEST(Replay, APromptThatTouchesEveryExpertDoesNotFlushTheDecodeSet) {
  const Shape shape{.layers = 4, .experts = 32, .top_k = 2, .skew = 1.5};
  const size_t slots = shape.keys() / 4;
  const auto first_tokens_after = [&](const std::string& name, bool prompt) {
    Traffic traffic(shape, 5);
    traffic.decode(300);
    for (int chunk = 0; prompt && chunk < 4; ++chunk) traffic.prompt(512);
    const uint64_t before = score_of(name, traffic.uses, shape.keys(), slots).decode_hits;
    const size_t at = traffic.uses.size();
    traffic.decode(20);
    const double wanted = static_cast<double>(traffic.uses.size() - at);
    return static_cast<double>(score_of(name, traffic.uses, shape.keys(), slots).decode_hits - before) / wanted;
  };
  for (const char* name : {"interval", "lfru", "lfu", "lru"})
    EXPECT_GT(first_tokens_after(name, true), first_tokens_after(name, false) - 0.1) << name;
  // What the weight is for: the same uses, none of them marked as a prompt's, do flush a cache that goes by recency.
  Traffic traffic(shape, 5);
  traffic.decode(300);
  for (int chunk = 0; chunk < 4; ++chunk) traffic.prompt(512);
  for (ReplayUse& use : traffic.uses) use.weight = 1;
  const uint64_t before = score_of("lru", traffic.uses, shape.keys(), slots).hits;
  const size_t at = traffic.uses.size();
  traffic.decode(2);
  const double flushed = static_cast<double>(score_of("lru", traffic.uses, shape.keys(), slots).hits - before) /
                         static_cast<double>(traffic.uses.size() - at);
  EXPECT_LT(flushed, first_tokens_after("lru", true) - 0.2);
}

}  // namespace
}  // namespace moestro::policy

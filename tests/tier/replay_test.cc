// Replays of traces small enough to be reckoned by hand.

#include "common/tier/replay.h"

#include <gmock/gmock.h>

#include <random>

#include "common/policy/lru_policy.h"
#include "common/tier/clairvoyant.h"

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;

/// Requests of decoded tokens; each token chooses `experts[token][layer]`.
Routes make_routes(int32_t experts, const std::vector<std::vector<std::vector<uint16_t>>>& requests,
                   int prompt_tokens = 0) {
  Routes routes{"test", static_cast<int32_t>(requests[0][0].size()), experts, 1, {}, {}};
  for (size_t r = 0; r < requests.size(); ++r) {
    routes.requests.push_back({r + 1, {}});
    for (size_t t = 0; t < requests[r].size(); ++t) {
      routes.requests[r].tokens.push_back({t >= static_cast<size_t>(prompt_tokens), static_cast<int32_t>(t),
                                           static_cast<uint32_t>(routes.choices.size())});
      routes.choices.insert(routes.choices.end(), requests[r][t].begin(), requests[r][t].end());
    }
  }
  return routes;
}
ReplaySetup setup_of(int32_t slots) {
  ReplaySetup setup;
  setup.slots = slots, setup.expert_bytes = 1000, setup.chunk_bytes = 250;
  setup.times.attention = Nanos{1000}, setup.times.expert = Nanos{1000}, setup.times.link_bytes_per_s = 1e9;
  return setup;
}
std::unique_ptr<policy::CachePolicy> lru() { return std::make_unique<policy::LruPolicy>(); }
std::vector<size_t> all_of(const Routes& routes) {
  std::vector<size_t> all(routes.requests.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

TEST(Replay, OnDemandStallsForEachCopy) {
  const Routes routes = make_routes(2, {{{0, 1}, {0, 1}, {1, 1}}});
  const ReplayReport report = replay(routes, all_of(routes), setup_of(4), lru(), {});
  EXPECT_EQ(report.tokens, 3u);
  EXPECT_EQ(report.uses, 6u);
  EXPECT_EQ(report.hits, 3u);
  EXPECT_EQ(report.stall, Nanos{3000});
  EXPECT_EQ(report.time, Nanos{3 * 4000 + 3000});
  EXPECT_EQ(report.moved_bytes, 3000u);
  EXPECT_THAT(report.layer_hits, ElementsAre(1u, 2u));
  EXPECT_THAT(report.request_hit_rate, ElementsAre(0.5));
}

/// One layer of four experts, two a token; a low copy has a quarter of the bytes.
TEST(Replay, AMissIsServedByALowCopyWhereItMattersLittle) {
  Routes routes{"test", 1, 4, 2, {{1, {}}}, {}};
  const std::vector<std::vector<uint16_t>> chosen{{0, 1}, {0, 1}, {2, 1}, {3, 1}};
  for (const auto& token : chosen) {
    routes.requests[0].tokens.push_back({true, 0, static_cast<uint32_t>(routes.choices.size())});
    routes.choices.insert(routes.choices.end(), token.begin(), token.end());
    routes.weights.insert(routes.weights.end(), {0.9F, 0.1F});
  }
  ReplaySetup setup = setup_of(2);
  setup.mixed = MixedOptions{.t1 = 0.6, .t2 = 1};
  setup.low_slots = 1, setup.low_bytes = 250;
  const ReplayReport fast = replay(routes, all_of(routes), setup, lru(), {}, nullptr, lru());
  EXPECT_EQ(fast.low, 1u) << "of the first token; later ones have time for the full copy while another is computed";
  EXPECT_EQ(fast.moved_bytes, 4 * 1000u + 250u);
  setup.times.link_bytes_per_s = 0.25e9;
  const ReplayReport low = replay(routes, all_of(routes), setup, lru(), {}, nullptr, lru());
  EXPECT_EQ(low.uses, 8u);
  EXPECT_EQ(low.hits, 4u) << "0 full once, 1 low three times";
  EXPECT_EQ(low.choices, 8u);
  EXPECT_EQ(low.low, 4u);
  EXPECT_EQ(low.skipped, 0u);
  EXPECT_EQ(low.moved_bytes, 3 * 1000u + 250u);
  EXPECT_DOUBLE_EQ(low.penalty, 3 + 0.25);
  setup.mixed->t2 = 0.6;
  const ReplayReport skipped = replay(routes, all_of(routes), setup, lru(), {}, nullptr, lru());
  EXPECT_EQ(skipped.skipped, 1u) << "of the first token; for later ones the low copy comes in time";
  EXPECT_EQ(skipped.low, 3u);
  EXPECT_EQ(skipped.uses, 7u);
  EXPECT_EQ(skipped.moved_bytes, 3 * 1000u + 250u);
  EXPECT_LT(skipped.time, low.time);
}

/// One layer, two of four experts a token. A copy takes as long as four experts on the device, the CPU as long as two.
TEST(Replay, TheCpuComputesWhatTheLinkWouldBringLater) {
  Routes routes{"test", 1, 4, 2, {{1, {}}}, {}};
  for (const auto& token : std::vector<std::vector<uint16_t>>{{0, 1}, {0, 1}, {2, 3}, {1, 2}}) {
    routes.requests[0].tokens.push_back({true, 0, static_cast<uint32_t>(routes.choices.size())});
    routes.choices.insert(routes.choices.end(), token.begin(), token.end());
  }
  ReplaySetup setup = setup_of(4);
  setup.times.link_bytes_per_s = 0.25e9;
  EXPECT_EQ(replay(routes, all_of(routes), setup, lru(), {}).stall, Nanos{2 * (4000 + 3000)});
  setup.times.cpu_ratio = 2;
  const ReplayReport helped = replay(routes, all_of(routes), setup, lru(), {});
  EXPECT_EQ(helped.choices, 8u);
  EXPECT_EQ(helped.on_cpu, 5u) << "one while the other is copied; one; two, as one copy takes no less; one";
  EXPECT_EQ(helped.stall, Nanos{4000 + 1000 + 4000 + 1000});
  EXPECT_EQ(helped.moved_bytes, 1000u);
  EXPECT_EQ(helped.hits, 2u);
}

TEST(Replay, LatencyIsPaidOnceACopy) {
  const Routes routes = make_routes(2, {{{0, 1}}});
  ReplaySetup setup = setup_of(4);
  setup.times.link_latency = Nanos{70};
  EXPECT_EQ(replay(routes, all_of(routes), setup, lru(), {}).stall, Nanos{2 * 1070});
}

TEST(Replay, PerfectPredictionHidesWhatTheLinkCanBring) {
  std::vector<std::vector<uint16_t>> tokens;
  for (uint16_t t = 0; t < 20; ++t)
    tokens.push_back(
        {static_cast<uint16_t>(t % 4), static_cast<uint16_t>((t + 1) % 4), static_cast<uint16_t>((t + 2) % 4)});
  const Routes routes = make_routes(4, {tokens});
  const auto requests = all_of(routes);
  const ReplaySetup setup = setup_of(3);
  const auto perfect = make_perfect_predictor(routes, requests, setup);
  const ReplayReport with = replay(routes, requests, setup, lru(), {perfect.get(), {}});
  const ReplayReport without = replay(routes, requests, setup, lru(), {});
  EXPECT_EQ(without.hits, 0u);
  EXPECT_GE(with.hits, 55u);
  EXPECT_LE(with.stall, Nanos{5000});
  EXPECT_EQ(with.wasted_bytes, 0u);
  EXPECT_GE(without.stall, Nanos{60 * 1000});
}

TEST(Replay, AllIsLeftOfAnExpertThatIsNotKept) {
  const Routes routes = make_routes(2, {{{0, 1}, {0, 1}}});
  ReplaySetup setup = setup_of(4);
  setup.keep = false;
  EXPECT_EQ(replay(routes, all_of(routes), setup, lru(), {}).hits, 0u);
}

TEST(Replay, PromptsAreStepsOfTheirOwn) {
  const Routes routes = make_routes(2, {{{0, 1}, {1, 1}, {0, 0}, {0, 0}}, {{0, 1}, {1, 1}, {0, 0}}}, 2);
  const auto steps = plan_steps(routes, all_of(routes), 2, 512);
  ASSERT_EQ(steps.size(), 4u);
  EXPECT_TRUE(steps[0].scan && steps[1].scan);
  EXPECT_EQ(steps[2].sequences.size(), 2u) << "both decode";
  EXPECT_EQ(steps[3].sequences.size(), 1u);
  EXPECT_THAT(steps[2].ended, ElementsAre(1u));
  std::vector<StepUse> uses;
  uses_of(routes, steps[0], 0, uses);
  ASSERT_EQ(uses.size(), 2u);
  uses_of(routes, steps[0], 1, uses);
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].tokens, 2);
  EXPECT_EQ(plan_steps(routes, all_of(routes), 1, 1).size(), 7u) << "chunks of one token";
}

/// Notes what it is asked and told.
class NotingPredictor final : public prediction::Predictor {
 public:
  std::string_view name() const override { return "noting"; }
  void begin_iteration(std::span<const prediction::IterationSequence>) override { ++begun; }
  void routed(int32_t, std::span<const prediction::SequenceRoutes>) override { ++told; }
  void forecast(int32_t, prediction::Forecast& out) override { out.clear(), ++asked; }
  void end_iteration() override { --begun; }
  void end_sequence(uint64_t) override {}
  int begun = 0, told = 0, asked = 0;
};

TEST(Replay, NothingIsAskedOfAPredictorWhileAllThereIsToUseIsThere) {
  const std::vector<std::vector<uint16_t>> tokens(200, {0, 1, 2});
  const Routes routes = make_routes(4, {tokens});
  NotingPredictor all_fit, three_fit;
  EXPECT_EQ(replay(routes, all_of(routes), setup_of(12), lru(), {&all_fit, {}}).hits, 597u);
  EXPECT_EQ(all_fit.begun, 0);
  EXPECT_LE(all_fit.asked, 6 * 4);
  EXPECT_EQ(all_fit.told, all_fit.asked / 4 * 3) << "it rests";
  EXPECT_EQ(replay(routes, all_of(routes), setup_of(3), lru(), {&three_fit, {}}).hits, 597u);
  EXPECT_EQ(three_fit.told, 600) << "it has to know, for the day on which something is missing";
  EXPECT_GT(three_fit.asked, all_fit.asked);
  EXPECT_LE(three_fit.asked, 50 * 4);
}

TEST(Replay, AMissWakesThePredictor) {
  std::vector<std::vector<uint16_t>> tokens(100, {0, 1, 2});
  tokens.resize(120, {0, 3, 2});
  const Routes routes = make_routes(4, {tokens});
  const Routes calm = make_routes(4, {std::vector<std::vector<uint16_t>>(120, {0, 1, 2})});
  for (const int32_t slots : {3, 12}) {
    NotingPredictor woken, asleep;
    replay(routes, all_of(routes), setup_of(slots), lru(), {&woken, {}});
    replay(calm, all_of(calm), setup_of(slots), lru(), {&asleep, {}});
    EXPECT_GE(woken.asked, asleep.asked + 12) << slots;
  }
}

TEST(Replay, APromptCopiesEachExpertOnceAndLeavesWhatDecodingUses) {
  // One request decodes with experts 0 to 2; then one comes whose prompt goes everywhere, and which decodes as the
  // first does.
  std::vector<std::vector<uint16_t>> first(40, {0, 1, 2}), second;
  for (uint16_t t = 0; t < 64; ++t)
    second.push_back(
        {static_cast<uint16_t>(t % 8), static_cast<uint16_t>((t + 3) % 8), static_cast<uint16_t>((t + 5) % 8)});
  const Routes prompts = make_routes(8, {second}, 64);
  Routes routes = make_routes(8, {first});
  ASSERT_TRUE(append_routes(routes, prompts).is_ok());
  ASSERT_TRUE(append_routes(routes, make_routes(8, {first})).is_ok());
  const ReplayReport report = replay(routes, all_of(routes), setup_of(12), lru(), {});
  EXPECT_EQ(report.prompt_steps, 1u);
  EXPECT_EQ(report.prompt_uses, 24u);
  EXPECT_EQ(report.prompt_moved_bytes, 21u * 1000) << "all but the three that were there";
  EXPECT_EQ(report.prompt_held, 3u);
  EXPECT_EQ(report.prompt_kept_share(), 1);
  EXPECT_EQ(report.after_uses, 3u * ReplayReport::kAfterPrompt);
  EXPECT_EQ(report.after_hit_rate(), 1);
}

TEST(Replay, BeladyHitsMostAndTheClairvoyantIsFastest) {
  std::mt19937_64 random(7);
  std::vector<std::vector<uint16_t>> tokens(200, std::vector<uint16_t>(6));
  for (auto& token : tokens)
    for (auto& expert : token) expert = static_cast<uint16_t>(std::min(random() % 8, random() % 8));
  const Routes routes = make_routes(8, {tokens});
  const auto requests = all_of(routes);
  for (const int32_t slots : {1, 5, 12, 24}) {
    const ReplaySetup setup = setup_of(slots);
    const ReplayReport with_lru = replay(routes, requests, setup, lru(), {});
    const ReplayReport belady = replay_belady(routes, requests, setup);
    const Clairvoyant best = clairvoyant(routes, requests, setup);
    const auto perfect = make_perfect_predictor(routes, requests, setup);
    const ReplayReport foreseen = replay(routes, requests, setup, lru(), {perfect.get(), {}});
    EXPECT_GE(belady.hits, with_lru.hits) << slots;
    EXPECT_LE(best.total_time, belady.time) << slots;
    EXPECT_LE(best.total_time, foreseen.time) << slots;
    EXPECT_LE(best.least_time, best.total_time) << slots;
    EXPECT_EQ(best.report.tokens, 200u);
  }
}

}  // namespace
}  // namespace moestro::tier

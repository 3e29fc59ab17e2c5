// The window of last uses, held against a replay of the routes that it was cut from.

#include "common/tier/use_window.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "common/policy/lru_policy.h"
#include "common/tier/replay.h"

namespace moestro::tier {
namespace {

constexpr int32_t kLayers = 4, kExperts = 16, kTokens = 60;
constexpr size_t kRequests = 6, kUsesOfRequest = size_t{kLayers} * 2 * kTokens;

/// Requests that decode `kTokens` each; each has its favourites, of which a token takes two a layer.
Routes routes_of(uint64_t seed) {
  std::mt19937_64 random(seed);
  Routes routes{"test", kLayers, kExperts, 2, {}, {}};
  for (size_t r = 0; r < kRequests; ++r) {
    auto& request = routes.requests.emplace_back();
    request.id = r + 1;
    for (int32_t t = 0; t < kTokens; ++t) {
      request.tokens.push_back({true, t, static_cast<uint32_t>(routes.choices.size())});
      for (int32_t l = 0; l < kLayers; ++l) {
        const auto near = [&] {
          return static_cast<uint16_t>((r * 3 + std::min(random() % kExperts, random() % kExperts)) % kExperts);
        };
        const uint16_t first = near();
        uint16_t second = near();
        while (second == first) second = near();
        routes.choices.push_back(std::min(first, second)), routes.choices.push_back(std::max(first, second));
      }
    }
  }
  return routes;
}

/// Of requests [from, to), after those before them; `hit` of every second use.
UseWindow window_of(const Routes& routes, size_t from, size_t to) {
  UseWindow window;
  window.used_before.resize(size_t{kLayers} * kExperts);
  uint64_t uses = 0;
  for (size_t r = 0; r < to; ++r)
    for (const RoutedToken& token : routes.requests[r].tokens)
      for (int32_t l = 0; l < kLayers; ++l) {
        if (r >= from) window.visits.push_back({static_cast<uint32_t>(window.uses.size()), false, l == 0});
        for (const uint16_t expert : routes.chosen(token, l)) {
          const auto key = static_cast<Key>(l * kExperts + expert);
          if (r < from) window.used_before[key] = ++uses;
          else window.uses.push_back({key, 1, window.uses.size() % 2 == 0});
        }
      }
  return window;
}

TierOptions options_of(int32_t slots) {
  return {.layers = kLayers, .experts = kExperts, .slots = slots, .expert_bytes = 1000};
}

/// The same slots behind a link that takes no time, by replay of requests [0, to).
ReplaySetup window_setup(int32_t slots) {
  ReplaySetup setup;
  setup.slots = slots, setup.expert_bytes = 1000, setup.prefetch = false;
  setup.times.attention = Nanos{1000}, setup.times.expert = Nanos{1000};
  return setup;
}
std::vector<size_t> first_requests(size_t to) {
  std::vector<size_t> requests(to);
  std::iota(requests.begin(), requests.end(), size_t{0});
  return requests;
}
uint32_t hits_in(const ReplayReport& report, size_t from, size_t to) {
  double hits = 0;
  for (size_t r = from; r < to; ++r) hits += report.request_hit_rate.at(r) * static_cast<double>(kUsesOfRequest);
  return static_cast<uint32_t>(std::lround(hits));
}

TEST(UseWindow, FromTheFirstUseOnItSaysWhatReplaySays) {
  for (const int32_t slots : {2, 6, 16, 32, 64}) {
    const Routes routes = routes_of(static_cast<uint64_t>(slots));
    const auto requests = first_requests(4);  // the first quarter of the window is the first request
    const WindowHits hits = hits_of(window_of(routes, 0, 4), options_of(slots));
    EXPECT_EQ(hits.uses, 3 * kUsesOfRequest);
    EXPECT_EQ(hits.hits, hits.uses / 2);
    EXPECT_EQ(hits.lru_hits,
              hits_in(replay(routes, requests, window_setup(slots), std::make_unique<policy::LruPolicy>(), {}), 1, 4))
        << slots;
    EXPECT_EQ(hits.belady_hits, hits_in(replay_belady(routes, requests, window_setup(slots)), 1, 4)) << slots;
  }
}

TEST(UseWindow, AWindowAmidARunIsNoWorseThanTheRun) {
  for (const int32_t slots : {6, 16, 32, 48}) {
    const Routes routes = routes_of(100 + static_cast<uint64_t>(slots));
    const auto requests = first_requests(6);
    const WindowHits hits = hits_of(window_of(routes, 2, 6), options_of(slots));
    const uint32_t lru =
        hits_in(replay(routes, requests, window_setup(slots), std::make_unique<policy::LruPolicy>(), {}), 3, 6);
    const uint32_t belady = hits_in(replay_belady(routes, requests, window_setup(slots)), 3, 6);
    const double one_percent = 0.01 * static_cast<double>(hits.uses);
    EXPECT_NEAR(hits.lru_hits, lru, one_percent / 5)
        << slots << " slots: what LRU holds at the window's begin is known";
    EXPECT_NEAR(hits.belady_hits, belady, one_percent) << slots;
    EXPECT_GT(hits.belady_hits, hits.lru_hits) << slots;
  }
}

TEST(UseWindow, WherePromptsPassOnlyDecodingIsCounted) {
  const Routes routes = routes_of(9);
  UseWindow window = window_of(routes, 0, 4);
  for (auto& visit : window.visits) visit.scan = true;
  EXPECT_EQ(hits_of(window, options_of(8)).uses, 0u);
  for (size_t v = window.visits.size() - 4; v < window.visits.size(); ++v) window.visits[v].scan = false;
  const WindowHits hits = hits_of(window, options_of(8));
  EXPECT_EQ(hits.uses, 8u);
  EXPECT_LE(hits.lru_hits, 8u);
}

TEST(UseWindow, WhoIsStoppedKnowsNothing) {
  const Routes routes = routes_of(5);
  int asked = 0;
  const WindowHits hits = hits_of(window_of(routes, 0, 4), options_of(8), [&] { return ++asked < 10; });
  EXPECT_EQ(asked, 10);
  EXPECT_EQ(hits.uses, 0u);
  EXPECT_EQ(hits_of({}, options_of(8)).uses, 0u);
}

}  // namespace
}  // namespace moestro::tier

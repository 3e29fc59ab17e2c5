// The order in which a replay's requests join its batch.

#include "common/tier/replay_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace moestro::tier {
namespace {

using ::testing::HasSubstr;

constexpr size_t kDomains = 4;

/// Request i is of domain i % kDomains, which has its own tokens and experts; answers of one to `answer_max` tokens.
Routes routes_of(size_t requests, int answer_max, uint64_t seed) {
  std::mt19937_64 random(seed);
  Routes routes;
  routes.layers = 2, routes.experts = 16, routes.top_k = 2;
  for (size_t i = 0; i < requests; ++i) {
    const auto domain = static_cast<int32_t>(i % kDomains);
    RoutedRequest request{i + 1, {}};
    const int answer = 1 + static_cast<int>(random() % static_cast<uint64_t>(answer_max));
    for (int t = 0; t < 6 + answer; ++t) {
      const auto first = static_cast<uint32_t>(routes.choices.size());
      const auto token = t < 6 ? domain * 100 + static_cast<int32_t>(random() % 20) : -1;
      request.tokens.push_back({t >= 6, t, first, token});
      for (int32_t layer = 0; layer < routes.layers; ++layer) {
        const auto expert = static_cast<uint16_t>(domain * 4 + static_cast<int32_t>(random() % 3));
        routes.choices.push_back(expert), routes.choices.push_back(static_cast<uint16_t>(expert + 1));
      }
    }
    routes.requests.push_back(std::move(request));
  }
  return routes;
}

std::vector<size_t> range(size_t from, size_t end) {
  std::vector<size_t> all(end - from);
  std::iota(all.begin(), all.end(), from);
  return all;
}

/// How often the request that joins next is of another domain.
size_t changes(const std::vector<size_t>& joined) {
  size_t count = 0;
  for (size_t i = 1; i < joined.size(); ++i) count += joined[i] % kDomains != joined[i - 1] % kDomains;
  return count;
}

TEST(ReplayOrder, RequestsOfOneDomainJoinTogether) {
  const Routes routes = routes_of(96, 1, 1);
  const auto learned = range(0, 32), came = range(32, 96);
  const auto joined = join_by_overlap(routes, learned, came, {.batch = 4, .waiting = 32, .passes = 1000});
  ASSERT_TRUE(joined.is_ok()) << joined.status().message();
  EXPECT_EQ(changes(came), 63u);
  EXPECT_LT(changes(*joined), 25u);
}

TEST(ReplayOrder, NobodyIsPassedMoreOftenThanAllowed) {
  for (uint64_t seed = 1; seed <= 20; ++seed)
    for (const size_t passes : {0u, 1u, 5u, 16u}) {
      const Routes routes = routes_of(120, 40, seed);
      const auto came = mixed(range(20, 120));
      const auto joined = join_by_overlap(routes, range(0, 20), came, {.batch = 6, .waiting = 24, .passes = passes});
      ASSERT_TRUE(joined.is_ok());
      ASSERT_TRUE(std::ranges::is_permutation(*joined, came));
      for (auto at = joined->begin(); at != joined->end(); ++at) {
        const auto place = std::ranges::find(came, *at);
        const auto later = std::count_if(joined->begin(), at, [&](size_t r) {
          return std::ranges::find(came, r) > place;
        });
        ASSERT_LE(static_cast<size_t>(later), passes) << "seed " << seed;
      }
      if (passes == 0) EXPECT_EQ(*joined, came);
    }
}

TEST(ReplayOrder, AsTheyCameWhereNothingIsKnown) {
  const Routes routes = routes_of(8, 1, 1);
  const auto joined = join_by_overlap(routes, {}, range(0, 8), {.batch = 4, .waiting = 8, .passes = 8});
  ASSERT_TRUE(joined.is_ok());
  EXPECT_EQ(*joined, range(0, 8));
}

TEST(ReplayOrder, ATraceWithoutTokensIsRefused) {
  Routes routes = routes_of(8, 1, 1);
  routes.requests[3].tokens[2].token = -1;
  const auto joined = join_by_overlap(routes, {}, range(0, 8), {});
  ASSERT_FALSE(joined.is_ok());
  EXPECT_THAT(joined.status().message(), HasSubstr("request 4 has no tokens of its prompt"));
}

}  // namespace
}  // namespace moestro::tier

// What knows the future, against everything that a device could do on small cases.

#include "common/tier/clairvoyant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <random>
#include <set>

namespace moestro::tier {
namespace {

struct TimedVisit {
  Nanos attention{0};  ///< before its experts, with the head of the step before
  std::vector<Key> keys;
  std::vector<Nanos> took;
};

/// The least time in which all visits can be computed, by trying everything: at each moment at which something ends,
/// every fetch in every free or spare place or none, and every present expert of the layer.
class Exhaustive {
 public:
  Exhaustive(std::span<const TimedVisit> visits, int32_t slots, int64_t copy)
      : visits_(visits), slots_(slots), copy_(copy) {}

  /// Dijkstra over what the device and its link can be doing.
  int64_t least() {
    open_.emplace(0, State{0, first_left(0), 0, -1, 0, visits_[0].attention.count(), -1});
    while (!open_.empty()) {
      auto [time, state] = *open_.begin();
      open_.erase(open_.begin());
      if (!settle(state)) return time;
      if (!seen_.insert(state).second) continue;
      for (const State& started : with_fetch(state))
        for (const State& computed : with_compute(started)) go_on(time, computed);
    }
    return INT64_MAX;
  }

 private:
  struct State {
    size_t visit;
    uint32_t left;      ///< keys of the visit to compute with
    uint32_t present;
    int32_t copying;    ///< key, or -1
    int64_t copy_left;
    int64_t busy_left;  ///< of attention or an expert
    int32_t computing;  ///< key, or -1
    auto operator<=>(const State&) const = default;
  };
  uint32_t first_left(size_t visit) const {
    uint32_t left = 0;
    for (const Key key : visits_[visit].keys) left |= 1U << key;
    return left;
  }

  /// What has ended is over; false: all visits are.
  bool settle(State& s) const {
    if (s.busy_left == 0 && s.computing >= 0) s.left &= ~(1U << s.computing), s.computing = -1;
    if (s.copying >= 0 && s.copy_left == 0) s.present |= 1U << s.copying, s.copying = -1;
    if (s.busy_left > 0 || s.left != 0) return true;
    if (++s.visit == visits_.size()) return false;
    s.left = first_left(s.visit), s.busy_left = visits_[s.visit].attention.count();
    return true;
  }
  /// Until the next thing ends.
  void go_on(int64_t time, State s) {
    if (s.busy_left == 0 && s.copying < 0) return;
    const int64_t step = s.copying < 0      ? s.busy_left
                         : s.busy_left == 0 ? s.copy_left
                                            : std::min(s.busy_left, s.copy_left);
    if (s.copying >= 0) s.copy_left -= step;
    if (s.busy_left > 0) s.busy_left -= step;
    open_.emplace(time + step, s);
  }
  std::vector<State> with_fetch(const State& s) const {
    std::vector<State> all{s};
    if (s.copying >= 0) return all;
    for (int32_t key = 0; key < 8; ++key) {
      if ((s.present >> key & 1) != 0 || std::ranges::none_of(visits_, [&](const TimedVisit& v) {
            return std::ranges::count(v.keys, static_cast<Key>(key)) > 0;
          }))
        continue;
      State with = s;
      with.copying = key, with.copy_left = copy_;
      if (std::popcount(s.present) < slots_) all.push_back(with);
      else
        for (int32_t out = 0; out < 8; ++out)
          if ((s.present >> out & 1) != 0 && out != s.computing)
            with.present = s.present & ~(1U << out), all.push_back(with);
    }
    return all;
  }
  std::vector<State> with_compute(const State& s) const {
    if (s.busy_left > 0) return {s};
    std::vector<State> all{s};
    for (size_t i = 0; i < visits_[s.visit].keys.size(); ++i) {
      const Key key = visits_[s.visit].keys[i];
      if ((s.left >> key & 1) == 0 || (s.present >> key & 1) == 0) continue;
      State with = s;
      with.computing = static_cast<int32_t>(key), with.busy_left = visits_[s.visit].took[i].count();
      all.push_back(with);
    }
    return all;
  }

  std::span<const TimedVisit> visits_;
  int32_t slots_;
  int64_t copy_;
  std::set<std::pair<int64_t, State>> open_;
  std::set<State> seen_;
};

/// A request of decoded tokens; each chooses `experts[layer]`.
Routes routes_of(int32_t layers, int32_t experts, const std::vector<std::vector<uint16_t>>& tokens) {
  Routes routes{"test", layers, experts, static_cast<int32_t>(tokens[0].size()) / layers, {{1, {}}}, {}};
  for (const auto& token : tokens) {
    const auto first = static_cast<uint32_t>(routes.choices.size());
    routes.requests[0].tokens.push_back({true, static_cast<int32_t>(routes.requests[0].tokens.size()), first});
    routes.choices.insert(routes.choices.end(), token.begin(), token.end());
  }
  return routes;
}
constexpr size_t kRequest[] = {0};

/// Up to four experts in all, and up to six visits.
Routes random_routes(std::mt19937_64& random) {
  const auto layers = static_cast<int32_t>(1 + random() % 2);
  std::vector<std::vector<uint16_t>> tokens((3 + random() % 4) / static_cast<size_t>(layers),
                                            std::vector<uint16_t>(2 * static_cast<size_t>(layers)));
  for (auto& token : tokens)
    for (auto& expert : token) expert = static_cast<uint16_t>(random() % static_cast<uint64_t>(4 / layers));
  return routes_of(layers, 4 / layers, tokens);
}

ReplaySetup random_setup(std::mt19937_64& random) {
  const auto nanos = [&](uint64_t least, uint64_t most) {
    return Nanos(static_cast<int64_t>(least + random() % (most - least + 1)));
  };
  ReplaySetup setup{.slots = static_cast<int32_t>(1 + random() % 3), .expert_bytes = 1, .chunk_bytes = 1};
  setup.times = {.attention = nanos(1, 2), .expert = nanos(1, 2), .expert_token = nanos(0, 1)};
  setup.times.link_latency = nanos(1, 4);
  return setup;
}

std::vector<TimedVisit> visits_of(const Routes& routes, const ReplaySetup& setup) {
  std::vector<TimedVisit> visits;
  std::vector<StepUse> uses;
  for (const ReplayStep& step : plan_steps(routes, kRequest, 1, 1))
    for (int32_t layer = 0; layer < routes.layers; ++layer) {
      TimedVisit& visit = visits.emplace_back();
      visit.attention = setup.times.attention;
      uses_of(routes, step, layer, uses);
      for (const StepUse& use : uses) {
        visit.keys.push_back(static_cast<Key>(layer * routes.experts + use.expert));
        visit.took.push_back(setup.times.expert + setup.times.expert_token * (use.tokens - 1));
      }
    }
  return visits;
}

TEST(Clairvoyant, BetweenTheBoundAndExhaustiveSearchOnSmallCases) {
  std::mt19937_64 random(1);
  int cases = 0, exact = 0;
  double worst = 1, sum = 0;
  for (int i = 0; i < 150; ++i) {
    const Routes routes = random_routes(random);
    const ReplaySetup setup = random_setup(random);
    const auto visits = visits_of(routes, setup);
    const int64_t least = Exhaustive(visits, setup.slots, setup.copy_time().count()).least();
    const Clairvoyant best = clairvoyant(routes, kRequest, setup);
    const int64_t found = best.total_time.count();
    ASSERT_LE(least, found) << "case " << i;
    ASSERT_LE(best.least_time.count(), least) << "case " << i;
    const double ratio = static_cast<double>(found) / static_cast<double>(least);
    ++cases, exact += found == least, sum += ratio, worst = std::max(worst, ratio);
  }
  std::printf("clairvoyant against the optimum: equal in %d of %d, mean %.4f, worst %.3f\n", exact, cases,
              sum / cases, worst);
  EXPECT_GE(exact, cases * 9 / 10);
  EXPECT_LE(sum / cases, 1.01);
  EXPECT_LE(worst, 1.2);
}

TEST(Clairvoyant, BringsTheNextLayersExpertWhileThisOneIsComputed) {
  const Routes routes = routes_of(4, 1, {{0, 0, 0, 0}});
  const auto with = [&](int32_t slots, int64_t copy) {
    ReplaySetup setup{.slots = slots, .expert_bytes = 10};
    setup.times = {.attention = Nanos{1}, .expert = Nanos{1}, .link_latency = Nanos{copy}};
    return clairvoyant(routes, kRequest, setup);
  };
  EXPECT_EQ(with(2, 2).total_time, Nanos{9}) << "the first waits for a copy less its attention, the others for nothing";
  EXPECT_EQ(with(2, 2).report.stall, Nanos{1});
  EXPECT_EQ(with(2, 2).report.moved_bytes, 40u);
  EXPECT_EQ(with(2, 2).report.hits, 3u);
  EXPECT_EQ(with(4, 1).report.stall, Nanos{0});
  EXPECT_EQ(with(2, 2).least_time, Nanos{8});
  EXPECT_EQ(with(2, 5).least_time, Nanos{20});
}

TEST(Clairvoyant, WarmRequestsAreReplayedAndNotCounted) {
  Routes routes = routes_of(2, 2, {{0, 0}, {1, 1}, {0, 1}});
  ASSERT_TRUE(append_routes(routes, routes_of(2, 2, {{0, 0}, {1, 1}})).is_ok());
  ReplaySetup setup{.slots = 4, .expert_bytes = 10, .warm = 1};
  setup.times = {.attention = Nanos{1}, .expert = Nanos{1}, .link_latency = Nanos{5}};
  const Clairvoyant best = clairvoyant(routes, std::array{size_t{0}, size_t{1}}, setup);
  EXPECT_EQ(best.report.tokens, 2u);
  EXPECT_EQ(best.report.time, Nanos{8});
  EXPECT_EQ(best.report.hits, 4u);
  EXPECT_EQ(best.report.moved_bytes, 0u);
  EXPECT_EQ(best.total_time, best.report.time + Nanos{12} + best.report.total_stall);
}

}  // namespace
}  // namespace moestro::tier

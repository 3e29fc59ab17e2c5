// The schedule of one who knows the future, against every schedule there is on small cases.

#include "common/tier/clairvoyant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

namespace moestro::tier {
namespace {

/// The least time in which all visits can be computed, by trying everything: at each moment at which something ends,
/// every fetch in every free or spare place or none, and every present expert of the layer.
class Exhaustive {
 public:
  Exhaustive(std::span<const Visit> visits, int32_t slots, int64_t copy)
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
      if ((s.present >> key & 1) != 0 || std::ranges::none_of(visits_, [&](const Visit& v) {
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

  std::span<const Visit> visits_;
  int32_t slots_;
  int64_t copy_;
  std::set<std::pair<int64_t, State>> open_;
  std::set<State> seen_;
};

std::vector<Visit> random_visits(std::mt19937_64& random, size_t count, uint32_t keys) {
  std::vector<Visit> visits(count);
  for (Visit& v : visits) {
    v.attention = Nanos(1 + static_cast<int64_t>(random() % 2));
    const Key a = static_cast<Key>(random() % keys), b = static_cast<Key>(random() % keys);
    v.keys = {a};
    if (random() % 2 == 0 && b != a) v.keys.push_back(b);
    v.took.assign(v.keys.size(), Nanos{1 + static_cast<int64_t>(random() % 2)});
  }
  return visits;
}

TEST(Clairvoyant, BetweenTheBoundAndExhaustiveSearchOnSmallCases) {
  std::mt19937_64 random(1);
  int cases = 0, exact = 0;
  double worst = 1, sum = 0;
  for (int i = 0; i < 150; ++i) {
    const auto visits = random_visits(random, 3 + random() % 4, 4);
    const auto slots = static_cast<int32_t>(1 + random() % 3);
    const auto copy = static_cast<int64_t>(1 + random() % 4);
    const int64_t least = Exhaustive(visits, slots, copy).least();
    int64_t found = INT64_MAX;
    for (const int32_t horizon : clairvoyant_horizons())
      found = std::min(found, aggressive(visits, 4, slots, Nanos{copy}, horizon).time.count());
    ASSERT_LE(least, found) << "case " << i;
    ASSERT_LE(least_time(visits, 4, slots, Nanos{copy}).count(), least) << "case " << i;
    const double ratio = static_cast<double>(found) / static_cast<double>(least);
    ++cases, exact += found == least, sum += ratio, worst = std::max(worst, ratio);
  }
  std::printf("schedule against the optimum: equal in %d of %d, mean %.4f, worst %.3f\n", exact, cases, sum / cases,
              worst);
  EXPECT_GE(exact, cases * 8 / 10);
  EXPECT_LE(sum / cases, 1.02);
  EXPECT_LE(worst, 1.25);
}

TEST(Clairvoyant, BringsTheNextLayersExpertWhileThisOneIsComputed) {
  std::vector<Visit> visits(4);
  for (size_t v = 0; v < visits.size(); ++v)
    visits[v].attention = Nanos{1}, visits[v].keys = {static_cast<Key>(v)}, visits[v].took = {Nanos{1}};
  const FetchPlan all = aggressive(visits, 4, 2, Nanos{2}, 0);
  EXPECT_EQ(all.time, Nanos{9}) << "the first waits for a copy less its attention, the others for nothing";
  EXPECT_EQ(all.fetches, 4u);
  EXPECT_EQ(aggressive(visits, 4, 4, Nanos{1}, 0).visit_stall[0], Nanos{0});
  EXPECT_EQ(least_time(visits, 4, 2, Nanos{2}), Nanos{8});
  EXPECT_EQ(least_time(visits, 4, 2, Nanos{5}), Nanos{20});
}

}  // namespace
}  // namespace moestro::tier

// How missing experts are served: hand-made layers, and random ones against every choice that there is.

#include "common/tier/serving_plan.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

namespace moestro::tier {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using enum Way;

using Missing = std::vector<MissingExpert>;
using Ways = std::vector<Way>;
constexpr auto kNothing = std::nullopt;

Ways chosen(const Missing& missing, const LayerLoad& load = {}) {
  ServingPlan plan;
  const auto ways = plan.choose(missing, load);
  return {ways.begin(), ways.end()};
}

MissingExpert wanted(Want want, int full, std::optional<int> low, std::optional<int> cpu = kNothing) {
  MissingExpert m{.want = want, .full = Nanos{full}};
  if (low) m.low = Nanos{*low};
  if (cpu) m.cpu = Nanos{*cpu};
  return m;
}
MissingExpert full(int full, std::optional<int> cpu = kNothing) { return wanted(Want::kFull, full, 1, cpu); }
MissingExpert low(int full, int low, std::optional<int> cpu = kNothing) { return wanted(Want::kLow, full, low, cpu); }
MissingExpert none(int full, int low, std::optional<int> cpu = kNothing) { return wanted(Want::kNone, full, low, cpu); }

TEST(ServingPlan, WhereNothingIsComputedMeanwhileTheLeastIsCopied) {
  EXPECT_THAT(chosen({full(40), low(40, 10), none(40, 10)}), ElementsAre(kFull, kLow, kSkip));
  EXPECT_THAT(chosen({none(40, 0)}), ElementsAre(kLow)) << "nothing is left out that is there";
  EXPECT_THAT(chosen({low(40, 0)}), ElementsAre(kLow));
  EXPECT_THAT(chosen({low(10, 10)}), ElementsAre(kFull)) << "no more is missing of it";
  EXPECT_THAT(chosen({none(10, 10)}), ElementsAre(kSkip));
  EXPECT_THAT(chosen({wanted(Want::kLow, 40, kNothing)}), ElementsAre(kFull)) << "there are no low copies";
  EXPECT_THAT(chosen({}), IsEmpty());
}

TEST(ServingPlan, WhatArrivesBeforeItIsNeededIsFull) {
  EXPECT_THAT(chosen({low(40, 10)}, {.present = Nanos{40}, .expert = Nanos{20}}), ElementsAre(kFull));
  EXPECT_THAT(chosen({low(41, 10)}, {.present = Nanos{40}, .expert = Nanos{20}}), ElementsAre(kLow));
  EXPECT_THAT(chosen({none(40, 10)}, {.present = Nanos{40}, .expert = Nanos{20}}), ElementsAre(kFull));
  EXPECT_THAT(chosen({none(90, 40)}, {.present = Nanos{40}, .expert = Nanos{20}}), ElementsAre(kLow));
  EXPECT_THAT(chosen({none(90, 41)}, {.present = Nanos{40}, .expert = Nanos{20}}), ElementsAre(kSkip));
}

TEST(ServingPlan, ALinkThatIsBusyBringsLess) {
  EXPECT_THAT(chosen({low(40, 10)}, {.present = Nanos{60}, .expert = Nanos{20}, .link = Nanos{20}}),
              ElementsAre(kFull));
  EXPECT_THAT(chosen({low(40, 10)}, {.present = Nanos{60}, .expert = Nanos{20}, .link = Nanos{21}}), ElementsAre(kLow));
}

/// A copy that the layer waits for anyway leaves time for others behind it, or not.
TEST(ServingPlan, OthersMayBeWaitedForBesideAFullCopy) {
  EXPECT_THAT(chosen({full(100), low(10, 5)}, {.expert = Nanos{20}}), ElementsAre(kFull, kLow))
      << "the full one would come 5 later";
  EXPECT_THAT(chosen({full(10), low(30, 5)}, {.present = Nanos{40}, .expert = Nanos{20}}), ElementsAre(kFull, kFull))
      << "the second is there when the first has been computed";
}

TEST(ServingPlan, WhatMattersMoreIsBroughtFirst) {
  EXPECT_THAT(chosen({none(30, 10), low(30, 10)}, {.present = Nanos{30}, .expert = Nanos{20}}),
              ElementsAre(kLow, kFull));
}

TEST(ServingPlan, LeavingOutIsWorthWhatIsWaitedForOnly) {
  EXPECT_THAT(chosen({none(20, 10)}, {.present = Nanos{20}, .expert = Nanos{1000}}), ElementsAre(kFull))
      << "its computing is no reason";
}

TEST(ServingPlan, CpuAndLinkEndTheSoonest) {
  EXPECT_THAT(chosen({full(10, 100)}), ElementsAre(kFull)) << "moving it is faster";
  EXPECT_THAT(chosen({full(10, 9)}), ElementsAre(kCpu));
  EXPECT_THAT(chosen({full(10, 10)}), ElementsAre(kFull)) << "as fast: then it may as well be there the next time";
  EXPECT_THAT(chosen({full(10, 10), full(10, 10), full(10, 10), full(10, 10)}),
              ElementsAre(kCpu, kCpu, kFull, kFull));
  EXPECT_THAT(chosen({full(10, 30), full(10, 30), full(10, 30), full(10, 30)}),
              ElementsAre(kCpu, kFull, kFull, kFull));
  EXPECT_THAT(chosen({full(1000, 1), full(1000, 1), full(1000, 1)}), ElementsAre(kCpu, kCpu, kCpu));
  EXPECT_THAT(chosen({full(100, 10), full(100, 30)}), ElementsAre(kCpu, kCpu))
      << "both before one copy would have ended";
}

TEST(ServingPlan, ACopyThatHasBegunIsWaitedForIfItEndsFirst) {
  EXPECT_THAT(chosen({full(10, 20)}), ElementsAre(kFull)) << "little is missing of it";
  EXPECT_THAT(chosen({full(90, 20)}), ElementsAre(kCpu)) << "it has hardly begun";
  EXPECT_THAT(chosen({full(10, 20), full(100, 20)}), ElementsAre(kFull, kCpu))
      << "the one whose copy has begun is copied to its end";
  EXPECT_THAT(chosen({full(100, 0), full(100, 20)}), ElementsAre(kCpu, kCpu)) << "never tried: it is";
}

TEST(ServingPlan, TheCpuComputesInFullWhatWouldBeLow) {
  EXPECT_THAT(chosen({low(40, 10, 9)}), ElementsAre(kCpu)) << "it is even faster";
  EXPECT_THAT(chosen({low(40, 10, 10)}), ElementsAre(kCpu)) << "as fast, and full";
  EXPECT_THAT(chosen({low(40, 10, 11)}), ElementsAre(kLow));
  EXPECT_THAT(chosen({none(40, 10, 5)}), ElementsAre(kSkip));
  EXPECT_THAT(chosen({none(40, 10, 5)}, {.present = Nanos{5}}), ElementsAre(kCpu));
  EXPECT_THAT(chosen({low(40, 10, 5)}, {.cpu = Nanos{6}}), ElementsAre(kLow)) << "the CPU is busy";
  EXPECT_THAT(chosen({full(90, 30), low(90, 10, 30)}, {.expert = Nanos{20}}), ElementsAre(kCpu, kLow))
      << "the CPU has enough to do";
}

class RandomLayers : public ::testing::Test {
 protected:
  Missing layer(size_t experts, bool cpu) {
    Missing missing;
    while (missing.size() < experts) {
      MissingExpert m{.want = static_cast<Want>(below(3)), .full = Nanos{1 + below(60)}};
      if (below(5) > 0) m.low = Nanos{below(4) == 0 ? 0 : 1 + below(20)};
      if (cpu && below(4) > 0) m.cpu = Nanos{1 + below(80)};
      missing.push_back(m);
    }
    return missing;
  }
  LayerLoad load() {
    return {.present = Nanos{below(80)}, .expert = Nanos{below(30)}, .link = Nanos{below(20)}, .cpu = Nanos{below(20)}};
  }
  int64_t below(uint32_t n) { return static_cast<int64_t>(random_() % n); }

  static bool is_allowed(const MissingExpert& m, Way way) {
    if (way == kLow) return m.low && m.want != Want::kFull;
    if (way == kSkip) return m.want == Want::kNone;
    return way == kFull || m.cpu.has_value();
  }
  /// Of full copies, in whatever memory, most; then of low ones.
  static int quality(Way way) { return way == kSkip ? 0 : way == kLow ? 1 : 2; }

  std::mt19937 random_{3};
  ServingPlan plan_;
};

/// The copies arrive, and are computed, one by one in this order.
Nanos end_in_order(const Missing& missing, const LayerLoad& load, const Ways& ways, const std::vector<size_t>& order) {
  Nanos device = load.present, link = load.link, cpu = load.cpu;
  for (size_t i = 0; i < ways.size(); ++i)
    if (ways[i] == kSkip || (ways[i] == kLow && *missing[i].low == Nanos{0})) device += load.expert;
  bool uses_cpu = false;
  for (const size_t i : order) {
    if (ways[i] == kCpu) cpu += *missing[i].cpu, uses_cpu = true;
    if (ways[i] != kFull && (ways[i] != kLow || *missing[i].low == Nanos{0})) continue;
    link += ways[i] == kFull ? missing[i].full : *missing[i].low;
    device = std::max(device, link) + load.expert;
  }
  return uses_cpu ? std::max(device, cpu) : device;
}

TEST_F(RandomLayers, TheEndIsThatOfTheBestOrderOfCopies) {
  for (int turn = 0; turn < 300; ++turn) {
    const Missing missing = layer(static_cast<size_t>(1 + below(5)), true);
    const LayerLoad load = this->load();
    Ways ways;
    for (const MissingExpert& m : missing) {
      Way way = static_cast<Way>(below(4));
      while (!is_allowed(m, way)) way = static_cast<Way>(below(4));
      ways.push_back(way);
    }
    std::vector<size_t> order(missing.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    Nanos best = Nanos::max();
    do best = std::min(best, end_in_order(missing, load, ways, order));
    while (std::ranges::next_permutation(order).found);
    ASSERT_EQ(plan_.end(missing, load, ways), best) << turn;
  }
}

/// Every allowed assignment of ways. Without a CPU none ends earlier. With one, what ends the soonest is a problem of
/// packing: the plan is at most as late as both the link alone and the sum of all.
TEST_F(RandomLayers, NoChoiceEndsEarlierAndNoBetterOneEndsAsEarly) {
  for (int turn = 0; turn < 2000; ++turn) {
    const bool cpu = turn % 2 == 1;
    const Missing missing = layer(static_cast<size_t>(1 + below(5)), cpu);
    const LayerLoad load = this->load();
    const Ways ways = [&] {
      const auto chosen = plan_.choose(missing, load);
      return Ways(chosen.begin(), chosen.end());
    }();
    for (size_t i = 0; i < ways.size(); ++i) ASSERT_TRUE(is_allowed(missing[i], ways[i])) << turn;
    const Nanos end = plan_.end(missing, load, ways);
    Ways other(missing.size());
    uint64_t all = 1;
    for (size_t i = 0; i < missing.size(); ++i) all *= 4;
    for (uint64_t code = 0; code < all; ++code) {
      bool allowed = true, link_alone = true;
      for (size_t i = 0, rest = code; i < other.size(); ++i, rest /= 4) {
        other[i] = static_cast<Way>(rest % 4);
        allowed = allowed && is_allowed(missing[i], other[i]);
        link_alone = link_alone && other[i] != kCpu;
      }
      if (allowed && link_alone) ASSERT_GE(plan_.end(missing, load, other), end) << turn;
    }
    for (size_t i = 0; i < ways.size(); ++i)
      for (const Way way : {kFull, kLow, kCpu}) {
        if (!is_allowed(missing[i], way) || quality(way) <= quality(ways[i])) continue;
        other = ways;
        other[i] = way;
        ASSERT_GT(plan_.end(missing, load, other), end) << turn << ": expert " << i << " is given less for nothing";
      }
  }
}

/// What common/expert_copy.h says where no time is known: bytes stand for times, and nothing is computed meanwhile.
TEST_F(RandomLayers, WithoutTimesTheRuleOfThePaperHolds) {
  for (const Want want : {Want::kNone, Want::kLow, Want::kFull})
    for (const bool low_is_there : {false, true}) {
      const auto copy = serving_copy(want, false, low_is_there);
      const Way expected = !copy ? kSkip : *copy == Copy::kFull ? kFull : kLow;
      EXPECT_THAT(chosen({wanted(want, 400, low_is_there ? 0 : 100)}), ElementsAre(expected));
    }
}

}  // namespace
}  // namespace moestro::tier

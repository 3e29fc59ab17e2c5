// How missing experts are shared between the CPU and the link.

#include "services/worker/cuda/host_experts.h"

#include <gtest/gtest.h>

namespace moestro::cuda {
namespace {

using std::chrono::microseconds;

struct Times {
  int on_cpu_us, copy_us;
};

/// The experts that the CPU computes, as their places in `times`.
std::vector<int> on_cpu(std::initializer_list<Times> times) {
  std::vector<MissingExpert> missing;
  for (const Times t : times)
    missing.push_back({{.expert = static_cast<int32_t>(missing.size()), .rows = 1},
                       microseconds(t.on_cpu_us), microseconds(t.copy_us)});
  std::vector<int> experts;
  for (const MissingExpert& m : std::span(missing).first(experts_for_cpu(missing))) experts.push_back(m.expert.expert);
  return experts;
}

TEST(ExpertsForCpu, BothEndTheSoonest) {
  using Experts = std::vector<int>;
  EXPECT_EQ(on_cpu({}), Experts{});
  EXPECT_EQ(on_cpu({{100, 10}}), Experts{}) << "moving it is faster";
  EXPECT_EQ(on_cpu({{9, 10}}), Experts{0});
  EXPECT_EQ(on_cpu({{10, 10}}), Experts{}) << "as fast: then it may as well be there the next time";
  EXPECT_EQ(on_cpu({{10, 10}, {10, 10}, {10, 10}, {10, 10}}), (Experts{0, 1})) << "two each";
  EXPECT_EQ(on_cpu({{30, 10}, {30, 10}, {30, 10}, {30, 10}}), Experts{0}) << "one beside three copies";
  EXPECT_EQ(on_cpu({{1, 1000}, {1, 1000}, {1, 1000}}), (Experts{0, 1, 2}));
  EXPECT_EQ(on_cpu({{10, 100}, {30, 100}}), (Experts{0, 1})) << "both before one copy would have ended";
}

TEST(ExpertsForCpu, ACopyThatHasBegunIsWaitedForIfItEndsFirst) {
  using Experts = std::vector<int>;
  EXPECT_EQ(on_cpu({{20, 10}}), Experts{}) << "little is missing of it";
  EXPECT_EQ(on_cpu({{20, 90}}), Experts{0}) << "it has hardly begun";
  EXPECT_EQ(on_cpu({{20, 10}, {20, 100}}), Experts{1}) << "the one whose copy has begun is copied to its end";
  EXPECT_EQ(on_cpu({{0, 100}, {20, 100}}), (Experts{0, 1})) << "never tried: it is";
}

TEST(HostCost, IsWhatWasMeasuredForAboutSoManyRows) {
  HostCost cost;
  EXPECT_EQ(cost.of(1).count(), 0) << "never tried";
  cost.add(1, microseconds(100));
  EXPECT_EQ(cost.of(1), Nanos(microseconds(100)));
  EXPECT_EQ(cost.of(2).count(), 0);
  cost.add(5, microseconds(300));
  EXPECT_EQ(cost.of(7), Nanos(microseconds(300)));
  for (int i = 0; i < 50; ++i) cost.add(1, microseconds(200));
  EXPECT_NEAR(static_cast<double>(cost.of(1).count()), 200e3, 1e3) << "what it was before is forgotten";
}

}  // namespace
}  // namespace moestro::cuda

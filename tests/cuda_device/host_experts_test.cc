// How missing experts are shared between the CPU and the link.

#include "services/worker/cuda/host_experts.h"

#include <gtest/gtest.h>

namespace moestro::cuda {
namespace {

using std::chrono::microseconds;

size_t on_cpu(std::initializer_list<int> us, int copy_us) {
  std::vector<Nanos> costs;
  for (const int t : us) costs.push_back(microseconds(t));
  return experts_for_cpu(costs, microseconds(copy_us));
}

TEST(ExpertsForCpu, BothEndTheSoonest) {
  EXPECT_EQ(on_cpu({}, 10), 0u);
  EXPECT_EQ(on_cpu({100}, 10), 0u) << "moving it is faster";
  EXPECT_EQ(on_cpu({9}, 10), 1u);
  EXPECT_EQ(on_cpu({10}, 10), 0u) << "as fast: then it may as well be there the next time";
  EXPECT_EQ(on_cpu({10, 10, 10, 10}, 10), 2u) << "two each";
  EXPECT_EQ(on_cpu({30, 30, 30, 30}, 10), 1u) << "one beside three copies";
  EXPECT_EQ(on_cpu({1, 1, 1, 1}, 1000), 4u);
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

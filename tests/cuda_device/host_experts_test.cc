// How long experts take on the CPU.

#include "services/worker/cuda/host_experts.h"

#include <gtest/gtest.h>

namespace moestro::cuda {
namespace {

using std::chrono::microseconds;

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

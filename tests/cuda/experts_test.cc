// Experts copied into a device's memory (emulated, or real where the plugin is) while kernels read them: each use reads
// what was leased.

#include <gtest/gtest.h>

#include "tests/cuda/cuda_under_test.h"
#include "tests/device/cuda_experts_driver.h"

namespace moestro::device::testing {
namespace {

class ExpertsOnDevice : public kernels::test::CudaTest {
 protected:
  void expect_right(const DriverOptions& options, const MoestroCudaFunctions& functions) {
    const MoestroCudaFunctions& cuda = kernels::test::functions_under_test();
    ASSERT_EQ(cuda.use_device(0), 0);
    CudaExpertsDriver driver(cuda, options, [](int32_t) {});  // streams are as they are
    const Status made = driver.make(functions);
    ASSERT_TRUE(made.is_ok()) << made.message();
    const Status ran = driver.steps(30);
    ASSERT_TRUE(ran.is_ok()) << ran.message();
    const Status abandoned = driver.abandoned_step();
    ASSERT_TRUE(abandoned.is_ok()) << abandoned.message();
    ASSERT_TRUE(driver.steps(10).is_ok());
    EXPECT_EQ(driver.wrong(), 0) << "of " << driver.uses();
    EXPECT_GT(driver.experts().tier_counters().evictions, 20u);
    driver.let_go();
    EXPECT_EQ(driver.host().leased(), 0);
  }
};

TEST_F(ExpertsOnDevice, OutOfRegisteredMemory) {
  expect_right({.bytes = 1 << 20, .chunk_bytes = 256 << 10}, kernels::test::functions_under_test());
  expect_right({.bytes = 1 << 20, .chunk_bytes = 4 << 20, .late_host = 0}, kernels::test::functions_under_test());
}

TEST_F(ExpertsOnDevice, ThroughStagingMemory) {
  MoestroCudaFunctions refuses = kernels::test::functions_under_test();
  refuses.register_host = [](void*, uint64_t, int32_t) -> MoestroCudaResult { return 801; };  // cudaErrorNotSupported
  expect_right({.bytes = 1 << 20, .chunk_bytes = 256 << 10}, refuses);
}

}  // namespace
}  // namespace moestro::device::testing

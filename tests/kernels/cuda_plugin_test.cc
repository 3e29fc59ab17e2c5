// The plugin that nvcc built, on whatever machine this is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/device_registry.h"

namespace moestro::kernels {
namespace {

TEST(BuiltCudaPlugin, LoadsWithoutADriverAndSaysWhatIsThere) {
  const auto devices = probe_cuda(MOESTRO_CUDA_PLUGIN);
  if (!std::filesystem::exists("/dev/nvidiactl")) {  // no driver: CUDA must say so, in words
    ASSERT_FALSE(devices.is_ok());
  }
  if (!devices.is_ok()) {
    EXPECT_EQ(devices.status().code(), Code::kUnavailable) << devices.status().message();
    EXPECT_THAT(devices.status().message(), ::testing::MatchesRegex("no CUDA device: .*[a-z].*"));
    return;
  }
  for (const CudaDevice& device : *devices) {
    EXPECT_NE(device.name, "");
    EXPECT_GE(device.major, 8) << "the plugin has code for 8.0 and later";
    EXPECT_GT(device.total_bytes, 0u);
    EXPECT_LE(device.free_bytes, device.total_bytes);
  }
}

}  // namespace
}  // namespace moestro::kernels

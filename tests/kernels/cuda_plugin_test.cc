// The plugin that nvcc built, on whatever machine this is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/devices/device_registry.h"
#include "kernels/plugin/plugin_abi.h"

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

TEST(BuiltCudaPlugin, CallsWithoutADeviceFailInWordsAndDoNoHarm) {
  const auto found = cuda_functions(MOESTRO_CUDA_PLUGIN);
  ASSERT_TRUE(found.is_ok()) << found.status().message();
  const MoestroCudaFunctions& f = **found;
  EXPECT_STREQ(f.error_text(2), "out of memory");
  if (probe_cuda(MOESTRO_CUDA_PLUGIN).is_ok()) GTEST_SKIP() << "there is a device";
  void* memory = nullptr;
  const MoestroCudaResult allocated = f.allocate(4096, &memory);
  ASSERT_GT(allocated, 0);
  EXPECT_THAT(f.error_text(allocated), ::testing::ContainsRegex("driver|device"));
  float x = 0;
  const MoestroCudaClamp clamp{&x, 1, 1.0f};
  EXPECT_GT(f.ops.clamp(&clamp, nullptr), 0) << "every launch says that nothing was queued";
  const MoestroCudaGather gather{&x, MOESTRO_CUDA_INT4, 1, 1, nullptr, &x};
  EXPECT_EQ(f.ops.gather(&gather, nullptr), MOESTRO_CUDA_REFUSED);
}

}  // namespace
}  // namespace moestro::kernels

#include "kernels/cuda/plugin_abi.h"
#include "kernels/device_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace moestro::kernels {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kNone = "/nowhere/libmoestro_cuda.so";

TEST(CudaPlugin, AMissingOneIsNamedWithWhatBuildsIt) {
  const auto devices = probe_cuda(kNone);
  ASSERT_EQ(devices.status().code(), Code::kUnsupported);
  EXPECT_THAT(devices.status().message(), HasSubstr("the CUDA plugin is not built: there is no /nowhere/libmoestro_cuda.so"));
  EXPECT_THAT(devices.status().message(), HasSubstr("cmake --preset cuda"));
}

TEST(CudaPlugin, AFileThatIsNoLibraryIsRefused) {
  const fs::path file = fs::temp_directory_path() / ("moestro-no-library-" + std::to_string(::getpid()));
  std::ofstream(file) << "text";
  const auto devices = probe_cuda(file);
  fs::remove(file);
  ASSERT_EQ(devices.status().code(), Code::kUnsupported);
  EXPECT_THAT(devices.status().message(), HasSubstr("cannot be loaded: " + file.string()));
}

TEST(CudaPlugin, AnotherLibraryIsRefused) {
  EXPECT_THAT(probe_cuda(FAKE_CUDA_STRANGER).status().message(), HasSubstr("is not Moestro's CUDA plugin"));
}

TEST(CudaPlugin, AnotherVersionIsRefused) {
  EXPECT_THAT(probe_cuda(FAKE_CUDA_NEWER).status().message(), HasSubstr("is a CUDA plugin of version " + std::to_string(MOESTRO_CUDA_PLUGIN_VERSION + 1) + ", this program needs " +
                                                                                                     std::to_string(MOESTRO_CUDA_PLUGIN_VERSION)));
}

TEST(CudaPlugin, AnErrorOfCudaMeansNoDeviceInItsOwnWords) {
  const auto devices = probe_cuda(FAKE_CUDA_NO_DRIVER);
  ASSERT_EQ(devices.status().code(), Code::kUnavailable);
  EXPECT_EQ(devices.status().message(), "no CUDA device: CUDA driver version is insufficient for CUDA runtime version");
  EXPECT_EQ(probe_cuda(FAKE_CUDA_NO_DEVICE).status().message(), "no CUDA device");
}

TEST(CudaPlugin, DevicesComeAsItGivesThem) {
  const auto devices = probe_cuda(FAKE_CUDA_TWO);
  ASSERT_TRUE(devices.is_ok()) << devices.status().message();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].name, "Fake 1");
  EXPECT_EQ((*devices)[1].major, 9);
  EXPECT_EQ((*devices)[1].minor, 1);
  EXPECT_EQ((*devices)[1].free_bytes, 3ull << 30);
  EXPECT_EQ((*devices)[1].total_bytes, 4ull << 30);
}

TEST(CudaPlugin, ItsFunctionsAreThereWithoutADevice) {
  const auto functions = cuda_functions(FAKE_CUDA_NO_DRIVER);
  ASSERT_TRUE(functions.is_ok()) << functions.status().message();
  EXPECT_NE(*functions, nullptr);
  EXPECT_EQ(cuda_functions(kNone).status().code(), Code::kUnsupported);
}

TEST(CheckDevice, TheCpuComputesAlsoForADeviceThatIsEmulated) {
  EXPECT_TRUE(check_device("cpu", kNone).is_ok());
  EXPECT_TRUE(check_device("emulated:vram=1G,link=16GB/s", kNone).is_ok());
}

TEST(CheckDevice, WhatIsNoDeviceIsRefusedWithTheFormsThereAre) {
  for (const char* device : {"", "gpu", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:0x"}) {
    const Status refused = check_device(device, kNone);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << device;
    EXPECT_THAT(refused.message(), HasSubstr("--device (workers.device): '" + std::string(device) + "' is no device; there are cpu, cuda,"));
  }
}

TEST(CheckDevice, CudaIsRefusedByItsReason) {
  EXPECT_THAT(check_device("cuda", kNone).message(), HasSubstr("--device cuda: the CUDA plugin is not built"));
  EXPECT_EQ(check_device("cuda:0", FAKE_CUDA_NO_DRIVER).message(),
            "--device cuda:0: no CUDA device: CUDA driver version is insufficient for CUDA runtime version");
  EXPECT_THAT(check_device("cuda:2", FAKE_CUDA_TWO).message(), HasSubstr("there is no CUDA device 2; this machine has 2"));
  EXPECT_EQ(check_device("cuda:1", FAKE_CUDA_TWO).message(),
            "--device cuda:1: computing on CUDA is not in this version (the device would be Fake 1)");
}

}  // namespace
}  // namespace moestro::kernels

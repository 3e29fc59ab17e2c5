#include "kernels/devices/device_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace fs = std::filesystem;

constexpr const char* kNone = "/nowhere/libmoestro_cuda.so";

TEST(CudaPlugin, AMissingOneIsNamedWithWhatBuildsIt) {
  const auto devices = probe_cuda(kNone);
  ASSERT_EQ(devices.status().code(), Code::kUnsupported);
  EXPECT_THAT(devices.status().message(),
              HasSubstr("the CUDA plugin is not built: there is no /nowhere/libmoestro_cuda.so"));
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
  EXPECT_THAT(probe_cuda(FAKE_CUDA_NEWER).status().message(),
              HasSubstr("is a CUDA plugin of version " + std::to_string(MOESTRO_CUDA_PLUGIN_VERSION + 1) +
                        ", this program needs " + std::to_string(MOESTRO_CUDA_PLUGIN_VERSION)));
}

TEST(CudaPlugin, AnErrorOfCudaMeansNoDeviceInItsOwnWords) {
  const auto devices = probe_cuda(FAKE_CUDA_NO_DRIVER);
  ASSERT_EQ(devices.status().code(), Code::kUnavailable);
  EXPECT_THAT(devices.status().message(),
              StartsWith("no CUDA device: CUDA driver version is insufficient for CUDA runtime version; "));
  EXPECT_THAT(devices.status().message(), HasSubstr("NVIDIA driver"));
  EXPECT_THAT(probe_cuda(FAKE_CUDA_NO_DEVICE).status().message(), StartsWith("no CUDA device; "));
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
  EXPECT_EQ((*devices)[1].pci, "0000:01:00.0");
}

TEST(LookAtCuda, AnotherProcessSeesTheSame) {
  const auto seen = look_at_cuda(FAKE_CUDA_FOUR);
  const auto probed = probe_cuda(FAKE_CUDA_FOUR);
  ASSERT_TRUE(seen.is_ok()) << seen.status().message();
  ASSERT_EQ(seen->size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*seen)[i].name, (*probed)[i].name);
    EXPECT_EQ((*seen)[i].major, (*probed)[i].major);
    EXPECT_EQ((*seen)[i].minor, (*probed)[i].minor);
    EXPECT_EQ((*seen)[i].free_bytes, (*probed)[i].free_bytes);
    EXPECT_EQ((*seen)[i].total_bytes, (*probed)[i].total_bytes);
    EXPECT_EQ((*seen)[i].pci, (*probed)[i].pci);
  }
  for (const char* plugin : {FAKE_CUDA_NO_DRIVER, FAKE_CUDA_NO_DEVICE, FAKE_CUDA_STRANGER, FAKE_CUDA_NEWER, kNone}) {
    EXPECT_EQ(look_at_cuda(plugin).status().code(), probe_cuda(plugin).status().code());
    EXPECT_EQ(look_at_cuda(plugin).status().message(), probe_cuda(plugin).status().message());
  }
}

TEST(LookAtCuda, ADriverThatKillsDoesNotKillThisProcess) {
  const auto seen = look_at_cuda(FAKE_CUDA_KILLED);
  EXPECT_EQ(seen.status().code(), Code::kUnavailable);
  EXPECT_THAT(seen.status().message(), HasSubstr("killed by signal 9"));
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

TEST(CheckDevice, WhatIsNoDeviceIsRefused) {
  for (const char* device : {"", "gpu", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:0x"}) {
    const Status refused = check_device(device, kNone);
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << device;
    EXPECT_THAT(refused.message(), HasSubstr("--device (workers.device): '" + std::string(device) + "'"));
  }
}

TEST(CheckDevice, CudaIsRefusedByItsReason) {
  EXPECT_THAT(check_device("cuda", kNone).message(), HasSubstr("--device cuda: the CUDA plugin is not built"));
  EXPECT_THAT(
      check_device("cuda:0", FAKE_CUDA_NO_DRIVER).message(),
      StartsWith("--device cuda:0: no CUDA device: CUDA driver version is insufficient for CUDA runtime version"));
  EXPECT_EQ(check_device("cuda:2", FAKE_CUDA_TWO).message(),
            "--device cuda:2: there is no CUDA device 2; this machine has 2, counted from 0");
}

/// What is refused once the devices are known.
Status checked(const std::string& device) {
  const std::vector<CudaDevice> devices = {{"NVIDIA H200", 9, 0, 138ull << 30, 139ull << 30, ""},
                                           {"Tesla T4", 7, 5, 15ull << 30, 15ull << 30, ""},
                                           {"NVIDIA A100", 8, 0, 10ull << 30, 80ull << 30, ""},
                                           {"NVIDIA L4", 8, 9, 3 << 20, 24ull << 30, ""}};
  const auto spec = config::parse_device(device);
  EXPECT_TRUE(spec.is_ok()) << spec.status().message();
  return check_cuda(spec->cuda, devices);
}

TEST(CheckCuda, ACardThatIsTooOldIsNamedAndThoseThatAreNot) {
  EXPECT_EQ(checked("cuda:1").code(), Code::kUnsupported);
  EXPECT_EQ(
      checked("cuda:1").message(),
      "the card is a Tesla T4 of compute capability 7.5; the kernels need 8.0; usable here: cuda:0, cuda:2, cuda:3");
  EXPECT_TRUE(check_card({"Any", 8, 0, 0, 0, ""}).is_ok());
  EXPECT_TRUE(check_card({"Any", 12, 1, 0, 0, ""}).is_ok());
}

TEST(CheckCuda, MoreThanTheCardHasIsAMistake) {
  EXPECT_EQ(checked("cuda:2,vram=81G").code(), Code::kInvalidArgument);
  EXPECT_EQ(checked("cuda:2,vram=81G").message(), "vram=81GiB is larger than the card: the NVIDIA A100 has 80.0 GiB");
}

TEST(CheckCuda, MoreThanIsFreeMayBeThereLater) {
  EXPECT_EQ(checked("cuda:2,vram=20G").code(), Code::kUnavailable);
  EXPECT_EQ(checked("cuda:2,vram=20G").message(),
            "only 10.0 GiB of the NVIDIA A100's 80.0 GiB are free, and vram=20GiB is asked for: CUDA itself and other "
            "processes have the rest (nvidia-smi names "
            "them); end those, lower vram=, or take another device");
  EXPECT_EQ(checked("cuda:3").code(), Code::kUnavailable);
  EXPECT_THAT(checked("cuda:3").message(),
              StartsWith("only 3.00 MiB of the NVIDIA L4's 24.0 GiB are free, and at least 64.0 MiB are needed: "));
}

TEST(CheckCuda, WhatIsInOrderPasses) {
  for (const char* device : {"cuda", "cuda:0,vram=138G", "cuda:2,vram=10G"}) {
    const Status status = checked(device);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
}

class MachineFilesTest : public ::testing::Test {
 protected:
  MachineFilesTest() : root_(fs::temp_directory_path() / ("moestro-machine-" + std::to_string(::getpid()))) {
    fs::create_directories(root_);
  }
  ~MachineFilesTest() override { fs::remove_all(root_); }
  fs::path write(const fs::path& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
    return root_ / name;
  }
  fs::path root_;
};

TEST_F(MachineFilesTest, TheDriversVersion) {
  EXPECT_EQ(nvidia_driver(root_ / "none"), "");
  EXPECT_EQ(nvidia_driver(write("closed",
                                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC "
                                "2023\nGCC version: gcc 12.2.0\n")),
            "535.104.05");
  EXPECT_EQ(nvidia_driver(
                write("open", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n")),
            "560.35.03");
  EXPECT_EQ(nvidia_driver(write("strange", "something else\n")), "of an unknown version");
}

TEST_F(MachineFilesTest, TheNodeOfAGpu) {
  write("0000:17:00.0/numa_node", "1\n");
  write("0000:18:00.0/numa_node", "-1\n");
  EXPECT_EQ(numa_node_of("0000:17:00.0", root_), 1);
  EXPECT_EQ(numa_node_of("0000:18:00.0", root_), std::nullopt) << "the firmware did not say";
  EXPECT_EQ(numa_node_of("0000:19:00.0", root_), std::nullopt);
  EXPECT_EQ(numa_node_of("", root_), std::nullopt);
}

TEST(CudaPluginPath, TheEnvironmentOutranksThePlaceBesideTheProgram) {
  ASSERT_EQ(::unsetenv("MOESTRO_CUDA_PLUGIN"), 0);
  EXPECT_EQ(cuda_plugin_path().filename(), "libmoestro_cuda.so");
  EXPECT_EQ(cuda_plugin_path().parent_path(), fs::read_symlink("/proc/self/exe").parent_path());
  ::setenv("MOESTRO_CUDA_PLUGIN", "/elsewhere/plugin.so", 1);
  EXPECT_EQ(cuda_plugin_path(), "/elsewhere/plugin.so");
  ::setenv("MOESTRO_CUDA_PLUGIN", "", 1);
  EXPECT_EQ(cuda_plugin_path().filename(), "libmoestro_cuda.so");
  ::unsetenv("MOESTRO_CUDA_PLUGIN");
}

}  // namespace
}  // namespace moestro::kernels

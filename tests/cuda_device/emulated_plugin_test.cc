// The emulated plugin as programs load it. Its settings are read once a process, so each test is one of its own.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include "kernels/devices/device_registry.h"
#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels {
namespace {

constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

/// Runs `body` in a process with these settings; what fails there is on its stderr, and fails here.
void with(const std::vector<std::pair<const char*, std::string>>& settings,
          const std::function<void(const MoestroCudaFunctions&)>& body) {
  const auto run = [&] {
    for (const auto& [name, value] : settings) ::setenv(name, value.c_str(), 1);
    const auto functions = cuda_functions(EMULATED_CUDA_PLUGIN);
    EXPECT_TRUE(functions.is_ok()) << functions.status().message();
    if (functions.is_ok()) body(**functions);
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(EmulatedPlugin, IsOneOfThisVersionWithOneCard) {
  const auto devices = look_at_cuda(EMULATED_CUDA_PLUGIN);
  ASSERT_TRUE(devices.is_ok()) << devices.status().message();
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ(devices->front().total_bytes, 8 * kGiB);
  EXPECT_TRUE(check_card(devices->front()).is_ok());
}

TEST(EmulatedPlugin, AllocationsHonourTheCardsMemory) {
  with({{"MOESTRO_EMULATED_CUDA_DEVICES", "A,9.0,64M,16M;B,9.0,32M"}}, [](const MoestroCudaFunctions& f) {
    uint64_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(f.use_device(0), 0);
    EXPECT_EQ(f.memory_info(&free_bytes, &total_bytes), 0);
    EXPECT_EQ(free_bytes, 48 * kMiB);
    EXPECT_EQ(total_bytes, 64 * kMiB);
    void *first = nullptr, *second = nullptr;
    EXPECT_EQ(f.allocate(40 * kMiB, &first), 0);
    EXPECT_NE(f.allocate(9 * kMiB, &second), 0);
    EXPECT_EQ(second, nullptr);
    EXPECT_STREQ(f.error_text(f.allocate(9 * kMiB, &second)), "out of memory");
    EXPECT_EQ(f.use_device(1), 0);
    EXPECT_EQ(f.allocate(9 * kMiB, &second), 0) << "another card";
    EXPECT_EQ(f.release(first), 0) << "of whichever card it is";
    EXPECT_NE(f.release(first), 0) << "twice";
    EXPECT_EQ(f.release(nullptr), 0);
    EXPECT_EQ(f.use_device(0), 0);
    EXPECT_EQ(f.memory_info(&free_bytes, &total_bytes), 0);
    EXPECT_EQ(free_bytes, 48 * kMiB);
    EXPECT_STREQ(f.error_text(f.use_device(2)), "invalid device ordinal");
  });
}

TEST(EmulatedPlugin, AThreadIsOnTheDeviceItHasChosen) {
  with({{"MOESTRO_EMULATED_CUDA_DEVICES", "A,9.0,64M;B,9.0,32M"}}, [](const MoestroCudaFunctions& f) {
    EXPECT_EQ(f.use_device(1), 0);
    uint64_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(f.memory_info(&free_bytes, &total_bytes), 0);
    EXPECT_EQ(total_bytes, 32 * kMiB);
  });
}

TEST(EmulatedPlugin, ADeviceFallsOffAfterSoManyCalls) {
  with({{"MOESTRO_EMULATED_CUDA_FAULTS", "fall-off=copy_in:2"}}, [](const MoestroCudaFunctions& f) {
    std::vector<char> host(16), device(16);
    MoestroCudaStream stream = nullptr;
    EXPECT_EQ(f.make_stream(0, &stream), 0);
    EXPECT_EQ(f.copy_in(device.data(), host.data(), 16, stream), 0);
    EXPECT_EQ(f.copy_in(device.data(), host.data(), 16, stream), 0);
    EXPECT_EQ(f.wait_stream(stream), 0);
    const MoestroCudaResult off = f.copy_in(device.data(), host.data(), 16, stream);
    EXPECT_STREQ(f.error_text(off), "unknown error");
    EXPECT_EQ(f.wait_stream(stream), off) << "every call fails from then on";
    float x = 0;
    const MoestroCudaClamp clamp{&x, 1, 1.0f};
    EXPECT_EQ(f.ops.clamp(&clamp, stream), off);
    EXPECT_EQ(f.use_device(0), off);
  });
}

TEST(EmulatedPlugin, ADeviceFallsOffWhenAFileIsThere) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("moestro-fallen-" + std::to_string(::getpid()));
  with({{"MOESTRO_EMULATED_CUDA_FALLEN", file.string()}}, [&](const MoestroCudaFunctions& f) {
    EXPECT_EQ(f.use_device(0), 0);
    std::ofstream(file) << "x";
    const MoestroCudaResult off = f.use_device(0);
    std::filesystem::remove(file);
    EXPECT_NE(off, 0);
    EXPECT_EQ(f.use_device(0), off) << "it does not come back";
  });
}

TEST(OpenCuda, TakesTheDeviceIntoUseOrSaysWhyNot) {
  with({{"MOESTRO_EMULATED_CUDA_DEVICES", "A,9.0,64M;B,9.0,512M,128M,0000:17:00.0;C,7.5,1G"}},
       [](const MoestroCudaFunctions& f) {
         EXPECT_FALSE(cuda_in_use());
         EXPECT_EQ(open_cuda({.index = 3, .any = false, .vram_bytes = 0}, EMULATED_CUDA_PLUGIN).status().code(),
                   Code::kInvalidArgument);
         EXPECT_EQ(open_cuda({.index = 2, .any = false, .vram_bytes = 0}, EMULATED_CUDA_PLUGIN).status().code(),
                   Code::kUnsupported);
         EXPECT_EQ(
             open_cuda({.index = 1, .any = false, .vram_bytes = 385 * kMiB}, EMULATED_CUDA_PLUGIN).status().code(),
             Code::kUnavailable);
         EXPECT_FALSE(cuda_in_use());
         const auto opened = open_cuda({.index = 1, .any = false, .vram_bytes = 384 * kMiB}, EMULATED_CUDA_PLUGIN);
         EXPECT_TRUE(opened.is_ok()) << opened.status().message();
         EXPECT_TRUE(cuda_in_use());
         EXPECT_EQ(opened->functions, &f);
         EXPECT_EQ(opened->index, 1u);
         EXPECT_EQ(opened->device.free_bytes, 384 * kMiB);
         EXPECT_EQ(opened->device.pci, "0000:17:00.0");
         void* memory = nullptr;
         EXPECT_EQ(f.allocate(300 * kMiB, &memory), 0) << "this thread is on it";
         EXPECT_TRUE(open_cuda({.index = 1, .any = false, .vram_bytes = 0}, EMULATED_CUDA_PLUGIN).is_ok())
             << "once more";
         EXPECT_EQ(f.release(memory), 0);
       });
  with({{"MOESTRO_EMULATED_CUDA_FAULTS", "fall-off=use_device:0"}}, [](const MoestroCudaFunctions&) {
    const Status off = open_cuda({}, EMULATED_CUDA_PLUGIN).status();
    EXPECT_EQ(off.code(), Code::kUnavailable);
    EXPECT_EQ(off.message(), "CUDA: use_device: unknown error");
  });
}

TEST(OpenCuda, AFaultyCardDoesNotKeepTheOthersFromTheirWork) {
  with({{"MOESTRO_EMULATED_CUDA_DEVICES", "A,9.0,1G;B,9.0,1G,0,0000:17:00.0;C,9.0,1G"},
        {"MOESTRO_EMULATED_CUDA_FAULTS", "faulty-card=0,faulty-card=1"}},
       [](const MoestroCudaFunctions& f) {
         const auto devices = look_at_cuda(EMULATED_CUDA_PLUGIN);
         EXPECT_TRUE(devices.is_ok()) << devices.status().message();
         EXPECT_EQ(devices->size(), 3u);
         EXPECT_EQ((*devices)[1].name, "B");
         EXPECT_EQ((*devices)[1].pci, "0000:17:00.0");
         EXPECT_EQ((*devices)[1].failed, "uncorrectable ECC error encountered");
         EXPECT_EQ((*devices)[2].failed, "");
         EXPECT_NE(f.use_device(1), 0);
         const Status asked_for = open_cuda({.index = 1, .any = false, .vram_bytes = 0}, EMULATED_CUDA_PLUGIN).status();
         EXPECT_EQ(asked_for.code(), Code::kUnavailable);
         EXPECT_THAT(asked_for.message(), testing::AllOf(testing::HasSubstr("is faulty: uncorrectable ECC"),
                                                         testing::HasSubstr("usable here: cuda:2")));
         const auto any = open_cuda({}, EMULATED_CUDA_PLUGIN);
         EXPECT_TRUE(any.is_ok()) << any.status().message();
         EXPECT_EQ(any->index, 2u);
       });
  with({{"MOESTRO_EMULATED_CUDA_FAULTS", "faulty-card=0"}}, [](const MoestroCudaFunctions&) {
    EXPECT_THAT(open_cuda({}, EMULATED_CUDA_PLUGIN).status().message(),
                testing::HasSubstr("the card, Emulated, is faulty"))
        << "there is no other";
  });
}

TEST(EmulatedPlugin, RegistrationIsRefusedWhereItIsToBe) {
  char page[4096];
  with({}, [&](const MoestroCudaFunctions& f) {
    EXPECT_STREQ(f.error_text(f.register_host(page, sizeof page, 1)), "operation not supported");
    EXPECT_EQ(f.register_host(page, sizeof page, 0), 0);
    void* two = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(two, MAP_FAILED);
    EXPECT_EQ(f.register_host(two, 8192, 0), 0);
    ASSERT_EQ(::mprotect(static_cast<char*>(two) + 4096, 4096, PROT_READ), 0);
    EXPECT_EQ(f.register_host(two, 4096, 0), 0);
    EXPECT_STREQ(f.error_text(f.register_host(two, 8192, 0)), "invalid argument") << "its end cannot be written";
    ::munmap(two, 8192);
  });
  with({{"MOESTRO_EMULATED_CUDA_FAULTS", "refuse-register"}}, [&](const MoestroCudaFunctions& f) {
    EXPECT_NE(f.register_host(page, sizeof page, 1), 0);
    EXPECT_NE(f.register_host(page, sizeof page, 0), 0);
  });
}

}  // namespace
}  // namespace moestro::kernels

#include "common/config/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::config {
namespace {

using testing::HasSubstr;
using std::chrono::microseconds;

TEST(DeviceSpec, CpuAndCuda) {
  EXPECT_EQ(parse_device("cpu")->kind, DeviceSpec::Kind::kCpu);
  EXPECT_EQ(parse_device("cuda")->kind, DeviceSpec::Kind::kCuda);
  EXPECT_EQ(parse_device("cuda:3")->cuda_index, 3u);
}

TEST(DeviceSpec, AnEmulatedDeviceHasAMemoryAndALink) {
  const auto spec = parse_device("emulated:vram=1.5G,link=16GB/s,latency=10us,compute=1ms");
  ASSERT_TRUE(spec.is_ok()) << spec.status().message();
  EXPECT_EQ(spec->kind, DeviceSpec::Kind::kEmulated);
  EXPECT_EQ(spec->emulated.vram_bytes, 3ull << 29);
  EXPECT_EQ(spec->emulated.link_bytes_per_s, 16'000'000'000u);
  EXPECT_EQ(spec->emulated.latency, microseconds(10));
  EXPECT_EQ(spec->emulated.compute, microseconds(1000));
  const auto bare = parse_device("emulated:link=700MiB,vram=64K");
  ASSERT_TRUE(bare.is_ok()) << bare.status().message();
  EXPECT_EQ(bare->emulated.latency.count(), 0);
}

TEST(DeviceSpec, WhatIsWrongIsSaid) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "is no device; there are cpu, cuda"},
      {"tpu:0", "is no device"},
      {"cuda:-1", "is no device"},
      {"cuda:", "is no device"},
      {"emulated", "vram=SIZE is missing"},
      {"emulated:vram=1G", "link=RATE is missing"},
      {"emulated:link=1G", "vram=SIZE is missing"},
      {"emulated:vram=1G,link=1G,compute=5", "compute: '5' is not a duration: write it as 800ns"},
      {"emulated:vram=lots,link=1G", "vram: 'lots' is not a size"},
      {"emulated:vram=1G,link=fast", "'fast' is not a rate"},
      {"emulated:vram=1G,speed=1G", "'speed' is none of vram, link, latency and compute"},
      {"emulated:vram", "'vram' is not KEY=VALUE"},
      {"emulated:vram=0,link=1G", "vram=SIZE is missing"},
  };
  for (const auto& [text, what] : cases) {
    const auto spec = parse_device(text);
    ASSERT_FALSE(spec.is_ok()) << text;
    EXPECT_THAT(spec.status().message(), HasSubstr(what)) << text;
  }
}

}  // namespace
}  // namespace moestro::config

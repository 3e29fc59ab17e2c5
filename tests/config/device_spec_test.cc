#include "common/config/device_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moestro::config {
namespace {

using testing::HasSubstr;
using std::chrono::microseconds;

TEST(DeviceSpec, TheCpu) { EXPECT_EQ(parse_device("cpu")->kind, DeviceSpec::Kind::kCpu); }

TEST(DeviceSpec, CudaHasAnIndexAndALimitOfItsMemory) {
  struct Case {
    const char* text;
    uint32_t index;
    bool any;
    uint64_t vram_bytes;
  };
  for (const Case& c :
       {Case{"cuda", 0, true, 0}, Case{"cuda:0", 0, false, 0}, Case{"cuda:3", 3, false, 0},
        Case{"cuda,vram=1.5G", 0, true, 3ull << 29}, Case{"cuda:12,vram=700MiB", 12, false, 700ull << 20},
        Case{"cuda:1,vram=4095", 1, false, 4095}}) {
    const auto spec = parse_device(c.text);
    ASSERT_TRUE(spec.is_ok()) << c.text << ": " << spec.status().message();
    EXPECT_EQ(spec->kind, DeviceSpec::Kind::kCuda);
    EXPECT_EQ(spec->cuda.index, c.index) << c.text;
    EXPECT_EQ(spec->cuda.any, c.any) << c.text;
    EXPECT_EQ(spec->cuda.vram_bytes, c.vram_bytes) << c.text;
    const auto back = parse_device(device_text(spec->cuda));
    ASSERT_TRUE(back.is_ok()) << device_text(spec->cuda);
    EXPECT_EQ(back->cuda.index, c.index);
    EXPECT_EQ(back->cuda.any, c.any);
    EXPECT_EQ(back->cuda.vram_bytes, c.vram_bytes);
  }
  EXPECT_EQ(device_text({.index = 1, .any = false, .vram_bytes = 40ull << 30}), "cuda:1,vram=40GiB");
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
  EXPECT_FALSE(bare->emulated.counts_kv);
  const auto counted = parse_device("emulated:vram=1G,link=16GB/s,kv=counted");
  ASSERT_TRUE(counted.is_ok()) << counted.status().message();
  EXPECT_TRUE(counted->emulated.counts_kv);
  EXPECT_FALSE(counted->emulated.counts_dense);
}

TEST(DeviceSpec, DenseWeightsOfAnEmulatedDeviceMayCount) {
  struct Case {
    const char* text;
    bool counts;
    double share;
  };
  for (const Case& c : {Case{"free", false, 1}, Case{"counted", true, 1}, Case{"100%", true, 1},
                        Case{"25%", true, 0.25}, Case{"0%", true, 0}}) {
    const auto spec = parse_device(std::string("emulated:vram=1G,link=16GB/s,dense=") + c.text);
    ASSERT_TRUE(spec.is_ok()) << spec.status().message();
    EXPECT_EQ(spec->emulated.counts_dense, c.counts) << c.text;
    EXPECT_EQ(spec->emulated.dense_share, c.share) << c.text;
  }
}

TEST(DeviceSpec, DenseWeightsOfAGpuMayTakeTurns) {
  struct Case {
    const char* text;
    uint64_t vram_bytes;
    bool in_turn;
    double share;
  };
  for (const Case& c : {Case{"cuda", 0, false, 1}, Case{"cuda:1,dense=counted", 0, true, 1},
                        Case{"cuda,vram=1G,dense=25%", 1ull << 30, true, 0.25},
                        Case{"cuda:0,dense=0%,vram=1G", 1ull << 30, true, 0}, Case{"cuda,dense=100%", 0, true, 1}}) {
    const auto spec = parse_device(c.text);
    ASSERT_TRUE(spec.is_ok()) << spec.status().message();
    for (const CudaDeviceSpec& device : {spec->cuda, parse_device(device_text(spec->cuda))->cuda}) {
      EXPECT_EQ(device.vram_bytes, c.vram_bytes) << c.text;
      EXPECT_EQ(device.dense_in_turn, c.in_turn) << c.text;
      EXPECT_EQ(device.dense_share, c.share) << c.text;
    }
  }
  EXPECT_EQ(device_text({.index = 1, .any = false, .dense_in_turn = true, .dense_share = 0.5}), "cuda:1,dense=50%");
}

TEST(DeviceSpec, WhatIsWrongIsSaid) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"", "is no device; there are cpu, cuda"},
      {"tpu:0", "is no device"},
      {"cuda0", "'cuda0' is no device"},
      {"cuda:-1", "'cuda:-1': '-1' is not the number of a device, as in cuda:0"},
      {"cuda:", "'' is not the number of a device"},
      {"cuda:99999999999", "'99999999999' is not the number"},
      {"cuda:vram=1G", "'vram=1G' is not the number"},
      {"cuda:0x,vram=1G", "'0x' is not the number"},
      {"cuda,", "'' is not vram=SIZE"},
      {"cuda:1,", "'' is not vram=SIZE"},
      {"cuda:1,link=1G", "'link=1G' is not vram=SIZE"},
      {"cuda:1,vram", "'vram' is not vram=SIZE"},
      {"cuda:1,vram=", "vram: '' is not a size"},
      {"cuda:1,vram=lots", "vram: 'lots' is not a size: write it as 512MiB"},
      {"cuda:1,vram=1G,vram=2G", "vram= is given twice"},
      {"cuda:1,dense=counted,dense=5%", "dense= is given twice"},
      {"cuda:1,vram=1G,", "'' is not vram=SIZE"},
      {"cuda:1,dense=free", "dense: 'free' is neither counted nor a share from 0% to 100%"},
      {"cuda:1,dense=101%", "'101%' is neither"},
      {"cuda:1,dense=", "'' is neither"},
      {"cuda:1,kv=counted", "'kv=counted' is not vram=SIZE, and not dense=counted or dense=N%"},
      {"cuda:1,vram=0", "vram: 0 leaves no memory"},
      {"cuda,1", "'1' is not vram=SIZE"},
      {"cpu,vram=1G", "is no device"},
      {"emulated,vram=1G", "is no device"},
      {"emulated", "vram=SIZE is missing"},
      {"emulated:vram=1G", "link=RATE is missing"},
      {"emulated:link=1G", "vram=SIZE is missing"},
      {"emulated:vram=1G,link=1G,compute=5", "compute: '5' is not a duration: write it as 800ns"},
      {"emulated:vram=lots,link=1G", "vram: 'lots' is not a size"},
      {"emulated:vram=1G,link=fast", "'fast' is not a rate"},
      {"emulated:vram=1G,speed=1G", "'speed=1G' is none of vram=SIZE, link=RATE, latency=T, compute=T, kv=counted, "
                                   "dense=counted and dense=N%"},
      {"emulated:vram=1G,link=1G,kv=1G", "kv: '1G' is neither counted nor free"},
      {"emulated:vram=1G,link=1G,dense=1G", "dense: '1G' is neither counted nor free, nor a share from 0% to 100%"},
      {"emulated:vram=1G,link=1G,dense=101%", "'101%' is neither"},
      {"emulated:vram=1G,link=1G,dense=%", "'%' is neither"},
      {"emulated:vram=1G,link=1G,dense=-1%", "'-1%' is neither"},
      {"emulated:vram=1G,link=1G,dense=", "'' is neither"},
      {"emulated:vram", "'vram' is none of vram=SIZE"},
      {"emulated:vram=0,link=1G", "vram=SIZE is missing"},
      {"emulated:vram=1G,vram=2G,link=1G", "vram= is given twice"},
      {"emulated:vram=1G,link=1G,kv=free,kv=free", "kv= is given twice"},
      {"emulated:vram=1G,link=1G,", "'' is none of vram=SIZE"},
  };
  for (const auto& [text, what] : cases) {
    const auto spec = parse_device(text);
    ASSERT_FALSE(spec.is_ok()) << text;
    EXPECT_THAT(spec.status().message(), HasSubstr(what)) << text;
  }
}

}  // namespace
}  // namespace moestro::config

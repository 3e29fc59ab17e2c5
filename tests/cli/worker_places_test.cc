// Which worker is on which device and NUMA node, on machines that stand-ins for the CUDA plugin describe.

#include "services/cli/up/worker_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using testing::HasSubstr;

class WorkerPlacesTest : public ::testing::Test {
 protected:
  WorkerPlacesTest() {
    machine_ = {.plugin = EMULATED_CUDA_PLUGIN, .pci_devices = dir_.path(), .nodes = {0, 1}};
    set_devices(
        "NVIDIA H200,9.0,139G,1G,0000:17:00.0;NVIDIA H200,9.0,139G,1G,0000:65:00.0;NVIDIA A100,8.0,80G,0,0000:ca:00.0");
    node("0000:17:00.0", "0");
    node("0000:65:00.0", "1");
    node("0000:ca:00.0", "1");
  }
  ~WorkerPlacesTest() override { ::unsetenv("MOESTRO_EMULATED_CUDA_DEVICES"); }
  static void set_devices(const std::string& devices) { ::setenv("MOESTRO_EMULATED_CUDA_DEVICES", devices.c_str(), 1); }
  void node(const std::string& pci, const std::string& number) {
    std::filesystem::create_directories(dir_ / pci);
    test::write_file(dir_ / pci / "numa_node", number + "\n");
  }
  std::vector<WorkerPlace> place(const std::string& device, int64_t workers) {
    box_.workers.device = device, box_.workers.count = workers;
    auto places = place_workers(box_, machine_);
    EXPECT_TRUE(places.is_ok()) << places.status().message();
    return places.is_ok() ? *places : std::vector<WorkerPlace>(static_cast<size_t>(workers));
  }
  Status refusal(const std::string& device, int64_t workers) {
    box_.workers.device = device, box_.workers.count = workers;
    return place_workers(box_, machine_).status();
  }
  test::TempDir dir_;
  MachineDevices machine_;
  config::BoxConfig box_;
};

TEST_F(WorkerPlacesTest, OtherDevicesAreTheSameForAll) {
  for (const char* device : {"cpu", "emulated:vram=1G,link=1GB/s"})
    for (const WorkerPlace& worker : place(device, 3)) {
      EXPECT_EQ(worker.device, device);
      EXPECT_FALSE(worker.numa_node);
      EXPECT_EQ(worker.note, "");
    }
}

TEST_F(WorkerPlacesTest, WhatCannotBeComputedOnIsRefusedByItsReason) {
  EXPECT_EQ(refusal("cuda:3", 1).message(),
            "--device cuda:3: there is no CUDA device 3; this machine has 3, counted from 0");
  EXPECT_EQ(refusal("cuda:0,vram=200G", 2).code(), Code::kInvalidArgument);
  set_devices("Tesla T4,7.5,16G;Tesla V100,7.0,32G");
  EXPECT_THAT(refusal("cuda", 2).message(), HasSubstr("Tesla T4 of compute capability 7.5"));
  set_devices("");
  EXPECT_EQ(refusal("cuda", 2).code(), Code::kUnavailable);
  machine_.plugin = "/nowhere/libmoestro_cuda.so";
  EXPECT_THAT(refusal("cuda", 2).message(), HasSubstr("--device cuda: the CUDA plugin is not built"));
}

TEST_F(WorkerPlacesTest, WithoutAnIndexTheyAreSpread) {
  const auto places = place("cuda", 4);
  EXPECT_EQ(places[1].device, "cuda:1");
  EXPECT_EQ(places[2].device, "cuda:2");
  // Two on device 0: 138 GiB less what CUDA takes for a second process, halved.
  EXPECT_EQ(places[0].device, "cuda:0,vram=69688MiB");
  EXPECT_EQ(places[3].device, places[0].device);
  EXPECT_EQ(places[1].note, "on cuda:1, NVIDIA H200 (0000:65:00.0), NUMA node 1");
  EXPECT_EQ(places[0].note, "on cuda:0, NVIDIA H200 (0000:17:00.0), NUMA node 0, at most 68.1 GiB of its memory");
  EXPECT_EQ(place("cuda,vram=10G", 4)[3].device, "cuda:0,vram=10GiB");
  EXPECT_EQ(place("cuda", 1)[0].device, "cuda:0");
}

TEST_F(WorkerPlacesTest, EachRunsOnTheNodeOfItsDeviceAndSharesItsCores) {
  auto places = place("cuda", 3);
  EXPECT_EQ(places[0].numa_node, 0);
  EXPECT_EQ(places[0].share.of, 1);
  EXPECT_EQ(places[1].numa_node, 1);
  EXPECT_EQ(places[2].numa_node, 1);
  EXPECT_EQ(places[1].share.k, 0);
  EXPECT_EQ(places[2].share.k, 1);
  EXPECT_EQ(places[2].share.of, 2);
  machine_.nodes = {0};
  places = place("cuda", 3);
  EXPECT_EQ(places[0].numa_node, 0);
  EXPECT_FALSE(places[1].numa_node) << "this process may not run there";
  box_.workers.numa_node = 1;
  EXPECT_FALSE(place("cuda", 3)[0].numa_node) << "the configuration says it";
  box_.workers.numa_node.reset();
  machine_.pci_devices = "/nowhere";
  EXPECT_FALSE(place("cuda", 3)[0].numa_node);
}

TEST_F(WorkerPlacesTest, CardsThatAreTooOldOrTakenAreLeftOut) {
  set_devices("Tesla T4,7.5,16G;NVIDIA L4,8.9,24G;NVIDIA L4,8.9,24G,24G;NVIDIA L4,8.9,24G");
  const auto places = place("cuda", 2);
  EXPECT_EQ(places[0].device, "cuda:1");
  EXPECT_EQ(places[1].device, "cuda:3");
}

TEST_F(WorkerPlacesTest, AFaultyCardIsLeftOutAndNamed) {
  ::setenv("MOESTRO_EMULATED_CUDA_FAULTS", "faulty-card=0", 1);
  const auto both = place("cuda", 2), one = place("cuda", 1);
  const Status asked_for = refusal("cuda:0", 1);
  ::unsetenv("MOESTRO_EMULATED_CUDA_FAULTS");
  EXPECT_EQ(both[0].device, "cuda:1");
  EXPECT_EQ(both[1].device, "cuda:2");
  EXPECT_EQ(one[0].device, "cuda:1");
  EXPECT_THAT(
      one[0].note,
      HasSubstr("; cuda:0 is left alone: the card, NVIDIA H200, is faulty: uncorrectable ECC error encountered"));
  EXPECT_EQ(asked_for.code(), Code::kUnavailable);
  EXPECT_THAT(asked_for.message(), testing::AllOf(HasSubstr("--device cuda:0: the card, NVIDIA H200, is faulty"),
                                                  HasSubstr("usable here: cuda:1, cuda:2")));
}

TEST_F(WorkerPlacesTest, WithAnIndexTheyShareThatOne) {
  for (const WorkerPlace& worker : place("cuda:2", 2)) EXPECT_EQ(worker.device, "cuda:2,vram=40294MiB");
  for (const WorkerPlace& worker : place("cuda:2,vram=40G", 2)) EXPECT_EQ(worker.device, "cuda:2,vram=40GiB");
  EXPECT_EQ(refusal("cuda:2,vram=41G", 2).code(), Code::kInvalidArgument);
  EXPECT_THAT(refusal("cuda:2,vram=41G", 2).message(),
              HasSubstr("2 workers are on cuda:2, which has 80.0 GiB free, and vram=41GiB is for each of them"));
  set_devices("NVIDIA L4,8.9,24G,23G");
  EXPECT_EQ(refusal("cuda:0", 4).code(), Code::kExhausted);
}

}  // namespace
}  // namespace moestro::cli

// Which core is whose, on a machine of two nodes with four cores each.

#include "services/worker/thread_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace moestro::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Ids = std::vector<int>;

class ThreadPlacesTest : public ::testing::Test {
 protected:
  ThreadPlacesTest() : root_(fs::temp_directory_path() / ("moestro-places-" + std::to_string(::getpid()))) {
    fs::create_directories(root_ / "node/node0");
    fs::create_directories(root_ / "node/node1");
    std::ofstream(root_ / "node/online") << "0-1\n";
    std::ofstream(root_ / "node/node0/cpulist") << "0-3\n";
    std::ofstream(root_ / "node/node1/cpulist") << "4-7\n";
  }
  ~ThreadPlacesTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Result<ThreadPlaces> place(const std::string& name = "worker-0", const Ids& allowed = {0, 1, 2, 3, 4, 5, 6, 7}) {
    return place_threads(box_, name, kernels::cpu::Topology::read(root_, allowed));
  }
  std::string error(const std::string& name = "worker-0") { return place(name).status().message(); }
  fs::path root_;
  config::BoxConfig box_;
};

TEST_F(ThreadPlacesTest, OneWorkerHasTheMachine) {
  EXPECT_EQ(place()->threads, 8);
  EXPECT_EQ(place()->cpus, (Ids{0, 1, 2, 3, 4, 5, 6, 7})) << "auto, over two nodes";
  EXPECT_EQ(place("any name")->cpus.size(), 8u);
  EXPECT_EQ(place("worker-0", {0, 1})->cpus, Ids{}) << "auto, on one node";
  EXPECT_TRUE(place()->allowed.empty());
  EXPECT_EQ(place()->nodes, (Ids{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(place()->main_cpus, (Ids{0, 1, 2, 3})) << "its first core's node";
  box_.workers.pin_threads = "off";
  EXPECT_EQ(place()->cpus, Ids{});
  EXPECT_EQ(place()->nodes, Ids{});
  EXPECT_EQ(place()->main_cpus, Ids{});
  box_.workers.pin_threads = "on";
  EXPECT_EQ(place("worker-0", {0, 1})->cpus, (Ids{0, 1}));
}

TEST_F(ThreadPlacesTest, SeveralShareItAndNoCoreIsGivenTwice) {
  box_.workers.count = 3;
  EXPECT_EQ(place()->threads, 2);
  EXPECT_EQ(place("worker-0")->cpus, (Ids{0, 1}));
  EXPECT_EQ(place("worker-2")->cpus, (Ids{4, 5}));
  EXPECT_EQ(place("worker-2")->nodes, (Ids{1, 1}));
  EXPECT_EQ(place("worker-2")->main_cpus, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(place("another")->cpus, Ids{}) << "auto does not guess";
  box_.workers.pin_threads = "on";
  for (const char* name : {"another", "worker-", "worker-x", "worker--1", "worker-1x"})
    EXPECT_THAT(error(name), HasSubstr("know which cores are theirs")) << name;
}

TEST_F(ThreadPlacesTest, MoreThreadsThanCores) {
  box_.workers.threads = 9;
  EXPECT_EQ(place()->cpus, Ids{}) << "auto";
  box_.workers.pin_threads = "on";
  EXPECT_EQ(error(),
            "--pin-threads on: 9 threads of worker-0 would be on cores 1 to 9 of 8; lower --threads, or take auto");
}

TEST_F(ThreadPlacesTest, OneNode) {
  box_.workers.numa_node = 1;
  EXPECT_EQ(place()->threads, 4);
  EXPECT_EQ(place()->allowed, (Ids{4, 5, 6, 7}));
  EXPECT_EQ(place()->cpus, Ids{});
  box_.workers.pin_threads = "on";
  EXPECT_EQ(place()->cpus, (Ids{4, 5, 6, 7}));
  box_.workers.numa_node = 2;
  EXPECT_EQ(error(), "--numa-node: NUMA node 2 has no CPU that this process may use; nodes that have: 0, 1");
}

TEST_F(ThreadPlacesTest, AShareOfANode) {
  box_.workers.numa_node = 1;
  box_.workers.count = 4;
  const auto cpus = [&](const std::string& share) {
    const auto parsed = box::parse_cpu_share(share);
    EXPECT_TRUE(parsed.is_ok()) << parsed.status().message();
    const auto placed =
        place_threads(box_, "worker-3", kernels::cpu::Topology::read(root_, Ids{0, 1, 2, 3, 4, 5, 6, 7}), *parsed);
    EXPECT_TRUE(placed.is_ok()) << placed.status().message();
    return placed->cpus;
  };
  box_.workers.pin_threads = "on";
  EXPECT_EQ(cpus("0/2"), (Ids{4, 5})) << "two of four workers are on this node, so that each has half of it";
  EXPECT_EQ(cpus("1/2"), (Ids{6, 7}));
  EXPECT_EQ(cpus("0/1"), (Ids{4, 5, 6, 7}));
}

TEST(CpuShare, WhatIsNoShareIsRefused) {
  EXPECT_EQ(box::parse_cpu_share("3/4")->k, 3);
  EXPECT_EQ(box::parse_cpu_share("3/4")->of, 4);
  for (const char* text : {"", "1", "1/", "/2", "2/2", "-1/2", "1/2x", "x/2", "0/0", "0/1025", "1 /2", "99999999999/2"})
    EXPECT_THAT(box::parse_cpu_share(text).status().message(), HasSubstr("is not K/N")) << text;
}

}  // namespace
}  // namespace moestro::worker

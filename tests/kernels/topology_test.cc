// Cores and nodes from a tree like sysfs, and where threads go.

#include "kernels/cpu/topology.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <thread>

#include "kernels/cpu/thread_pool.h"

namespace moestro::kernels::cpu {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<int>;

class TopologyTest : public ::testing::Test {
 protected:
  TopologyTest() : root_(fs::temp_directory_path() / ("moestro-topology-" + std::to_string(::getpid()))) {
    // Two nodes of four cores with two CPUs each; CPU i and i + 8 are one core, nodes hold 0-3,8-11 and 4-7,12-15.
    write("node/online", "0-1");
    write("node/node0/cpulist", "0-3,8-11");
    write("node/node1/cpulist", "4-7,12-15");
    for (int cpu = 0; cpu < 16; ++cpu)
      write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            std::to_string(cpu % 8) + "," + std::to_string(cpu % 8 + 8));
  }
  ~TopologyTest() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void write(const std::string& name, const std::string& text) {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  Topology read(const Ids& allowed) const { return Topology::read(root_, allowed); }
  static Ids range(int first, int end) {
    Ids ids(static_cast<size_t>(end - first));
    std::iota(ids.begin(), ids.end(), first);
    return ids;
  }
  fs::path root_;
};

TEST_F(TopologyTest, CoresOfOneNodeComeTogether) {
  const Topology t = read(range(0, 16));
  EXPECT_EQ(t.cpus(), 16);
  EXPECT_EQ(t.cores(), 8);
  EXPECT_EQ(t.nodes(), (Ids{0, 1}));
  EXPECT_EQ(t.cores_for(3), (Ids{0, 1, 2}));
  EXPECT_EQ(t.cores_for(6), range(0, 6));
  EXPECT_EQ(t.cores_for(2, 2), (Ids{2, 3})) << "a second worker";
  EXPECT_EQ(t.cores_for(4, 6), Ids{}) << "not as many are left";
  EXPECT_EQ(t.cores_for(9), Ids{}) << "two threads of one core are no two cores";
  EXPECT_EQ(t.cpus_of(1), (Ids{4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST_F(TopologyTest, OnlyWhatTheProcessMayUse) {
  const Topology t = read({1, 9, 6, 14, 15});
  EXPECT_EQ(t.cores(), 3);
  EXPECT_EQ(t.cores_for(3), (Ids{1, 6, 15})) << "CPU 7 may not be used, its sibling stands for the core";
  const Topology second = read({12, 13});
  EXPECT_EQ(second.nodes(), Ids{1});
}

TEST_F(TopologyTest, OneNode) {
  const auto one = read(range(0, 16)).only(1);
  ASSERT_TRUE(one.is_ok());
  EXPECT_EQ(one->nodes(), Ids{1});
  EXPECT_EQ(one->cores_for(4), range(4, 8));
  EXPECT_EQ(one->cores_for(5), Ids{});
  for (const int absent : {2, -1}) {
    const auto none = read(range(0, 16)).only(absent);
    ASSERT_FALSE(none.is_ok());
    EXPECT_NE(none.status().message().find("nodes that have: 0, 1"), std::string::npos);
  }
}

TEST_F(TopologyTest, WithoutATreeEachCpuIsACoreOfNode0) {
  const Topology t = Topology::read(root_ / "absent", Ids{3, 5});
  EXPECT_EQ(t.cores(), 2);
  EXPECT_EQ(t.nodes(), Ids{0});
  EXPECT_EQ(t.cores_for(2), (Ids{3, 5}));
}

TEST_F(TopologyTest, DamagedListsAreTakenForNone) {
  write("node/node1/cpulist", "4-");
  EXPECT_EQ(read(range(0, 16)).nodes(), Ids{0});
}

TEST(ThreadPoolPinning, EveryThreadButTheCallerRunsWhereItWasPut) {
  const Topology t = Topology::of_process();
  ASSERT_GE(t.cpus(), 1);
  const int cpu = t.cores_for(1).at(0);
  const int threads = 3;
  ThreadPool pool(threads, Ids(threads, cpu));  // all on one: it must work, and shows
  std::atomic<int> strangers{0}, here{0};
  pool.run(threads, [&](int64_t, int thread) {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    sched_getaffinity(0, sizeof mask, &mask);
    if (thread > 0 && (CPU_COUNT(&mask) != 1 || !CPU_ISSET(cpu, &mask))) ++strangers;
    here.fetch_add(1);
    while (here.load() < threads) std::this_thread::yield();  // so each thread has one
  });
  EXPECT_EQ(strangers.load(), 0);
  EXPECT_EQ(Topology::of_process().cpus(), t.cpus()) << "the caller, and what it starts, may run anywhere";
}

}  // namespace
}  // namespace moestro::kernels::cpu

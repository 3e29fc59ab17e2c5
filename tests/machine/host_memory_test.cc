// Memory limits as kernels write them: each test lays out the files of a machine and reads them.

#include "common/machine/host_memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "common/machine/mounts.h"

namespace moestro::machine {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

class HostMemoryTest : public ::testing::Test {
 protected:
  HostMemoryTest() {
    char name[] = "/tmp/moestro-machine-XXXXXX";
    root_ = ::mkdtemp(name);
    file("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\n");
  }
  ~HostMemoryTest() override { fs::remove_all(root_); }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void v2_group(const std::string& dir, const std::string& max, uint64_t current,
                const std::string& stat = "anon 0\n") {
    file(dir + "/memory.max", max + "\n");
    file(dir + "/memory.current", std::to_string(current) + "\n");
    file(dir + "/memory.stat", stat);
  }
  void v1_group(const std::string& dir, uint64_t limit, uint64_t used, const std::string& stat) {
    file(dir + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    file(dir + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    file(dir + "/memory.stat", stat);
  }
  uint64_t left() const { return read().left().bytes; }
  HostMemory read() const { return read_host_memory(root_); }
  fs::path root_;
};

constexpr const char* kV2Mount = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kV1Mount = "31 24 0:27 / /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory\n";
constexpr uint64_t kV1Unlimited = 0x7FFFFFFFFFFFF000;

TEST_F(HostMemoryTest, WithoutGroupsTheMachineIsTheLimit) {
  const HostMemory memory = read();
  EXPECT_EQ(memory.total_bytes, 16 * kGiB);
  EXPECT_EQ(memory.left().bytes, 12 * kGiB);
  EXPECT_EQ(memory.limit().bytes, 16 * kGiB);
  EXPECT_EQ(memory.limit().whose, "this machine");
}

TEST_F(HostMemoryTest, V2TakesTheTightestOfAllGroupsAbove) {
  file("proc/self/mountinfo", kV2Mount);
  file("proc/self/cgroup", "0::/box.slice/moestro.service/store\n");
  v2_group("sys/fs/cgroup/box.slice/moestro.service/store", "max", 100 * kMiB);
  v2_group("sys/fs/cgroup/box.slice/moestro.service", std::to_string(4 * kGiB), kGiB,
           "anon 1\ninactive_file 104857600\nactive_file 104857600\n");
  v2_group("sys/fs/cgroup/box.slice", std::to_string(8 * kGiB), 7 * kGiB);
  const HostMemory memory = read();
  ASSERT_EQ(memory.groups.size(), 2u) << "what says max is no limit";
  EXPECT_EQ(memory.groups[0].name, "/box.slice/moestro.service");
  EXPECT_EQ(memory.groups[0].left_bytes(), 3 * kGiB + 200 * kMiB) << "clean page cache is given back";
  EXPECT_EQ(memory.limit().bytes, 4 * kGiB);
  EXPECT_EQ(memory.limit().whose, "cgroup /box.slice/moestro.service");
  EXPECT_EQ(memory.left().bytes, kGiB) << "of the outer one less is left";
}

TEST_F(HostMemoryTest, V2ThrottlingCountsAsALimit) {
  file("proc/self/mountinfo", kV2Mount);
  file("proc/self/cgroup", "0::/a\n");
  v2_group("sys/fs/cgroup/a", "max", kGiB);
  file("sys/fs/cgroup/a/memory.high", std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(left(), kGiB);
}

TEST_F(HostMemoryTest, V2InsideAContainerSeesItselfAtTheRoot) {
  file("proc/self/mountinfo", kV2Mount);
  file("proc/self/cgroup", "0::/\n");
  v2_group("sys/fs/cgroup", std::to_string(kGiB), 256 * kMiB);
  EXPECT_EQ(left(), 768 * kMiB);
  file("proc/self/cgroup", "0::/../../other\n");  // moved into a group outside of its namespace
  EXPECT_EQ(left(), 768 * kMiB);
}

TEST_F(HostMemoryTest, WhatOthersTakeIsNotOfAGroupThatOneHasAlone) {
  file("proc/self/mountinfo", kV2Mount);
  file("proc/self/cgroup", "0::/pod/store\n");
  v2_group("sys/fs/cgroup/pod/store", std::to_string(4 * kGiB), kGiB);
  v2_group("sys/fs/cgroup/pod", std::to_string(8 * kGiB), kGiB);
  EXPECT_EQ(read().left(2 * kGiB).bytes, kGiB) << "no list of processes: others may be in it";
  file("sys/fs/cgroup/pod/store/cgroup.procs", "17\n");
  EXPECT_EQ(read().left(2 * kGiB).bytes, 3 * kGiB);
  EXPECT_EQ(read().limit(2 * kGiB).bytes, 4 * kGiB);
  EXPECT_EQ(read().limit(2 * kGiB).whose, "cgroup /pod/store");
  EXPECT_EQ(read().left(5 * kGiB).bytes, 2 * kGiB) << "the pod's is for all of them";
  EXPECT_EQ(read().left(5 * kGiB).whose, "cgroup /pod");
  EXPECT_EQ(read().left(11 * kGiB).bytes, 0u);
  file("sys/fs/cgroup/pod/store/cgroup.procs", "17\n18\n");
  EXPECT_EQ(read().left(2 * kGiB).bytes, kGiB);
  file("sys/fs/cgroup/pod/store/cgroup.procs", "0\n");
  EXPECT_EQ(read().left(2 * kGiB).bytes, kGiB) << "someone of another namespace";
  file("sys/fs/cgroup/pod/store/cgroup.procs", "17\n");
  file("sys/fs/cgroup/pod/store/below/cgroup.procs", "18\n");
  EXPECT_EQ(read().left(2 * kGiB).bytes, kGiB);
}

TEST_F(HostMemoryTest, V1Nested) {
  file("proc/self/mountinfo", kV1Mount);
  file("proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/box/store\n0::/\n");
  v1_group("sys/fs/cgroup/memory/box/store", kV1Unlimited, kGiB, "hierarchical_memory_limit 3221225472\n");
  v1_group("sys/fs/cgroup/memory/box", 3 * kGiB, 2 * kGiB,
           "cache 9\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
  v1_group("sys/fs/cgroup/memory", kV1Unlimited, 9 * kGiB, "");
  const HostMemory memory = read();
  ASSERT_EQ(memory.groups.size(), 1u);
  EXPECT_EQ(memory.left().bytes, kGiB + 512 * kMiB);
  EXPECT_EQ(memory.limit().whose, "cgroup /box");
}

TEST_F(HostMemoryTest, V1InsideAContainerIsToldTheHostsPath) {
  file("proc/self/mountinfo", "31 24 0:27 /docker/4f2a /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n");
  file("proc/self/cgroup", "4:memory:/docker/4f2a\n");
  v1_group("sys/fs/cgroup/memory", 2 * kGiB, kGiB, "hierarchical_memory_limit 1610612736\n");
  const HostMemory memory = read();
  EXPECT_EQ(memory.limit().bytes, kGiB + 512 * kMiB) << "an ancestor that cannot be seen has a lower limit";
  EXPECT_EQ(memory.left().bytes, 512 * kMiB);
}

TEST_F(HostMemoryTest, BothHierarchiesCount) {
  file("proc/self/mountinfo", std::string(kV1Mount) + "32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  file("proc/self/cgroup", "4:memory:/a\n0::/b\n");
  v1_group("sys/fs/cgroup/memory/a", 4 * kGiB, 0, "");
  v2_group("sys/fs/cgroup/unified/b", std::to_string(3 * kGiB), 0);
  EXPECT_EQ(left(), 3 * kGiB);
}

TEST_F(HostMemoryTest, RubbishIsNoLimit) {
  file("proc/self/mountinfo", "x\n\n30 24 0:26\n" + std::string(kV2Mount));
  file("proc/self/cgroup", "\n::\nnothing\n0::/a\n");
  v2_group("sys/fs/cgroup/a", "lots", 1);
  EXPECT_TRUE(read().groups.empty());
  v2_group("sys/fs/cgroup/a", "99999999999999999999999999", 1);
  EXPECT_TRUE(read().groups.empty());
}

TEST_F(HostMemoryTest, HugePagesSetAside) {
  file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
  file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n");
  file("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "40\n");
  file("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
  file("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never deny force\n");
  const HostMemory memory = read();
  ASSERT_EQ(memory.huge.size(), 2u);
  EXPECT_EQ(memory.huge[0].page_bytes, 2 * kMiB);
  EXPECT_EQ(memory.huge[0].free_pages, 60u) << "promised pages are not free";
  EXPECT_EQ(memory.shmem_huge, "advise");
}

TEST_F(HostMemoryTest, MountsWithBlanksInTheirNames) {
  file("proc/self/mountinfo",
       "40 24 0:30 / /mnt/huge\\040pages rw shared:1 master:2 - hugetlbfs none rw,pagesize=2M\n");
  const auto mounts = read_mounts(root_);
  ASSERT_EQ(mounts.size(), 1u);
  EXPECT_EQ(mounts[0].point, "/mnt/huge pages");
  EXPECT_TRUE(has_option(mounts[0].options, "pagesize=2M"));
}

TEST_F(HostMemoryTest, TheMountThatAPathLiesOn) {
  file("proc/self/mountinfo",
       "20 1 0:20 / / rw - ext4 /dev/sda1 rw\n"
       "40 20 0:30 / /srv rw - tmpfs none rw,size=8k\n"
       "41 40 0:31 / /srv/arena rw - tmpfs none rw,size=8k,huge=within_size,mode=700\n"
       "42 41 0:32 / /srv/arena rw - tmpfs none rw,huge=always\n");
  const auto mounts = read_mounts(root_);
  EXPECT_EQ(mount_of("/srv/arenas/x", mounts)->point, "/srv") << "a name that begins alike is another";
  EXPECT_EQ(mount_of("/home", mounts)->point, "/");
  EXPECT_EQ(option_value(mount_of("/srv/arena", mounts)->options, "huge"), "always")
      << "the one mounted last hides the other";
  EXPECT_EQ(option_value(mount_of("/srv", mounts)->options, "huge"), "");
  EXPECT_EQ(option_value("rw,huge=within_size,mode=700", "huge"), "within_size");
  EXPECT_FALSE(mount_of("/srv", {}));
}

TEST(HostMemory, OfThisMachine) {
  const HostMemory memory = read_host_memory();
  EXPECT_GT(memory.left().bytes, 0u);
  EXPECT_LE(memory.left().bytes, memory.total_bytes);
}

}  // namespace
}  // namespace moestro::machine

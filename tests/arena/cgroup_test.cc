// The real store under a memory limit of a cgroup, v1 or v2: it refuses to begin what the kernel would kill it for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/store/child_process.h"
#include "tests/store/memory_directory.h"
#include "tests/store/small_pack.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;
using testing::ChildProcess;
using ::testing::HasSubstr;

/// A group of this machine that a test may make, with a limit.
class LimitedGroup {
 public:
  explicit LimitedGroup(uint64_t limit_bytes) {
    const std::string name = "moestro-test-" + std::to_string(::getpid());
    for (const auto& [root, file] :
         {std::pair<const char*, const char*>{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
          std::pair<const char*, const char*>{"/sys/fs/cgroup", "memory.max"}}) {
      std::error_code error;
      const fs::path dir = fs::path(root) / name;
      if (!fs::create_directory(dir, error)) continue;
      dir_ = dir;
      std::ofstream limit(dir / file);
      limit << limit_bytes << std::flush;
      if (fs::exists(dir / file, error) && limit) return;
      ::rmdir(dir.c_str());
      dir_.clear();
    }
  }
  ~LimitedGroup() {
    for (int i = 0; !dir_.empty() && ::rmdir(dir_.c_str()) != 0 && i < 200; ++i)
      ::usleep(10'000);  // until its last process is gone
  }
  bool made() const { return !dir_.empty(); }
  std::string name() const { return "/" + dir_.filename().string(); }
  /// `words` run inside of it, alone or with the shell that started them.
  std::vector<std::string> inside(const std::vector<std::string>& words, bool alone = false) const {
    std::vector<std::string> all{
        "/bin/sh", "-c",
        "echo $$ > " + (dir_ / "cgroup.procs").string() + (alone ? " && exec \"$@\"" : " && \"$@\"; exit $?"), "sh"};
    all.insert(all.end(), words.begin(), words.end());
    return all;
  }

 private:
  fs::path dir_;
};

class StoreInAGroup : public ::testing::Test {
 protected:
  std::vector<std::string> command() {
    return {testing::program("moestro-store"),
            "--run-dir",
            (pack_.dir / "run").string(),
            "--arena-dir",
            arena_.path().string(),
            "--dram",
            std::to_string(pack_.dram(4)),
            "--model",
            "tiny=" + (pack_.dir / "pack").string()};
  }
  void SetUp() override {
    if (!arena_.in_memory()) GTEST_SKIP() << "no /dev/shm: on a disk no memory limit counts";
  }
  SmallPack pack_;
  testing::MemoryDirectory arena_{pack_.dir / "arena"};
};

TEST_F(StoreInAGroup, WhatItsWorkersNeedBesideTheArenaCounts) {
  const LimitedGroup group(48 << 20);
  if (!group.made()) GTEST_SKIP() << "no right to make a cgroup with a memory limit";
  ChildProcess store(group.inside(command()), (pack_.dir / "store.log").string());
  ASSERT_TRUE(store.says("for the workers")) << store.output();
  EXPECT_EQ(store.wait(), 1);
  EXPECT_THAT(store.output(),
              HasSubstr("for the workers (KV caches, scratch) are more than the 48 MiB of cgroup " + group.name()));
  EXPECT_THAT(store.output(), HasSubstr("lower --dram"));
  EXPECT_FALSE(fs::exists(arena_.path() / "arena")) << "nothing was begun";
}

TEST_F(StoreInAGroup, WorkersInGroupsOfTheirOwnTakeNothingOfIt) {
  const LimitedGroup group(48 << 20);
  if (!group.made()) GTEST_SKIP() << "no right to make a cgroup with a memory limit";
  ChildProcess store(group.inside(command(), true), (pack_.dir / "store.log").string());
  EXPECT_TRUE(store.says("ready")) << store.output();
  EXPECT_THAT(store.output(), HasSubstr("of 48 MiB (cgroup " + group.name()));
}

TEST_F(StoreInAGroup, WithinItsLimitItServesAndSaysWhoseItIs) {
  const LimitedGroup group(512 << 20);
  if (!group.made()) GTEST_SKIP() << "no right to make a cgroup with a memory limit";
  ChildProcess store(group.inside(command(), true), (pack_.dir / "store.log").string());
  EXPECT_TRUE(store.says("ready")) << store.output();
  EXPECT_THAT(store.output(), HasSubstr("of 512 MiB (cgroup " + group.name()));
}

}  // namespace
}  // namespace moestro::store

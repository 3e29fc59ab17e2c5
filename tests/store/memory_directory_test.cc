#include "tests/store/memory_directory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

namespace moestro::testing {
namespace {

/// One of a test that is killed, as ctest kills those that take too long.
std::filesystem::path left_directory() {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const MemoryDirectory directory("/tmp");
    std::ofstream(directory.path() / "arena") << "bytes";
    (void)!::write(ends[1], directory.path().c_str(), directory.path().string().size());
    ::kill(::getpid(), SIGKILL);
  }
  ::close(ends[1]);
  char name[256] = {};
  EXPECT_GT(::read(ends[0], name, sizeof name - 1), 0);
  ::close(ends[0]);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  return name;
}

TEST(MemoryDirectoryTest, WhatAKilledTestHasLeftIsRemovedByTheNext) {
  const MemoryDirectory living("/tmp");
  if (!living.in_memory()) GTEST_SKIP() << "no /dev/shm";
  const auto left = left_directory();
  const MemoryDirectory next("/tmp");
  EXPECT_FALSE(std::filesystem::exists(left)) << left;
  EXPECT_TRUE(std::filesystem::exists(living.path()) && std::filesystem::exists(next.path()));
}

}  // namespace
}  // namespace moestro::testing

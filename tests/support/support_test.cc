// What tests use must itself be right: where things are, and programs that do not start.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "tests/cli/temp_dir.h"
#include "tests/store/child_process.h"
#include "tests/support/places.h"

namespace moestro::test {
namespace {

using ::testing::HasSubstr;

TEST(Places, AreThoseOfThisBuildUnlessTheEnvironmentNamesOthers) {
  ::setenv("MOESTRO_SOURCE_DIR", "/elsewhere", 1);
  EXPECT_EQ(source_dir(), "/elsewhere");
  for (const char* unset : {"MOESTRO_SOURCE_DIR", "MOESTRO_BIN_DIR"}) ::unsetenv(unset);
  EXPECT_TRUE(std::filesystem::exists(source_dir() / "tests/support/support_test.cc")) << source_dir();
  EXPECT_EQ(bin_dir().filename(), "bin");
  ::setenv("MOESTRO_BIN_DIR", "", 1);
  EXPECT_EQ(bin_dir().filename(), "bin") << "empty is not a place";
}

TEST(ChildProcess, OneThatHasEndedIsNotWaitedFor) {
  const TempDir dir;
  const auto begin = std::chrono::steady_clock::now();
  moestro::testing::ChildProcess absent({"/nowhere/moestro-store"}, dir / "absent.log");
  EXPECT_FALSE(absent.says("ready"));
  EXPECT_THAT(absent.output(), HasSubstr("/nowhere/moestro-store: No such file"));
  EXPECT_EQ(absent.wait(), 127);
  moestro::testing::ChildProcess refuses({"/bin/sh", "-c", "echo no room; exit 3"}, dir / "refuses.log");
  EXPECT_FALSE(refuses.says("ready"));
  EXPECT_THAT(refuses.output(), HasSubstr("no room"));
  moestro::testing::ChildProcess speaks({"/bin/sh", "-c", "echo ready"}, dir / "speaks.log");
  EXPECT_TRUE(speaks.says("ready")) << "what it said before it ended counts";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15)) << "the time to wait is 20 s";
}

}  // namespace
}  // namespace moestro::test

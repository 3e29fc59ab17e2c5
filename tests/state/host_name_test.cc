// Under which name a process is known to those that share its state.

#include "orchestrator/state/host_name.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tests/cli/temp_dir.h"

namespace moestro::orchestrator {
namespace {

TEST(HostNameTest, FollowsOneThatHasDiedAndNoneThatLives) {
  const test::TempDir dir;
  auto first = HostName::take(dir.path());
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  const std::string name = first->text();
  const auto beside = HostName::take(dir.path());
  ASSERT_TRUE(beside.is_ok()) << beside.status().message();
  EXPECT_NE(beside->text(), name) << "the first one lives";
  first = invalid_argument("gone");
  EXPECT_EQ(HostName::take(dir.path())->text(), name);
  std::ofstream(dir.path() / "orchestrator.name") << "another-machine.1.2\n";
  EXPECT_NE(HostName::take(dir.path())->text(), "another-machine.1.2") << "a copied directory";
  const std::string taken = HostName::take(dir.path())->text();
  EXPECT_EQ(HostName::take(dir.path())->text(), taken);
  std::filesystem::resize_file(dir.path() / "orchestrator.name", 5);  // its writer died amid it
  EXPECT_NE(HostName::take(dir.path())->text(), taken);
}

TEST(HostNameTest, IsThereOnAFullDiskToo) {
  const test::TempDir dir;
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit nothing{};
        const bool is_full = ::setrlimit(RLIMIT_FSIZE, &nothing) == 0;
        const auto name = HostName::take(dir.path());
        std::_Exit(is_full && name.is_ok() && !name->text().empty() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_FALSE(HostName::take(dir.path())->text().empty());
}

}  // namespace
}  // namespace moestro::orchestrator

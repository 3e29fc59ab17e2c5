#include "services/cli/doctor/stores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

/// A socket that a store left when it was killed: nobody listens.
void leave_socket(const fs::path& run_dir) {
  fs::create_directories(run_dir);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (run_dir / "store.sock").string().copy(address.sun_path, sizeof address.sun_path - 1);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::close(fd);
}

TEST(Stores, AreFoundWhereUpPutsThem) {
  test::TempDir root;
  const fs::path mine = root / ("moestro-" + std::to_string(::geteuid()));
  leave_socket(mine / "demo");
  leave_socket(root / "moestro" / "other");
  leave_socket(root / "elsewhere" / "demo");
  fs::create_directories(mine / "no-store");
  test::write_file(mine / "no-store" / "store.sock", "");
  EXPECT_THAT(find_stores({root.path(), "/no/such/root"}),
              UnorderedElementsAre(mine / "demo", root / "moestro" / "other"));
  EXPECT_THAT(find_stores({root.path()}, {root / "moestro" / ".." / "moestro" / "other"}),
              UnorderedElementsAre(mine / "demo"))
      << "however the directory is written";
}

TEST(Stores, OneThatWasAskedForAndDoesNotAnswerIsMissing) {
  test::TempDir root;
  leave_socket(root / "moestro" / "dead");
  EXPECT_TRUE(judge_stores({root.path()}, {}).empty()) << "what a killed store left is no store";
  const auto findings = judge_stores({root.path()}, {root / "moestro" / "dead"});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::kMissing);
  EXPECT_THAT(findings[0].found, HasSubstr("no store answers"));
}

}  // namespace
}  // namespace moestro::cli

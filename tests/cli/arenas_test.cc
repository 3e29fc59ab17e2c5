#include "services/cli/doctor/arenas.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "services/cli/common/run_dir.h"
#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;

fs::path make_arena(const fs::path& dir) {
  fs::create_directories(dir);
  test::write_file(dir / "store.lock", "");
  test::write_file(dir / "payload", std::string(1 << 20, 'x'));
  return dir;
}

TEST(Arenas, AreFoundWhereUpPutsThem) {
  test::TempDir root;
  const std::string mine = "moestro-" + std::to_string(::geteuid());
  make_arena(root / mine / "demo" / "arena");
  make_arena(root / "moestro" / "other" / "arena");
  make_arena(root / (mine + "-run-x"));
  make_arena(root / "somebody-elses");
  fs::create_directories(root / (mine + "-no-lock"));
  const std::vector<Arena> arenas = find_arenas({root.path(), "/no/such/root"}, {});
  EXPECT_EQ(arenas.size(), 3u);
  for (const Arena& arena : arenas) {
    EXPECT_FALSE(arena.held);
    EXPECT_GE(arena.bytes, 1u << 20);
  }
  EXPECT_EQ(find_arenas({}, {root / "somebody-elses"}).size(), 1u);
}

TEST(Arenas, AHeldOneIsNeverRemoved) {
  test::TempDir root;
  const fs::path dir = make_arena(root / "arena");
  {
    const Fd lock(::open((dir / "store.lock").c_str(), O_RDWR));
    ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
    const std::vector<Arena> arenas = find_arenas({}, {dir});
    ASSERT_EQ(arenas.size(), 1u);
    EXPECT_TRUE(arenas[0].held);
    EXPECT_EQ(remove_arena(arenas[0]).code(), Code::kUnavailable);
    EXPECT_TRUE(fs::exists(dir / "payload"));
  }
  const std::vector<Arena> arenas = find_arenas({}, {dir});
  ASSERT_TRUE(remove_arena(arenas[0]).is_ok());
  EXPECT_FALSE(fs::exists(dir));
}

TEST(Arenas, ALinkIsNotFollowed) {
  test::TempDir root;
  const fs::path target = make_arena(root / "elsewhere");
  fs::create_directory_symlink(target, root / ("moestro-" + std::to_string(::geteuid()) + "-link"));
  EXPECT_TRUE(find_arenas({root.path()}, {}).empty());
}

}  // namespace
}  // namespace moestro::cli

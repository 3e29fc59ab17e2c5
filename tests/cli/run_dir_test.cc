#include "services/cli/common/run_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "common/shm/file_lock.h"
#include "services/cli/up/arena_dir.h"
#include "tests/cli/temp_dir.h"

namespace moestro::cli {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(RunDir, IsMadePrivate) {
  test::TempDir dir;
  const Result<RunDir> made = open_run_dir(dir / "a" / "b");
  ASSERT_TRUE(made.is_ok()) << made.status().message();
  struct stat info {};
  ASSERT_EQ(::stat((dir / "a" / "b").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(fs::is_directory(dir / "a" / "b" / "logs"));
}

TEST(StateDir, LiesWhereItSurvivesAndIsTheUsersAlone) {
  test::TempDir dir;
  const char* home = std::getenv("HOME");
  const std::string home_before = home == nullptr ? "" : home;
  ::setenv("XDG_STATE_HOME", (dir / "x").c_str(), 1);
  EXPECT_EQ(default_state_dir("demo"), dir / "x/moestro/demo");
  EXPECT_EQ(default_state_dir("Qwen/Qwen3"), dir / "x/moestro/Qwen--Qwen3");
  ::unsetenv("XDG_STATE_HOME");
  ::setenv("HOME", dir.path().c_str(), 1);
  const fs::path state = default_state_dir("demo");
  EXPECT_EQ(state, dir / ".local/state/moestro/demo");
  ASSERT_TRUE(make_state_dir(state).is_ok());
  ASSERT_TRUE(make_state_dir(state).is_ok());
  for (const fs::path& made : {state, state.parent_path()}) {
    struct stat info {};
    ASSERT_EQ(::stat(made.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u) << made;
  }
  test::write_file(dir / "file", "");
  EXPECT_THAT(make_state_dir(dir / "file" / "x").message(), HasSubstr("give another --state"));
  ::unsetenv("HOME");
  EXPECT_EQ(default_state_dir("demo"), "");
  if (home != nullptr) ::setenv("HOME", home_before.c_str(), 1);
}

TEST(RunDir, OneUpADirectory) {
  test::TempDir dir;
  {
    const Result<RunDir> first = open_run_dir(dir / "r");
    ASSERT_TRUE(first.is_ok());
    EXPECT_THAT(open_run_dir(dir / "r").status().message(), HasSubstr("another `moestro up` runs in"));
  }
  EXPECT_TRUE(open_run_dir(dir / "r").is_ok());
}

TEST(RunDir, WhatOthersMayEnterOrIsNoDirectoryIsRefused) {
  test::TempDir dir;
  fs::create_directory(dir / "open");
  ::chmod((dir / "open").c_str(), 0755);
  EXPECT_THAT(open_run_dir(dir / "open").status().message(), HasSubstr("chmod 700"));
  test::write_file(dir / "file", "");
  EXPECT_THAT(open_run_dir(dir / "file").status().message(), HasSubstr("is not a directory"));
  fs::create_directory(dir / "real");
  ::chmod((dir / "real").c_str(), 0700);
  fs::create_directory_symlink(dir / "real", dir / "link");
  EXPECT_THAT(open_run_dir(dir / "link").status().message(), HasSubstr("is not a directory"));
  EXPECT_EQ(open_run_dir(dir / "x" / "y" / "z").status().code(),
            Code::kIo);  // a mistyped path does not become a tree
}

TEST(RunDir, OneThatAnotherUserCouldReplaceIsRefused) {
  test::TempDir dir;
  const fs::path above = dir / "moestro-1000", run = above / "demo";
  fs::create_directories(run);
  ::chmod(run.c_str(), 0700);
  ::chmod(above.c_str(), 0777);
  EXPECT_THAT(open_run_dir(run).status().message(), HasSubstr(above.string() + " is open to writing by others"));
  ::chmod(above.c_str(), 0700);
  EXPECT_TRUE(open_run_dir(run).is_ok());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make what belongs to others";
  ASSERT_EQ(::chown(above.c_str(), 12345, 12345), 0);
  EXPECT_THAT(open_run_dir(run).status().message(), HasSubstr("belongs to user 12345"));
  ASSERT_EQ(::chown(above.c_str(), ::geteuid(), ::getegid()), 0);
  fs::create_directory_symlink(above, dir / "link");
  ASSERT_EQ(::lchown((dir / "link").c_str(), 12345, 12345), 0);
  EXPECT_THAT(open_run_dir(dir / "link" / "demo").status().message(), HasSubstr("link belongs to user 12345"));
}

TEST(RunDir, AGroupComesToItAndToItsArena) {
  test::TempDir dir;
  ::chmod(dir.path().c_str(), 0711);
  const shm::FileAccess access{::getegid()};
  const Result<RunDir> run = open_run_dir(dir / "a" / "b", access);
  ASSERT_TRUE(run.is_ok()) << run.status().message();
  const Result<ArenaDir> arena = choose_arena_dir("", run->path, 16 << 20, access);
  ASSERT_TRUE(arena.is_ok()) << arena.status().message();
  for (const fs::path& made : {run->path, arena->path()}) {
    struct stat info {};
    ASSERT_EQ(::stat(made.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0750u) << made;
    EXPECT_EQ(info.st_gid, ::getegid()) << made;
  }
  ::chmod(dir.path().c_str(), 0700);
  const shm::FileAccess others{static_cast<gid_t>(::getegid() + 1)};
  const Status closed = open_run_dir(dir / "c", others).status();
  if (::geteuid() == 0) EXPECT_THAT(closed.message(), HasSubstr("members of group"));
}

TEST(RunDir, APathTooLongForItsSocketsIsRefusedWithTheLimit) {
  const Status status = open_run_dir("/tmp/" + std::string(100, 'x')).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("at most 107 bytes"));
  EXPECT_FALSE(fs::exists("/tmp/" + std::string(100, 'x')));
}

TEST(RunDir, TheTailOfALog) {
  test::TempDir dir;
  EXPECT_EQ(log_tail(dir / "none", 3), "");
  test::write_file(dir / "log", "1\n2\n3\n4\n");
  EXPECT_EQ(log_tail(dir / "log", 2), "3\n4\n");
  EXPECT_EQ(log_tail(dir / "log", 9), "1\n2\n3\n4\n");
  test::write_file(dir / "log", std::string(100'000, 'x') + "\nlast");
  EXPECT_EQ(log_tail(dir / "log", 1), "last");
  EXPECT_EQ(log_tail(dir / "log", 9).size(), 8192u);
}

TEST(RunDir, WhyAProgramEndedInItsOwnWords) {
  test::TempDir dir;
  EXPECT_EQ(last_words(dir / "none", "moestro-store"), "");
  test::write_file(dir / "log", "reading\nmoestro-store: no pack at /p\n");
  EXPECT_EQ(last_words(dir / "log", "moestro-store"), "no pack at /p");
  EXPECT_EQ(last_words(dir / "log", "moestro-worker"), "");
  test::write_file(dir / "log", "moestro-store: no pack at /p\n[info] ready\n");
  EXPECT_EQ(last_words(dir / "log", "moestro-store"), "") << "not the last thing it said";
}

TEST(ArenaDir, WhatTheUserGaveIsMadeAndLeft) {
  test::TempDir dir;
  {
    const Result<ArenaDir> arena = choose_arena_dir((dir / "mine").string(), dir.path(), std::nullopt);
    ASSERT_TRUE(arena.is_ok()) << arena.status().message();
    EXPECT_EQ(arena->path(), dir / "mine");
    test::write_file(dir / "mine" / "store.lock", "");
  }
  EXPECT_TRUE(fs::exists(dir / "mine" / "store.lock"));
}

TEST(ArenaDir, OneThatAnotherStoreServesOutOfIsRefusedAtOnce) {
  test::TempDir dir;
  const fs::path mine = dir / "mine";
  fs::create_directory(mine);
  auto alive = shm::FileLock::open(mine / "alive", true), store = shm::FileLock::open(mine / "store.lock", true);
  ASSERT_TRUE(alive && store && *alive->try_lock() && *store->try_lock());
  const Status refused = choose_arena_dir(mine.string(), dir.path(), std::nullopt).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("another store serves out of " + mine.string()));
  alive->unlock();
  EXPECT_TRUE(choose_arena_dir(mine.string(), dir.path(), std::nullopt)) << "the reads of a killed store end";
  store->unlock();
  EXPECT_TRUE(choose_arena_dir(mine.string(), dir.path(), std::nullopt));
}

/// An ordinary user's run directory is on a tmpfs that is much smaller than /dev/shm.
TEST(ArenaDir, OfTwoPlacesThatAreTooSmallTheLargerIsTaken) {
  test::TempDir dir;
  ::chmod(dir.path().c_str(), 0711);
  const fs::path run = dir / "run";
  fs::create_directory(run);
  if (::mount("moestro-test", run.c_str(), "tmpfs", 0, "mode=0700,uid=65534,size=1M") != 0)
    GTEST_SKIP() << "no right to mount a small tmpfs";
  const auto arena_of_a_user = [&] {
    if (::setresuid(65534, 65534, 65534) != 0) return 2;
    const Result<ArenaDir> arena = choose_arena_dir("", run, uint64_t{1} << 60);
    return arena.is_ok() && arena->path().string().starts_with("/dev/shm/") ? 0 : 1;
  };
  EXPECT_EXIT(::_exit(arena_of_a_user()), testing::ExitedWithCode(0), "");
  ::umount2(run.c_str(), MNT_DETACH);
}

TEST(ArenaDir, WhatWasFoundForTheUserIsExplainedAndGoesAgain) {
  test::TempDir dir;
  fs::path path;
  {
    const Result<ArenaDir> arena = choose_arena_dir("", dir.path(), 16 << 20);
    ASSERT_TRUE(arena.is_ok()) << arena.status().message();
    path = arena->path();
    EXPECT_THAT(arena->explanation(), HasSubstr(path.string()));
    test::write_file(path / "payload", "x");
    EXPECT_TRUE(fs::exists(path / "payload"));
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace moestro::cli

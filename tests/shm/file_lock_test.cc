#include "common/shm/file_lock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::shm {
namespace {

TEST(FileLock, IsOnesAlone) {
  const testing::TemporaryDirectory dir;
  auto a = FileLock::open(dir / "lock", true), b = FileLock::open(dir / "lock", false);
  ASSERT_TRUE(a && b);
  EXPECT_FALSE(*b->held_elsewhere());
  ASSERT_TRUE(*a->try_lock());
  EXPECT_FALSE(*b->try_lock());
  EXPECT_TRUE(*b->held_elsewhere());
  EXPECT_FALSE(*a->held_elsewhere()) << "not by another";
  EXPECT_TRUE(*b->held_elsewhere()) << "asking changes nothing";
  a->unlock();
  EXPECT_FALSE(*b->held_elsewhere());
  ASSERT_TRUE(*b->try_lock());
  *b = {};
  EXPECT_TRUE(*a->try_lock()) << "it goes with its descriptor";
}

TEST(FileLock, WhoeverAsksHindersNobody) {
  const testing::TemporaryDirectory dir;
  auto mine = FileLock::open(dir / "lock", true);
  ASSERT_TRUE(mine);
  std::atomic<bool> stop{false};
  std::atomic<int> asked{0};
  std::thread other([&] {
    auto theirs = FileLock::open(dir / "lock", false);
    while (!stop.load()) (void)*theirs->held_elsewhere(), ++asked;
  });
  for (int i = 0; i < 20000 || asked.load() < 20000; ++i) {
    ASSERT_TRUE(*mine->try_lock()) << "at the first try, " << i;
    mine->unlock();
  }
  stop = true;
  other.join();
}

TEST(FileLock, OneThatIsOnlyReadableCanBeAskedFor) {
  const testing::TemporaryDirectory dir;
  auto holder = FileLock::open(dir / "lock", true, 0444);
  ASSERT_TRUE(holder && *holder->try_lock());
  auto asker = FileLock::open(dir / "lock", false);
  ASSERT_TRUE(asker) << asker.status().message();
  EXPECT_TRUE(*asker->held_elsewhere());
}

TEST(FileLock, OneThatIsNotThereIsNamed) {
  EXPECT_EQ(FileLock::open("/nowhere/lock", false).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace moestro::shm

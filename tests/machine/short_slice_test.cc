// Slices as this machine's scheduler has them; skipped where it knows none.

#include "common/machine/short_slice.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace moestro::machine {
namespace {

constexpr uint64_t kShort = 100'000;

TEST(ShortSlices, AreThisThreadsAndThoseOfThreadsItStartsWhileOneLives) {
  const uint64_t before = slice_ns();
  if (before == 0) GTEST_SKIP() << "this kernel has no slices for each thread";
  ASSERT_GT(before, kShort);
  uint64_t inside = 0, started = 0, behind = 0;
  {
    const ShortSlice slice;
    inside = slice_ns();
    std::thread([&] { started = slice_ns(); }).join();
  }
  std::thread([&] { behind = slice_ns(); }).join();
  EXPECT_EQ(inside, kShort);
  EXPECT_EQ(started, kShort);
  EXPECT_EQ(slice_ns(), before);
  EXPECT_EQ(behind, before);
}

TEST(ShortSlices, OneInAnotherGivesBackTheOuterOne) {
  if (slice_ns() == 0) GTEST_SKIP() << "this kernel has no slices for each thread";
  const ShortSlice outer;
  { const ShortSlice inner; }
  EXPECT_EQ(slice_ns(), kShort);
}

TEST(ShortSlices, AThreadWithAPolicyOfItsOwnKeepsIt) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
    { const ShortSlice slice; }
    EXPECT_EQ(::sched_getscheduler(0), SCHED_IDLE);
  }).join();
}

}  // namespace
}  // namespace moestro::machine

// A drive on a virtual clock: what is read when.

#include "store/replay/virtual_drive.h"

#include <gtest/gtest.h>

namespace moestro::store {
namespace {

constexpr uint64_t kRead = 1000, kPart = 250;

class VirtualDriveTest : public ::testing::Test {
 protected:
  /// Ends the current chunk, and begins the next.
  std::optional<VirtualDrive::Ended> next() {
    now_ = drive_.ends().value();
    const auto ended = drive_.finish();
    drive_.poke(now_);
    return ended;
  }
  /// The load that ends next.
  uint64_t next_load() {
    while (true)
      if (const auto ended = next()) return ended->load;
  }
  VirtualDrive drive_{{1e9, Nanos{70}}, kRead, kPart};
  Nanos now_{0};
};

TEST_F(VirtualDriveTest, AReadTakesItsLatencyOnceAndItsBytes) {
  drive_.begin(7, 3, true);
  EXPECT_FALSE(drive_.ends()) << "nothing begins before it is poked";
  drive_.poke(now_);
  EXPECT_EQ(drive_.ends(), Nanos{70 + 250});
  for (int part = 1; part < 4; ++part) EXPECT_FALSE(next());
  const auto ended = next();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->load, 7u);
  EXPECT_EQ(ended->entry, 3u);
  EXPECT_EQ(ended->bytes, kRead);
  EXPECT_TRUE(ended->whole);
  EXPECT_EQ(now_, Nanos{70 + 1000});
  EXPECT_EQ(drive_.bytes(), kRead);
  EXPECT_EQ(drive_.busy(), now_);
  EXPECT_FALSE(drive_.ends());
}

TEST_F(VirtualDriveTest, ADemandOvertakesWhatIsReadAheadAtItsNextChunk) {
  drive_.begin(1, 1, false);
  drive_.poke(now_);
  drive_.begin(2, 2, true);
  drive_.begin(3, 3, true);
  EXPECT_EQ(next_load(), 2u);
  EXPECT_EQ(now_, Nanos{70 + 250 + 70 + 1000}) << "the chunk that was being read is read";
  EXPECT_EQ(next_load(), 3u);
  EXPECT_EQ(next_load(), 1u);
  EXPECT_EQ(now_, Nanos{3 * 1070}) << "and nothing twice";
}

TEST_F(VirtualDriveTest, WhatIsDemandedLaterGoesFirstToo) {
  for (const uint64_t load : {1, 2, 3}) drive_.begin(load, 0, false);
  drive_.poke(now_);
  drive_.promote(3);
  EXPECT_EQ(next_load(), 3u);
  EXPECT_EQ(next_load(), 1u);
}

TEST_F(VirtualDriveTest, ACancelledReadEndsWithItsChunk) {
  for (const uint64_t load : {1, 2, 3}) drive_.begin(load, 0, false);
  drive_.poke(now_);
  for (const uint64_t load : {1, 2}) drive_.cancel(load);
  const auto waiting = drive_.take_cancelled();
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->load, 2u);
  EXPECT_EQ(waiting->bytes, 0u);
  EXPECT_FALSE(waiting->whole);
  EXPECT_FALSE(drive_.take_cancelled()) << "a chunk of the other one is being read";
  const auto reading = next();
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->load, 1u);
  EXPECT_EQ(reading->bytes, kPart);
  EXPECT_FALSE(reading->whole);
  EXPECT_EQ(next_load(), 3u);
}

TEST_F(VirtualDriveTest, ADemandIsNotCancelled) {
  drive_.begin(1, 0, true);
  drive_.cancel(1);
  EXPECT_FALSE(drive_.take_cancelled());
  drive_.poke(now_);
  EXPECT_EQ(next_load(), 1u);
}

}  // namespace
}  // namespace moestro::store

// The pace of looking at what is in memory again: never more than one slice while something else is to be done.

#include "store/server/scrubber.h"

#include <gtest/gtest.h>

namespace moestro::store {
namespace {

using std::chrono::milliseconds;
constexpr uint64_t kSlice = 1 << 20;

class ScrubberTest : public ::testing::Test {
 protected:
  ScrubberTest() { scrubber_.set_rate(32 * kSlice); }
  /// How many slices are due until `end`, looked at as soon as they are.
  int slices_until(Scrubber::TimePoint end) {
    int slices = 0;
    for (; now_ < end; now_ += milliseconds(1))
      for (; scrubber_.due() <= now_; ++slices) scrubber_.looked_at(kSlice, now_);
    return slices;
  }
  Scrubber scrubber_;
  Scrubber::TimePoint now_{std::chrono::hours(1)};
};

TEST_F(ScrubberTest, KeepsItsRate) {
  (void)slices_until(now_ + milliseconds(1000));
  EXPECT_NEAR(slices_until(now_ + milliseconds(10000)), 320, 1);
  EXPECT_GE(scrubber_.bytes(), 320 * kSlice);
}

TEST_F(ScrubberTest, TimeThatWentToOthersIsNotMadeUpFor) {
  (void)slices_until(now_ + milliseconds(1000));
  scrubber_.busy(now_ + milliseconds(60000));
  EXPECT_EQ(slices_until(now_ + milliseconds(60000)), 0);
  EXPECT_LE(slices_until(now_ + milliseconds(1000)), 34);
}

TEST_F(ScrubberTest, StoreThatWasStoppedForLongDoesNotRunThroughItsMemory) {
  (void)slices_until(now_ + milliseconds(1000));
  now_ += std::chrono::hours(1);
  EXPECT_LE(slices_until(now_ + milliseconds(1000)), 36);
}

}  // namespace
}  // namespace moestro::store

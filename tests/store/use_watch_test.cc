// What the store learns from pin words.

#include "store/machine/use_watch.h"

#include <gtest/gtest.h>

#include "store/blob_source.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

TEST(PinWord, KeepsPinCountAndStampApart) {
  const uint64_t first = PinWord::used(0, 16, 1000);
  EXPECT_TRUE(PinWord::pinned(first));
  EXPECT_EQ(PinWord::uses(first), 16u);
  EXPECT_EQ(PinWord::stamp(first), 1000u);
  const uint64_t let_go = PinWord::unpinned(first);
  EXPECT_FALSE(PinWord::pinned(let_go));
  EXPECT_EQ(PinWord::uses(let_go), 16u);
  uint64_t word = let_go;
  for (int i = 0; i < 3000; ++i) word = PinWord::used(word, 16, PinWord::kStampMask);
  EXPECT_TRUE(PinWord::pinned(word)) << "the count turns over and carries into nothing";
  EXPECT_EQ(PinWord::uses(word), (3001 * 16) & PinWord::kUsesMask);
  EXPECT_EQ(PinWord::stamp(word), PinWord::kStampMask);
}

TEST(UseWeight, IsTheShareOfRowsInSixteenths) {
  EXPECT_EQ(UseWeight().sixteenths(), 16);
  EXPECT_EQ(UseWeight::of(1).sixteenths(), 16);
  EXPECT_EQ(UseWeight::of(7.5F).sixteenths(), 16) << "several tokens of one step are one use";
  EXPECT_EQ(UseWeight::of(0.25F).sixteenths(), 4);
  EXPECT_EQ(UseWeight::of(0.001F).sixteenths(), 1) << "but it was used";
}

TEST(UseTime, RunsInUsesAndStandsStillBetween) {
  UseTime time;
  EXPECT_EQ(time.now(), 0);
  EXPECT_EQ(time.at(5), 0);
  time.sample(100, 0);
  time.sample(200, 10);
  time.sample(1000, 10);  // an idle while
  time.sample(1100, 30);
  EXPECT_EQ(time.at(150), 5);
  EXPECT_EQ(time.at(1050), 20);
  EXPECT_EQ(time.at(1000), 10);
  EXPECT_EQ(time.at(5000), 30);
  EXPECT_EQ(time.at(1), 0);
  for (uint64_t i = 0; i < 10000; ++i) time.sample(2000 + 10 * i, 30 + 2.0 * static_cast<double>(i));
  EXPECT_NEAR(time.at(2000 + 50000), 30 + 10000, 200) << "the past grows coarser, not shorter";
  EXPECT_EQ(time.now(), 30 + 2 * 9999);
}

class UseWatchTest : public ::testing::Test {
 protected:
  UseWatchTest() : watch_(shared_) {
    shared_.resize(4);
    watch_.resize(4);
    watch_.tick();
  }
  FakeSharedState shared_;
  UseWatch watch_;
};

TEST_F(UseWatchTest, CountsWhatWasAddedSinceItLooked) {
  EXPECT_FALSE(watch_.news(1));
  for (int i = 0; i < 3; ++i) shared_.use(0, 1);
  watch_.tick();
  const auto use = watch_.news(1);
  ASSERT_TRUE(use);
  EXPECT_EQ(use->weight, 3);
  EXPECT_FALSE(use->scan);
  EXPECT_GT(use->time, 1);
  EXPECT_LE(use->time, watch_.now()) << "as many uses as there have been";
  EXPECT_EQ(watch_.now(), 3);
  EXPECT_FALSE(watch_.news(1)) << "told once";
  EXPECT_FALSE(watch_.news(2));
}

TEST_F(UseWatchTest, KnowsAScanByTheStampThatStays) {
  shared_.use(0, 1);
  watch_.tick();
  ASSERT_TRUE(watch_.news(1));
  shared_.scan(1, 2);
  shared_.scan(3, 1);
  watch_.tick();
  const auto use = watch_.news(1);
  ASSERT_TRUE(use);
  EXPECT_TRUE(use->scan);
  EXPECT_EQ(use->weight, 2 / 16.0);
  EXPECT_TRUE(watch_.news(3)->scan) << "a prompt may be the first to use it";
}

TEST_F(UseWatchTest, FollowsACountThatTurnsOver) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 1000; ++i) shared_.use(0, 2);
    watch_.tick();
    ASSERT_EQ(watch_.news(2)->weight, 1000);
  }
}

TEST_F(UseWatchTest, AWorkerThatGoesTakesNothingBack) {
  for (int i = 0; i < 5; ++i) shared_.use(0, 1);
  watch_.tick();
  ASSERT_TRUE(watch_.news(1));
  shared_.sixteenths[1] = 16;  // its count is gone, another's remains
  watch_.rebase();
  EXPECT_FALSE(watch_.news(1));
  shared_.use(1, 1);
  EXPECT_EQ(watch_.news(1)->weight, 1);
}

}  // namespace
}  // namespace moestro::store

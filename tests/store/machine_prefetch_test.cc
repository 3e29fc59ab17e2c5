// The machine's reading ahead: what is begun when, what is promoted, dropped and counted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "common/policy/lru_policy.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Action::Kind;
constexpr uint64_t kExpert = 4096;
constexpr LayerRank kDropLayer0{0, LayerRank::kDrop};

/// Eight experts of one page (entries 1 to 8), two begun at once.
class MachinePrefetch : public ::testing::Test {
 protected:
  void make(uint32_t slots) {
    std::vector<MachineBlob> blobs{{true, 8192}};
    for (uint32_t i = 0; i < 8; ++i) blobs.push_back({false, kExpert});
    shared_.resize(blobs.size());
    StoreMachine::Options options;
    options.arena_bytes = 8192 + slots * kExpert;
    options.loading_bytes_max = 2 * kExpert;
    auto made = StoreMachine::create(options, blobs, std::make_unique<policy::LruPolicy>(), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
    ASSERT_TRUE(machine_->attach(0, kExpert, "a"));
  }
  static std::vector<uint32_t> of(const Actions& actions, Kind kind) {
    std::vector<uint32_t> found;
    for (const Action& action : actions)
      if (action.kind == kind) found.push_back(action.entry);
    return found;
  }
  Actions done(const Action& read, const Status& status = Status::ok()) {
    return machine_->read_done(read.entry, read.load, status, {read.entry, 7});
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
};

TEST_F(MachinePrefetch, LandsUnpinnedAndTellsNobody) {
  make(8);
  const Actions begun = machine_->prefetch(0, {1, 0}, {1, 1, 2, 3});
  EXPECT_THAT(of(begun, Kind::kRead), ElementsAre(1, 2));
  EXPECT_EQ(begun[0].read_class, ReadClass::kPrefetch);
  EXPECT_THAT(of(done(begun[0]), Kind::kNotify), IsEmpty());
  EXPECT_EQ(shared_.state(1), Residency::kResident);
  EXPECT_FALSE(shared_.pinned(1));
  EXPECT_EQ(machine_->counters().prefetches, 3u);
  EXPECT_THAT(machine_->prefetch(0, {1, 0}, {1}), IsEmpty()) << "it is there";
}

TEST_F(MachinePrefetch, DemandsDoNotWaitBehindPrefetches) {
  make(8);
  const Actions begun = machine_->prefetch(0, {1, 0}, {1, 2, 3, 4});
  EXPECT_THAT(of(machine_->fetch(0, {9, 5}, {5, 6}), Kind::kRead), ElementsAre(5, 6))
      << "two of their own, beside the prefetches";
  EXPECT_THAT(of(machine_->fetch(0, {9, 5}, {7}), Kind::kRead), IsEmpty());
  EXPECT_THAT(of(done(begun[0]), Kind::kRead), IsEmpty()) << "no prefetch is begun while a demand waits";
}

TEST_F(MachinePrefetch, QueuedPrefetchThatIsDemandedIsReadAsADemand) {
  make(8);
  machine_->prefetch(0, {1, 0}, {1, 2, 3, 4});
  const Actions demanded = machine_->fetch(0, {1, 0}, {4});
  ASSERT_THAT(of(demanded, Kind::kRead), ElementsAre(4));
  EXPECT_EQ(demanded[0].read_class, ReadClass::kDemand);
  EXPECT_THAT(of(done(demanded[0]), Kind::kNotify), ElementsAre(4));
}

TEST_F(MachinePrefetch, BegunPrefetchThatIsDemandedIsPromoted) {
  make(8);
  const Actions begun = machine_->prefetch(0, {1, 0}, {1, 2});
  const Actions demanded = machine_->fetch(0, {1, 0}, {1});
  ASSERT_THAT(of(demanded, Kind::kPromote), ElementsAre(1));
  EXPECT_EQ(demanded[0].load, begun[0].load);
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {1}), Kind::kPromote), IsEmpty()) << "once";
  EXPECT_THAT(of(done(begun[0]), Kind::kNotify), ElementsAre(1));
  EXPECT_EQ(machine_->counters().prefetches_late, 1u);
  EXPECT_EQ(machine_->counters().joined, 1u);
  EXPECT_EQ(machine_->prefetch_counters().unused, 0u) << "it was late, not used after it landed";
}

TEST_F(MachinePrefetch, DroppedLayersAreNotBegunAndBegunOnesEnd) {
  make(8);
  const Actions begun = machine_->prefetch(0, {1, 0}, {1, 2, 3, 4});
  machine_->prefetch(0, {1, 1}, {5});
  const Actions dropped = machine_->steer(0, 1, std::array{kDropLayer0});
  EXPECT_THAT(of(dropped, Kind::kCancel), ::testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(machine_->counters().prefetches_dropped, 4u);
  EXPECT_THAT(of(done(begun[0], cancelled("")), Kind::kRead), ElementsAre(5)) << "what is left";
  EXPECT_EQ(shared_.state(1), Residency::kAbsent);
  done(begun[1]);
  EXPECT_EQ(shared_.state(2), Residency::kResident) << "whole before it could be given up";
  EXPECT_EQ(machine_->counters().bad_blobs, 0u);
}

TEST_F(MachinePrefetch, DemandOfAReadThatIsBeingGivenUpIsReadAgain) {
  make(8);
  const Actions begun = machine_->prefetch(0, {1, 0}, {1});
  machine_->steer(0, 1, std::array{kDropLayer0});
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {1}), Kind::kRead), IsEmpty());
  const Actions again = done(begun[0], cancelled(""));
  ASSERT_THAT(of(again, Kind::kRead), ElementsAre(1));
  EXPECT_THAT(of(done(again[0]), Kind::kNotify), ElementsAre(1));
}

TEST_F(MachinePrefetch, PrefetchWithoutRoomHoldsUpNobody) {
  make(3);
  const Actions begun = machine_->fetch(0, {1, 0}, {1, 2});
  for (const Action& read : begun) done(read);
  const Actions third = machine_->fetch(0, {1, 0}, {3});
  done(third[0]);
  shared_.pins[0] = {1, 2, 3};
  EXPECT_THAT(machine_->prefetch(0, {1, 1}, {4, 5}), IsEmpty());
  EXPECT_FALSE(machine_->blocked());
  shared_.pins[0] = {1, 2};
  EXPECT_THAT(of(machine_->fetch(0, {1, 0}, {6}), Kind::kRead), ElementsAre(6));
}

TEST_F(MachinePrefetch, WorkerThatIsGoneTakesItsPrefetchesAlong) {
  make(8);
  ASSERT_TRUE(machine_->attach(1, kExpert, "b"));
  machine_->prefetch(0, {1, 0}, {1, 2, 3});
  machine_->prefetch(1, {1, 0}, {2});
  EXPECT_THAT(of(machine_->gone(0), Kind::kCancel), ElementsAre(1)) << "worker 1 still wants 2";
  EXPECT_EQ(machine_->queued(), 0u);
}

TEST_F(MachinePrefetch, UsedAndWastedAreCounted) {
  make(2);
  const Actions begun = machine_->prefetch(0, {1, 0}, {1, 2});
  for (const Action& read : begun) done(read);
  EXPECT_EQ(machine_->prefetch_counters().unused, 2u);
  shared_.use(0, 2);
  EXPECT_EQ(machine_->prefetch_counters().used, 1u);
  const Actions fetched = machine_->fetch(0, {1, 0}, {3});  // evicts 1, which nobody used
  EXPECT_EQ(shared_.state(1), Residency::kAbsent);
  EXPECT_EQ(machine_->prefetch_counters().wasted, 1u);
  EXPECT_EQ(machine_->prefetch_counters().wasted_bytes, kExpert);
  EXPECT_EQ(machine_->prefetch_counters().unused, 0u);
}

}  // namespace
}  // namespace moestro::store

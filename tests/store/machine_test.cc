// The machine, step by step.

#include "store/machine/store_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/lru_policy.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// One dense blob (entry 0) and `experts` experts of one page; room for `slots` of them.
class MachineTest : public ::testing::Test {
 protected:
  void make(uint32_t experts, uint32_t slots, bool poison = false) {
    std::vector<MachineBlob> blobs{{true, 8192}};
    for (uint32_t i = 0; i < experts; ++i) blobs.push_back({false, kExpertBytes});
    shared_.resize(blobs.size());
    auto made = StoreMachine::create({8192 + slots * kExpertBytes, 2 * kExpertBytes, poison}, blobs,
                                     std::make_unique<policy::LruPolicy>(), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
  }
  static std::vector<uint32_t> reads(const Actions& actions) { return entries(actions, Action::Kind::kRead); }
  static std::vector<uint32_t> notified(const Actions& actions) { return entries(actions, Action::Kind::kNotify); }
  static std::vector<uint32_t> entries(const Actions& actions, Action::Kind kind) {
    std::vector<uint32_t> found;
    for (const Action& action : actions)
      if (action.kind == kind) found.push_back(action.entry);
    return found;
  }
  /// Fetches and completes everything at once; the blobs end up resident and unpinned.
  void bring_in(uint32_t slot, const std::vector<uint32_t>& wanted) {
    Actions todo = machine_->fetch(slot, {}, wanted);
    while (!todo.empty()) {
      const Action action = todo.front();
      todo.erase(todo.begin());
      if (action.kind != Action::Kind::kRead) continue;
      const Actions more = machine_->read_done(action.entry, action.load, Status::ok(), {});
      todo.insert(todo.end(), more.begin(), more.end());
    }
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
};

TEST_F(MachineTest, ArenaTooSmallIsRefusedWithTheNumbers) {
  const auto made = StoreMachine::create({8192, 1 << 20, false}, {{true, 8192}, {false, 4096}},
                                         std::make_unique<policy::LruPolicy>(), shared_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.status().code(), Code::kExhausted);
  EXPECT_THAT(made.status().message(), HasSubstr("at least 12288"));
}

TEST_F(MachineTest, WorkersWhoseReservesDoNotFitAreRefused) {
  make(8, 2);
  EXPECT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  EXPECT_EQ(shared_.shares[0], 2 * kExpertBytes);
  EXPECT_TRUE(machine_->attach(1, kExpertBytes, "b"));
  EXPECT_EQ(shared_.shares[0], kExpertBytes);
  const Status third = machine_->attach(2, kExpertBytes, "c");
  EXPECT_EQ(third.code(), Code::kExhausted);
  EXPECT_THAT(third.message(), HasSubstr("worker 'c'"));
  machine_->gone(0);
  EXPECT_TRUE(machine_->attach(2, kExpertBytes, "c"));
}

TEST_F(MachineTest, OneReadServesAllWhoWantIt) {
  make(4, 4);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  ASSERT_TRUE(machine_->attach(1, kExpertBytes, "b"));
  const Actions first = machine_->fetch(0, {1, 0}, {2});
  EXPECT_THAT(reads(first), ElementsAre(2));
  EXPECT_THAT(machine_->fetch(1, {9, 0}, {2}), IsEmpty());
  EXPECT_THAT(machine_->fetch(1, {9, 0}, {2}), IsEmpty()) << "asking twice is one request";
  const Actions done = machine_->read_done(2, first[0].load, Status::ok(), {});
  ASSERT_EQ(done.size(), 2u);
  EXPECT_EQ(shared_.state(2), Residency::kResident);
  EXPECT_EQ(machine_->counters().joined, 1u);
  EXPECT_THAT(notified(machine_->fetch(0, {2, 0}, {2})), ElementsAre(2)) << "resident: told at once";
}

TEST_F(MachineTest, OrderIsPlanThenLayer) {
  make(8, 8);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  const Actions begun = machine_->fetch(0, {5, 3}, {1, 2, 3});  // two at once
  EXPECT_THAT(reads(begun), ElementsAre(1, 2));
  machine_->fetch(0, {6, 0}, {4});
  machine_->fetch(0, {5, 1}, {5});
  std::vector<uint32_t> order;
  Actions todo = begun;
  while (!todo.empty()) {
    const Action action = todo.front();
    todo.erase(todo.begin());
    if (action.kind != Action::Kind::kRead) continue;
    order.push_back(action.entry);
    const Actions more = machine_->read_done(action.entry, action.load, Status::ok(), {});
    todo.insert(todo.end(), more.begin(), more.end());
  }
  EXPECT_THAT(order, ElementsAre(1, 2, 5, 3, 4));
}

TEST_F(MachineTest, WorkersTakeTurns) {
  make(8, 8);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  ASSERT_TRUE(machine_->attach(1, kExpertBytes, "b"));
  Actions begun = machine_->fetch(0, {1, 0}, {1, 2, 3, 4});
  EXPECT_THAT(reads(begun), ElementsAre(1, 2));
  machine_->fetch(1, {900, 0}, {5, 6});
  EXPECT_THAT(reads(machine_->read_done(1, begun[0].load, Status::ok(), {})), ElementsAre(5))
      << "however large its plan's number";
}

TEST_F(MachineTest, ReadsNobodyWantsAnyMoreAreNotBegun) {
  make(8, 8);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  const Actions begun = machine_->fetch(0, {1, 0}, {1, 2, 3, 4});
  machine_->cancel(0);
  EXPECT_EQ(machine_->queued(), 0u);
  EXPECT_THAT(machine_->read_done(1, begun[0].load, Status::ok(), {}), IsEmpty());
  EXPECT_EQ(shared_.state(1), Residency::kResident) << "what was begun is kept";
}

TEST_F(MachineTest, EvictsTheLeastRecentlyUsedAndNeverThePinned) {
  make(6, 3, true);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  bring_in(0, {1, 2, 3});
  shared_.use(0, 1);  // a hit, of which nobody told the store
  shared_.pins[0].insert(2);
  const Actions actions = machine_->fetch(0, {1, 0}, {4});
  EXPECT_THAT(entries(actions, Action::Kind::kPoison), ElementsAre(3));
  EXPECT_THAT(reads(actions), ElementsAre(4));
  EXPECT_EQ(shared_.state(3), Residency::kAbsent);
  EXPECT_EQ(shared_.state(2), Residency::kResident);
}

TEST_F(MachineTest, WaitsForRoomAndGoesOnAfterAnUnpin) {
  make(6, 2);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  bring_in(0, {1, 2});
  shared_.pins[0] = {1, 2};
  EXPECT_THAT(machine_->fetch(0, {1, 0}, {3}), IsEmpty());
  EXPECT_TRUE(machine_->blocked());
  EXPECT_THAT(machine_->poll(), IsEmpty());
  shared_.pins[0] = {1};
  EXPECT_THAT(reads(machine_->poll()), ElementsAre(3));
  EXPECT_FALSE(machine_->blocked());
}

TEST_F(MachineTest, PinThatArrivesWithEvictingWins) {
  make(6, 1);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  bring_in(0, {1});
  const uint64_t before = shared_.words[1];
  shared_.on_evicting = [&](uint32_t entry) { shared_.pins[0].insert(entry); };  // between the first look and EVICTING
  EXPECT_THAT(reads(machine_->fetch(0, {1, 0}, {2})), IsEmpty());
  EXPECT_EQ(shared_.words[1], before) << "same state, same generation";
}

TEST_F(MachineTest, FailedBlobIsBadAndTheOthersStand) {
  make(4, 4);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  const Actions begun = machine_->fetch(0, {1, 0}, {1, 2});
  const uint64_t used = machine_->used_bytes();
  const Actions failed = machine_->read_done(1, begun[0].load, corrupt("flipped"), {});
  ASSERT_THAT(notified(failed), ElementsAre(1));
  EXPECT_EQ(failed[0].outcome, Code::kCorrupt);
  EXPECT_EQ(machine_->used_bytes(), used - kExpertBytes);
  EXPECT_EQ(machine_->failure(1).message(), "flipped");
  const Actions again = machine_->fetch(0, {2, 0}, {1});
  ASSERT_THAT(notified(again), ElementsAre(1));
  EXPECT_EQ(again[0].outcome, Code::kCorrupt);
  EXPECT_THAT(notified(machine_->read_done(2, begun[1].load, Status::ok(), {})), ElementsAre(2));
}

TEST_F(MachineTest, AbsentWorkersWantsAreDropped) {
  make(4, 4);
  ASSERT_TRUE(machine_->attach(0, kExpertBytes, "a"));
  const Actions begun = machine_->fetch(0, {1, 0}, {1});
  machine_->gone(0);
  EXPECT_THAT(machine_->read_done(1, begun[0].load, Status::ok(), {}), IsEmpty());
  EXPECT_THAT(machine_->read_done(1, begun[0].load, Status::ok(), {}), IsEmpty())
      << "a completion told twice changes nothing";
}

}  // namespace
}  // namespace moestro::store

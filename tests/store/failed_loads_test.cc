// What cannot be read, and the places of it, step by step: leases of before on a blob that an adopting store found
// damaged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/lru_policy.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
constexpr uint32_t kLost = 1;

/// Experts of one page, of which two fit. Worker 0 is stopped and has kLost leased; worker 1 wants things.
class FailedLoads : public ::testing::Test {
 protected:
  void SetUp() override {
    shared_.resize(kExperts);
    make();
    for (const uint32_t entry : {0U, kLost}) bring(entry);
    shared_.pins[0] = {kLost};
    adopt();
  }
  void make() {
    const std::vector<MachineBlob> blobs(kExperts, MachineBlob{.length = kPage, .format = 1});
    auto made = StoreMachine::create({.arena_bytes = 2 * kPage, .loading_bytes_max = 1 << 20}, blobs,
                                     std::make_unique<policy::LruPolicy>(), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
    ASSERT_TRUE(machine_->attach(0, kPage, "stopped") && machine_->attach(1, kPage, "other"));
  }
  /// The store is killed, and this is its successor, which finds kLost damaged.
  void adopt() {
    std::vector<StoreMachine::Former> former;
    for (uint32_t entry = 0; entry < kExperts; ++entry)
      former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                        shared_.offsets[entry], shared_.contents[entry]});
    make();
    auto adopted = machine_->adopt(former);
    ASSERT_TRUE(adopted) << adopted.status().message();
    for (const Action& action : *adopted) {
      if (action.kind == Action::Kind::kRead) took(action);
      if (action.kind != Action::Kind::kCheck) continue;
      for (const Action& more : machine_->checked(action.entry, action.load, action.entry != kLost)) took(more);
    }
  }
  void took(const Action& action) {
    if (action.kind == Action::Kind::kRead) reads_.push_back(action);
    if (action.kind == Action::Kind::kNotify) told_.push_back({action.entry, action.outcome});
  }
  void took_all(const Actions& actions) {
    std::ranges::for_each(actions, [this](const Action& action) { took(action); });
  }
  static ContentHash content(uint32_t entry) { return {entry + 1, 1}; }
  void end_read(const Status& status, std::optional<ContentHash> found = {}) {
    ASSERT_FALSE(reads_.empty());
    const Action read = reads_.front();
    reads_.erase(reads_.begin());
    took_all(machine_->read_done(read.entry, read.load, status, found.value_or(content(read.entry))));
  }
  void bring(uint32_t entry) {
    took_all(machine_->fetch(1, {}, {entry}));
    while (!reads_.empty()) end_read(Status::ok());
  }
  static constexpr uint32_t kExperts = 6;
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  Actions reads_;
  std::vector<std::pair<uint32_t, Code>> told_;
};

TEST_F(FailedLoads, APlaceUnderALeaseIsKeptUntilTheLeaseIsGone) {
  const uint64_t place = shared_.offsets[kLost];
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].offset, place) << "read again where it lies";
  end_read(corrupt("wrong on the drive too"));
  EXPECT_EQ(shared_.state(kLost), Residency::kBad);
  EXPECT_EQ(machine_->used_bytes(), 2 * kPage);
  EXPECT_TRUE(machine_->sweeping()) << "whoever lets go does not say so";
  for (const uint32_t entry : {2U, 3U, 4U}) {
    bring(entry);
    ASSERT_EQ(shared_.state(entry), Residency::kResident) << "the other place serves";
    EXPECT_NE(shared_.offsets[entry], place);
  }
  told_.clear();
  bring(kLost);
  EXPECT_THAT(told_, ElementsAre(std::pair(kLost, Code::kCorrupt))) << "nobody begins to use it";
  shared_.pins[1] = {4};
  took_all(machine_->fetch(1, {}, {5}));
  EXPECT_THAT(reads_, IsEmpty());
  EXPECT_TRUE(machine_->blocked());
  shared_.pins[0].clear();
  took_all(machine_->poll());
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].offset, place);
  EXPECT_FALSE(machine_->sweeping());
  EXPECT_EQ(shared_.offsets[kLost], kNoPlace);
}

TEST_F(FailedLoads, APlaceUnderALeaseIsReadAgainWhereItLiesAfterAPause) {
  const uint64_t place = shared_.offsets[kLost];
  end_read(io_error("the drive is away"));
  ASSERT_EQ(shared_.state(kLost), Residency::kBad);
  machine_->at(std::chrono::seconds(10));
  told_.clear();
  took_all(machine_->fetch(1, {}, {kLost}));
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].offset, place) << "worker 0 still has it leased";
  end_read(Status::ok());
  EXPECT_THAT(told_, ElementsAre(std::pair(kLost, Code::kOk)));
  EXPECT_EQ(shared_.state(kLost), Residency::kResident);
  EXPECT_FALSE(machine_->sweeping());
}

TEST_F(FailedLoads, WhatIsFoundWrongIsLeasedToNobodyAndReadAgainUnderItsLeases) {
  end_read(Status::ok());
  ASSERT_EQ(shared_.state(kLost), Residency::kResident);
  const uint32_t finds = shared_.found_wrong[kLost];
  EXPECT_EQ(finds, 1u) << "by the successor's check";
  took_all(machine_->found_wrong(kLost));
  EXPECT_EQ(shared_.state(kLost), Residency::kLoading) << "though worker 0 has it leased";
  EXPECT_EQ(shared_.found_wrong[kLost], finds + 1) << "which is how that one is told";
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].offset, shared_.offsets[kLost]);
  told_.clear();
  took_all(machine_->fetch(1, {}, {kLost}));
  EXPECT_THAT(told_, IsEmpty());
  end_read(Status::ok());
  EXPECT_THAT(told_, ElementsAre(std::pair(kLost, Code::kOk))) << "without waiting for worker 0";
  EXPECT_EQ(machine_->counters().scrub_mismatches, 1u);
  took_all(machine_->found_wrong(3));
  EXPECT_EQ(machine_->counters().scrub_mismatches, 1u) << "what is not resident is not leased";
}

TEST_F(FailedLoads, WhatIsFoundWrongAndHasNoPackIsBadAndKeepsItsPlaceUnderItsLeases) {
  end_read(Status::ok());
  machine_->remove_entries(kLost, 1);
  ASSERT_EQ(shared_.state(kLost), Residency::kResident) << "pinned";
  took_all(machine_->found_wrong(kLost));
  EXPECT_EQ(shared_.state(kLost), Residency::kBad);
  EXPECT_EQ(machine_->used_bytes(), 2 * kPage);
  shared_.pins[0].clear();
  machine_->poll(), machine_->poll();
  EXPECT_TRUE(machine_->entries_free(kLost, 1));
  EXPECT_EQ(machine_->used_bytes(), kPage);
}

TEST_F(FailedLoads, ASuccessorThatFindsALoadNotesThatItMayHaveBeenWrong) {
  shared_.pins[0].clear();
  ASSERT_EQ(shared_.state(kLost), Residency::kLoading) << "read again where it lies";
  shared_.found_wrong[kLost] = 0;  // the store died before it noted that
  adopt();
  EXPECT_EQ(shared_.state(kLost), Residency::kAbsent);
  EXPECT_EQ(shared_.found_wrong[kLost], 1u) << "who has a copy of what was there makes it again";
}

TEST_F(FailedLoads, WithoutALeaseThePlaceIsFreeAtOnce) {
  shared_.pins[0].clear();
  end_read(corrupt("wrong on the drive too"));
  EXPECT_EQ(machine_->used_bytes(), kPage);
  EXPECT_FALSE(machine_->sweeping());
}

TEST_F(FailedLoads, TheNextStoreKnowsTheKeptPlaceFromOneThatIsGone) {
  const uint64_t place = shared_.offsets[kLost];
  end_read(corrupt("wrong on the drive too"));
  adopt();
  ASSERT_EQ(reads_.size(), 1u) << "tried again, where it lies";
  EXPECT_EQ(reads_[0].offset, place);
  end_read(corrupt("and still"));
  shared_.pins[0].clear();
  took_all(machine_->poll());
  bring(2), bring(3);
  ASSERT_EQ(shared_.state(2), Residency::kResident);
  shared_.pins[1] = {kLost};  // the wish to have it, whose answer is on the way
  adopt();
  EXPECT_EQ(shared_.state(kLost), Residency::kAbsent);
  EXPECT_THAT(reads_, IsEmpty()) << "another's bytes lie there";
}

TEST_F(FailedLoads, WhatIsBeingReadIsNamedWhereItIsBeingRead) {
  end_read(Status::ok());
  shared_.pins[0] = {0};
  const uint64_t place = shared_.offsets[kLost];
  bring(2);
  ASSERT_EQ(shared_.state(kLost), Residency::kAbsent) << "evicted";
  shared_.pins[0].clear();
  took_all(machine_->fetch(1, {}, {3}));
  took_all(machine_->fetch(1, {}, {kLost}));
  ASSERT_EQ(reads_.size(), 2u);
  for (const Action& read : reads_)
    EXPECT_EQ(shared_.offsets[read.entry], read.offset) << "not where it lay long ago, at " << place;
}

TEST_F(FailedLoads, APackThatComesBackIsReadIntoTheKeptPlace) {
  const uint64_t place = shared_.offsets[kLost];
  end_read(io_error("the file is gone"));
  took_all(machine_->mend_entries(0, kExperts));
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].offset, place);
  end_read(Status::ok());
  EXPECT_EQ(shared_.state(kLost), Residency::kResident);
  EXPECT_EQ(shared_.offsets[kLost], place);
  EXPECT_FALSE(machine_->sweeping());
}

TEST_F(FailedLoads, EqualContentThatComesMendsItWhereItLies) {
  const uint64_t place = shared_.offsets[kLost];
  end_read(io_error("the file is gone"));
  took_all(machine_->fetch(1, {}, {2}));
  ASSERT_EQ(reads_.size(), 1u);
  end_read(Status::ok(), content(kLost));
  EXPECT_EQ(machine_->resolve(2), kLost);
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].offset, place) << "its own copy is given up: the other place is under a lease";
  end_read(io_error("the file is gone"));
  ASSERT_EQ(reads_.size(), 1u);
  EXPECT_EQ(reads_[0].source, 2u) << "the pack that has it";
  end_read(Status::ok(), content(kLost));
  EXPECT_EQ(shared_.state(kLost), Residency::kResident);
  EXPECT_EQ(shared_.offsets[kLost], place);
  EXPECT_EQ(machine_->used_bytes(), kPage);
}

/// Dense weights of a (entry 0), which worker 0 has leased, are found damaged and cannot be read again; b has the same
/// (entry 1), and is read for worker 1.
class BadDenseWeights : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr ContentHash kSame{1, 1};
  void make() {
    const std::vector<MachineBlob> blobs{{true, 2 * kPage, 1}, {true, 2 * kPage, 1}, {false, kPage, 2}};
    machine_ = std::move(*StoreMachine::create({.arena_bytes = 6 * kPage, .poison_freed = true}, blobs,
                                               std::make_unique<policy::LruPolicy>(), shared_));
    ASSERT_TRUE(machine_->attach(0, kPage, "a") && machine_->attach(1, kPage, "b"));
  }
  Actions found_damaged() {
    Actions reads;
    if (GetParam() == std::string("Scrubbed") || GetParam() == std::string("MendedInVain")) {
      reads = machine_->found_wrong(0);
      EXPECT_EQ(reads.size(), 1u);
    } else {
      std::vector<StoreMachine::Former> former;
      for (uint32_t entry = 0; entry < 3; ++entry)
        former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                          shared_.offsets[entry], shared_.contents[entry]});
      make();
      const auto adopted = machine_->adopt(former);
      EXPECT_TRUE(adopted && adopted->size() == 1);
      reads = machine_->checked(0, adopted->at(0).load, false);
    }
    if (GetParam() != std::string("MendedInVain")) return reads;
    machine_->read_done(0, reads.at(0).load, io_error("no such file"), {});
    return machine_->mend_entries(0, 1);
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
};

TEST_P(BadDenseWeights, AreMendedWhereTheyLieAndNothingElseLiesThere) {
  shared_.resize(3);
  make();
  const Actions first = machine_->fetch(0, {}, {0});
  machine_->read_done(0, first.at(0).load, Status::ok(), kSame);
  shared_.pins[0] = {0};
  const uint64_t place = shared_.offsets[0];
  const Actions again = found_damaged();
  EXPECT_EQ(again.at(0).offset, place);
  machine_->read_done(0, again.at(0).load, io_error("no such file"), {});
  ASSERT_EQ(shared_.state(0), Residency::kBad);

  const Actions of_b = machine_->fetch(1, {}, {1});
  ASSERT_NE(of_b.at(0).offset, place);
  Actions mending;
  for (const Action& action : machine_->read_done(1, of_b.at(0).load, Status::ok(), kSame)) {
    if (action.kind == Action::Kind::kPoison) EXPECT_NE(action.offset, place);
    if (action.kind == Action::Kind::kRead) mending.push_back(action);
  }
  EXPECT_EQ(machine_->resolve(1), 0u);
  ASSERT_EQ(mending.size(), 1u);
  EXPECT_EQ(mending[0].offset, place);
  mending = machine_->read_done(0, mending[0].load, io_error("no such file"), {});
  ASSERT_EQ(mending.size(), 1u);
  EXPECT_EQ(mending[0].source, 1u) << "the pack that has it";
  machine_->read_done(0, mending[0].load, Status::ok(), kSame);
  EXPECT_EQ(shared_.state(0), Residency::kResident);
  EXPECT_EQ(shared_.offsets[0], place);
  EXPECT_EQ(machine_->used_bytes(), 2 * kPage) << "one copy";
}

INSTANTIATE_TEST_SUITE_P(Found, BadDenseWeights, ::testing::Values("Scrubbed", "MendedInVain", "Adopted"),
                         [](const auto& how) { return std::string(how.param); });

/// Its worker still thinks of the alias, whose pin word nobody asks about: nothing keeps the first entry from being
/// evicted before it is checked.
TEST_F(FailedLoads, WhatIsAskedForAndEvictedBeforeItsCheckIsRead) {
  end_read(Status::ok());
  shared_.pins[0].clear();
  std::vector<StoreMachine::Former> former;
  for (uint32_t entry = 0; entry < kExperts; ++entry)
    former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                      shared_.offsets[entry], shared_.contents[entry]});
  make();
  ASSERT_TRUE(machine_->adopt(former));
  took_all(machine_->fetch(1, {}, {0}));
  took_all(machine_->fetch(0, {}, {2})), took_all(machine_->fetch(0, {}, {3}));
  ASSERT_NE(shared_.state(0), Residency::kAdopted) << "evicted";
  told_.clear();
  while (!reads_.empty()) end_read(Status::ok());
  EXPECT_THAT(told_, ::testing::Contains(std::pair(0U, Code::kOk)));
}

TEST_F(FailedLoads, ARemovedPackIsForgottenWhenTheLeaseIsGone) {
  end_read(io_error("the file is gone"));
  machine_->remove_entries(kLost, 1);
  machine_->poll();
  EXPECT_FALSE(machine_->entries_free(kLost, 1));
  shared_.pins[0].clear();
  machine_->poll(), machine_->poll();
  EXPECT_TRUE(machine_->entries_free(kLost, 1));
  EXPECT_EQ(machine_->used_bytes(), kPage);
}

}  // namespace
}  // namespace moestro::store

// What cannot be read, and the places of it, step by step: leases of before on a blob that an adopting store found damaged.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/lru_policy.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
constexpr uint64_t kPage = 4096;
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
    auto made = StoreMachine::create({.arena_bytes = 2 * kPage, .loading_bytes_max = 1 << 20}, blobs, std::make_unique<policy::LruPolicy>(), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
    ASSERT_TRUE(machine_->attach(0, kPage, "stopped") && machine_->attach(1, kPage, "other"));
  }
  /// The store is killed, and this is its successor, which finds kLost damaged.
  void adopt() {
    std::vector<StoreMachine::Former> former;
    for (uint32_t entry = 0; entry < kExperts; ++entry)
      former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]), shared_.offsets[entry], shared_.contents[entry]});
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
  void took_all(const Actions& actions) { std::ranges::for_each(actions, [this](const Action& action) { took(action); }); }
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
  for (const Action& read : reads_) EXPECT_EQ(shared_.offsets[read.entry], read.offset) << "not where it lay long ago, at " << place;
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

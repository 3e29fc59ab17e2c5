// Entries that come and go with packs, step by step and under random histories.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/policy/lru_policy.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;


/// Entries 0 (dense, 2 pages) and 1..3 (experts of a page) from the start; 16 in the table.
class EntryRanges : public ::testing::Test {
 protected:
  void make(uint64_t pages, uint64_t loading_bytes_max = 1 << 20) {
    shared_.resize(16);
    machine_ = std::move(*StoreMachine::create({.arena_bytes = pages * kPage,
                                                .loading_bytes_max = loading_bytes_max,
                                                .poison_freed = true,
                                                .entries_max = 16},
                                               pack(), std::make_unique<policy::LruPolicy>(), shared_));
    ASSERT_TRUE(machine_->attach(0, kPage, "a"));
  }
  static std::vector<MachineBlob> pack() {
    return {{true, 2 * kPage, 1}, {false, kPage, 2}, {false, kPage, 2}, {false, kPage, 2}};
  }
  void bring(uint32_t slot, uint32_t entry, const ContentHash& content) {
    end(machine_->fetch(slot, {}, {entry}), content);
  }
  void end(Actions todo, const ContentHash& content) {
    while (!todo.empty()) {
      const Action action = todo.front();
      todo.erase(todo.begin());
      if (action.kind != Action::Kind::kRead) continue;
      sources_.push_back(action.source);
      const Actions more = machine_->read_done(action.entry, action.load, Status::ok(), content);
      todo.insert(todo.end(), more.begin(), more.end());
    }
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  std::vector<uint32_t> sources_;
};

TEST_F(EntryRanges, EntriesThatAreServedAgainBeginWithoutTheContentOfBefore) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  ASSERT_TRUE(machine_->attach(1, kPage, "b"));
  bring(1, 5, hash_of(5));
  ASSERT_EQ(shared_.contents[5], hash_of(5));
  end(machine_->gone(1), {});
  end(machine_->remove_entries(4, 4), {});
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  EXPECT_FALSE(shared_.contents[5].known()) << "a store that adopts this arena would take it for the new blob's";
}

TEST_F(EntryRanges, AddedPacksDenseWeightsEvictExpertsAndStay) {
  make(6);
  for (uint32_t expert : {1, 2, 3}) bring(0, expert, hash_of(expert));
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  EXPECT_EQ(shared_.lengths[4], 2 * kPage);
  EXPECT_EQ(shared_.shares[0], 2 * kPage) << "of 6 pages, 4 are dense weights now";
  ASSERT_TRUE(machine_->attach(1, kPage, "b"));
  bring(1, 4, hash_of(40));
  EXPECT_EQ(shared_.state(4), Residency::kResident);
  for (int round = 0; round < 3; ++round)
    for (uint32_t expert : {1, 2, 3, 5, 6, 7}) bring(round % 2, expert, hash_of(expert));
  EXPECT_EQ(shared_.state(4), Residency::kResident) << "never evicted";
}

TEST_F(EntryRanges, APackThatLeavesNoRoomForExpertsIsRefusedAndNothingChanges) {
  make(4);
  const uint64_t share = shared_.shares[0];
  const Status refused = machine_->add_entries(4, pack());
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("raise --dram, or remove another model first"));
  EXPECT_EQ(shared_.shares[0], share);
  EXPECT_TRUE(machine_->entries_free(4, 4));
}

TEST_F(EntryRanges, RemovedEntriesGiveBackAllTheyHadAndAreUsedAgain) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  const uint64_t empty = machine_->used_bytes(), share = shared_.shares[0];
  for (uint32_t entry : {4, 5, 6, 7}) bring(0, entry, hash_of(entry));
  const uint64_t word = shared_.words[5];
  machine_->remove_entries(4, 4);
  EXPECT_TRUE(machine_->entries_free(4, 4));
  EXPECT_EQ(machine_->used_bytes(), empty);
  EXPECT_EQ(shared_.shares[0], share + 2 * kPage) << "its dense weights' room is for experts again";
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  bring(0, 5, hash_of(50));
  EXPECT_EQ(shared_.state(5), Residency::kResident);
  EXPECT_GT(ResidencyWord::generation(shared_.words[5]), ResidencyWord::generation(word))
      << "not to be taken for the one before";
}

TEST_F(EntryRanges, WhatIsBeingReadOrPinnedIsWaitedFor) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  bring(0, 5, hash_of(5));
  shared_.pins[3].insert(5);
  const Actions reading = machine_->fetch(0, {}, {6});
  machine_->cancel(0);
  machine_->remove_entries(4, 4);
  EXPECT_TRUE(machine_->sweeping());
  EXPECT_FALSE(machine_->entries_free(4, 4));
  EXPECT_EQ(shared_.state(5), Residency::kResident) << "pinned";
  end(reading, hash_of(6));
  EXPECT_FALSE(machine_->entries_free(4, 4));
  shared_.pins.clear();
  machine_->poll();
  EXPECT_TRUE(machine_->entries_free(4, 4));
  EXPECT_FALSE(machine_->sweeping());
}

TEST_F(EntryRanges, AFirstEntryStaysForItsAliasesAndIsReadFromTheirPack) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  bring(0, 1, hash_of(1)), bring(0, 5, hash_of(1));
  bring(0, 0, hash_of(9)), bring(0, 4, hash_of(9));  // dense weights too
  machine_->remove_entries(0, 4);
  EXPECT_FALSE(machine_->entries_free(0, 4));
  EXPECT_EQ(machine_->resolve(5), 1u);
  EXPECT_EQ(shared_.state(1), Residency::kResident);
  EXPECT_EQ(shared_.state(0), Residency::kResident);
  for (uint32_t round = 0; round < 2; ++round)
    for (uint32_t entry : {6, 7}) bring(0, entry, hash_of(entry));
  ASSERT_TRUE(machine_->add_entries(8, std::vector<MachineBlob>(6, {false, kPage, 2})));
  for (uint32_t entry = 8; entry < 14; ++entry) bring(0, entry, hash_of(entry));
  ASSERT_EQ(shared_.state(1), Residency::kAbsent) << "evicted";
  sources_.clear();
  bring(0, 5, hash_of(1));
  EXPECT_THAT(sources_, ElementsAre(5)) << "the pack that is left";
  EXPECT_EQ(shared_.state(1), Residency::kResident);
  machine_->remove_entries(4, 4);
  EXPECT_TRUE(machine_->entries_free(0, 8)) << "with the last alias, the first goes too";
}

TEST_F(EntryRanges, APackThatIsServedAgainBeforeItIsGoneKeepsWhatItHas) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  bring(0, 1, hash_of(1)), bring(0, 5, hash_of(1));
  bring(0, 0, hash_of(9)), bring(0, 2, hash_of(2));
  machine_->remove_entries(0, 4);
  ASSERT_FALSE(machine_->entries_free(0, 4)) << "the other pack's expert is here";
  ASSERT_EQ(shared_.state(2), Residency::kAbsent);
  const uint64_t room = machine_->expert_bytes();
  ASSERT_TRUE(machine_->add_entries(0, pack()));
  EXPECT_EQ(shared_.state(1), Residency::kResident);
  EXPECT_EQ(machine_->expert_bytes(), room - 2 * kPage) << "of its dense weights, which were forgotten";
  machine_->remove_entries(4, 4);
  EXPECT_TRUE(machine_->entries_free(4, 4));
  EXPECT_EQ(shared_.state(1), Residency::kResident);
  for (const uint32_t entry : {0, 2, 3}) bring(0, entry, hash_of(entry + 20));
  EXPECT_EQ(machine_->resident_bytes(), 5 * kPage);
}

TEST_F(EntryRanges, WhatAWarmStartStillWantsOfAPackIsForgottenWithIt) {
  make(10, kPage);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  const Actions reading = machine_->fetch(0, {}, {1});
  EXPECT_THAT(machine_->warm({5, 6, 7}), IsEmpty()) << "behind it";
  machine_->remember(std::vector<Warmth>{{5, 1}});
  machine_->remove_entries(4, 4);
  EXPECT_TRUE(machine_->entries_free(4, 4));
  EXPECT_EQ(machine_->queued(), 0u);
  sources_.clear();
  end(reading, hash_of(1));
  EXPECT_THAT(sources_, ElementsAre(1)) << "nothing of a pack that is gone";
}

TEST_F(EntryRanges, APackThatIsBeingReadForAnotherIsNotFree) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  bring(0, 1, hash_of(1)), bring(0, 5, hash_of(1));
  const Actions actions = machine_->found_wrong(1);
  ASSERT_EQ(actions.size(), 1u);
  const Actions elsewhere = machine_->read_done(1, actions.at(0).load, io_error("its file is gone"), {});
  ASSERT_EQ(elsewhere.at(0).source, 5u);
  machine_->remove_entries(4, 4);
  EXPECT_EQ(machine_->resolve(5), 5u) << "forgotten";
  EXPECT_FALSE(machine_->entries_free(4, 4)) << "its file is being read";
  end(elsewhere, hash_of(1));
  EXPECT_TRUE(machine_->entries_free(4, 4));
  EXPECT_EQ(shared_.state(1), Residency::kResident);
}

TEST_F(EntryRanges, MendedEntriesAreReadAgain) {
  make(10);
  const Actions reads = machine_->fetch(0, {}, {2});
  machine_->read_done(2, reads[0].load, io_error("the file is gone"), {});
  ASSERT_EQ(shared_.state(2), Residency::kBad);
  EXPECT_EQ(machine_->unreadable(), 1u);
  machine_->mend_entries(0, 4);
  EXPECT_EQ(shared_.state(2), Residency::kAbsent);
  EXPECT_EQ(machine_->unreadable(), 0u);
  bring(0, 2, hash_of(2));
  EXPECT_EQ(shared_.state(2), Residency::kResident);
  EXPECT_EQ(machine_->counters().bad_blobs, 1u) << "a counter never goes down";
}

/// A drive that was away is back without anybody's doing.
TEST_F(EntryRanges, WhatCouldNotBeReadIsTriedAgainWhenItIsNeededAfterAPause) {
  make(10);
  const auto fails_again_at = [&](std::chrono::seconds now) {
    machine_->at(now);
    const Actions reads = machine_->fetch(0, {}, {2});
    if (reads.at(0).kind == Action::Kind::kRead)
      machine_->read_done(2, reads[0].load, io_error("the drive is away"), {});
    EXPECT_EQ(shared_.state(2), Residency::kBad);
    return reads[0].kind == Action::Kind::kRead;
  };
  EXPECT_TRUE(fails_again_at(std::chrono::seconds(100)));
  EXPECT_FALSE(fails_again_at(std::chrono::seconds(109))) << "nobody waits for a drive that has just failed";
  EXPECT_TRUE(fails_again_at(std::chrono::seconds(110)));
  EXPECT_FALSE(fails_again_at(std::chrono::seconds(129))) << "the pause doubles";
  std::chrono::seconds now(130);
  for (int i = 0; i < 6; ++i, now += std::chrono::minutes(5)) EXPECT_TRUE(fails_again_at(now)) << i;
  EXPECT_EQ(machine_->counters().bad_blobs, 1u) << "it is the same one all the time";
  EXPECT_EQ(machine_->unreadable(), 1u);
  machine_->at(now);
  const Actions last = machine_->fetch(0, {}, {2});
  ASSERT_EQ(shared_.state(2), Residency::kLoading);
  EXPECT_EQ(machine_->unreadable(), 1u) << "as long as nobody knows better";
  machine_->read_done(2, last.at(0).load, Status::ok(), hash_of(2));
  EXPECT_EQ(shared_.state(2), Residency::kResident);
  EXPECT_EQ(machine_->unreadable(), 0u);
  EXPECT_FALSE(machine_->failed_before(2));
}

TEST_F(EntryRanges, WhatCouldNotBeReadIsNoProblemOnceItsPackIsGone) {
  make(10);
  ASSERT_TRUE(machine_->add_entries(4, pack()));
  const Actions reads = machine_->fetch(0, {}, {6});
  machine_->read_done(6, reads[0].load, io_error("the file is gone"), {});
  ASSERT_EQ(machine_->unreadable(), 1u);
  machine_->remove_entries(4, 4);
  EXPECT_EQ(machine_->unreadable(), 0u);
}

/// Packs of 4 entries come and go in 4 ranges; experts of few contents meet; what is read always comes from a pack that
/// is served.
TEST_F(EntryRanges, RandomHistoriesLeakNothing) {
  for (uint64_t seed = 1; seed <= 200 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    make(8);
    const uint64_t at_start = machine_->used_bytes();
    enum { kServed, kGoing, kFree };
    std::array<int, 4> ranges{kServed, kFree, kFree, kFree};
    const auto content = [](uint32_t entry) { return hash_of(entry % 4 == 0 ? 100 + entry % 8 : entry % 5); };
    std::vector<Action> reads;
    const auto take = [&](const Actions& actions) {
      for (const Action& action : actions)
        if (action.kind == Action::Kind::kRead) {
          ASSERT_EQ(ranges[action.source / 4], kServed) << "read from a pack that is gone";
          reads.push_back(action);
        }
    };
    const auto read_one = [&] {
      const auto at = reads.begin() + static_cast<long>(random() % reads.size());
      const Action read = *at;
      reads.erase(at);
      take(machine_->read_done(read.entry, read.load, random() % 20 == 0 ? io_error("passing") : Status::ok(),
                               content(read.source)));
    };
    for (int step = 0; step < 400 && !HasFatalFailure(); ++step) {
      const auto range = static_cast<uint32_t>(random() % 4);
      const uint64_t what = random() % 8;
      if (what == 0 && ranges[range] != kServed && machine_->add_entries(4 * range, pack())) ranges[range] = kServed;
      if (what == 1 && range != 0 && ranges[range] == kServed) {
        take(machine_->cancel(0));  // its workers are gone, and their wants
        ranges[range] = kGoing;
        take(machine_->remove_entries(4 * range, 4));
      }
      if (what > 1 && what < 5 && ranges[range] == kServed)
        take(machine_->fetch(0, {random() % 5, 0}, {4 * range + static_cast<uint32_t>(random() % 4)}));
      if (what > 4 && !reads.empty()) read_one();
      for (uint32_t r = 0; r < 4; ++r)
        if (ranges[r] == kGoing && machine_->entries_free(4 * r, 4)) ranges[r] = kFree;
    }
    take(machine_->cancel(0));
    for (uint32_t r = 0; r < 4; ++r)
      if (ranges[r] == kServed) ranges[r] = kGoing, take(machine_->remove_entries(4 * r, 4));
    while (!reads.empty()) {
      const Action read = reads.back();
      reads.pop_back();
      take(machine_->read_done(read.entry, read.load, Status::ok(), content(read.source)));
    }
    take(machine_->poll());
    EXPECT_TRUE(machine_->entries_free(0, 16));
    EXPECT_EQ(machine_->used_bytes(), 0u) << "of " << at_start << " at start";
    EXPECT_EQ(machine_->expert_bytes(), 8 * kPage);
  }
}

}  // namespace
}  // namespace moestro::store

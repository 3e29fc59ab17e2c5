// Dense weights that take turns in a window: who gets a place, who gives way, what a successor finds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/lru_policy.h"
#include "store/arena/arena_directory.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Entries 0 to 5 are streamed layers of one page, 6 is dense and stays, 7 to 9 are experts.
class Window : public ::testing::Test {
 protected:
  static constexpr uint32_t kLayers = 6, kStays = 6, kExpert = 7, kAll = 10;

  void make(uint32_t places) {
    std::vector<MachineBlob> blobs(kAll, MachineBlob{.length = kPage, .format = 1});
    for (uint32_t i = 0; i <= kStays; ++i) blobs[i].dense = true, blobs[i].streamed = i < kLayers;
    if (shared_.words.empty()) shared_.resize(kAll);
    auto made = StoreMachine::create({.arena_bytes = (places + 1 + 2) * kPage,
                                      .loading_bytes_max = kPage,
                                      .poison_freed = true,
                                      .window = {places, kPage}},
                                     blobs, std::make_unique<policy::LruPolicy>(), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
  }
  void attach(uint32_t slot) { ASSERT_TRUE(machine_->attach(slot, kPage, "w")); }
  /// The worker pins it, and asks for it if it is not there.
  void ask(uint32_t slot, uint32_t entry) {
    shared_.pins[slot].insert(entry);
    shared_.use(slot, entry);
    if (shared_.state(entry) != Residency::kResident) take(machine_->fetch(slot, {1, entry}, {entry}));
  }
  void let_go(uint32_t slot, uint32_t entry) { shared_.pins[slot].erase(entry); }
  void take(const Actions& actions) {
    for (const Action& action : actions)
      if (action.kind == Action::Kind::kRead) reads_.push_back(action), asked_for_.push_back(action.entry);
  }
  void end_reads() {
    while (!reads_.empty()) {
      const Action read = reads_.front();
      reads_.erase(reads_.begin());
      take(machine_->read_done(read.entry, read.load, Status::ok(), hash_of(read.entry + 1)));
    }
  }
  /// One worker passes all layers: asks for the next one, uses this one, lets go of it. What was read.
  std::vector<uint32_t> pass(uint32_t slot) {
    asked_for_.clear();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      ask(slot, layer), end_reads();
      EXPECT_EQ(shared_.state(layer), Residency::kResident) << layer;
      let_go(slot, layer);
    }
    return asked_for_;
  }

  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  std::vector<Action> reads_;
  std::vector<uint32_t> asked_for_;
};

TEST_F(Window, PlacesAreEquallySharedAndEachWorkerHasOne) {
  make(4);
  attach(0);
  EXPECT_EQ(shared_.window_shares[0], 4u);
  attach(1);
  EXPECT_EQ(shared_.window_shares[0], 2u);
  EXPECT_EQ(shared_.window_shares[1], 2u);
  take(machine_->gone(0));
  EXPECT_EQ(shared_.window_shares[1], 4u);
}

TEST_F(Window, AWorkerWithoutAPlaceIsRefusedByName) {
  make(2);
  attach(0), attach(1);
  const Status refused = machine_->attach(2, kPage, "third");
  EXPECT_EQ(refused.code(), Code::kExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("worker 'third': dense weights take turns in 2 places"));
}

TEST_F(Window, OfACycleOfOneWorkerAFixedPartStays) {
  make(4);
  attach(0);
  EXPECT_THAT(pass(0), ElementsAre(0, 1, 2, 3, 4, 5));
  for (int i = 0; i < 3; ++i) EXPECT_LE(pass(0).size(), 3u) << "of six layers three have found a place that is theirs";
}

TEST_F(Window, AWorkerThatFollowsAnotherReadsNothing) {
  make(4);
  attach(0), attach(1);
  for (int round = 0; round < 3; ++round)
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      ask(0, layer), end_reads();
      if (layer > 0) let_go(0, layer - 1);
      asked_for_.clear();
      ask(1, layer), end_reads();
      EXPECT_THAT(asked_for_, IsEmpty()) << layer;
      let_go(1, layer);
      if (layer + 1 == kLayers) let_go(0, layer);
    }
}

/// Worker 0 has pinned more than it may by now, and waits for an expert before it lets go.
TEST_F(Window, WhoWaitsForAPlaceDoesNotHoldUpExperts) {
  make(2);
  attach(0);
  ask(0, 0), ask(0, 1), end_reads();
  attach(1);
  asked_for_.clear();
  ask(1, 2);
  EXPECT_TRUE(machine_->blocked());
  EXPECT_THAT(asked_for_, IsEmpty());
  ask(0, kExpert);
  EXPECT_THAT(asked_for_, ElementsAre(kExpert));
  end_reads();
  let_go(0, 0);
  take(machine_->poll());
  EXPECT_THAT(asked_for_, ElementsAre(kExpert, 2)) << "the place is given as soon as there is one";
  end_reads();
  EXPECT_EQ(shared_.state(2), Residency::kResident);
}

TEST_F(Window, AReadAheadOfALayerLeavesRoomForAnExpertThatIsDemanded) {
  make(2);
  attach(0);
  ask(0, 0);  // as long as loading_bytes_max
  ask(0, kExpert);
  EXPECT_THAT(asked_for_, ElementsAre(0, kExpert));
}

TEST_F(Window, WhatCannotBeReadGivesItsPlaceBack) {
  make(2);
  attach(0);
  ask(0, 0);
  const Action read = reads_.front();
  reads_.clear();
  take(machine_->read_done(0, read.load, corrupt("damaged"), {}));
  EXPECT_EQ(shared_.state(0), Residency::kBad);
  EXPECT_FALSE(machine_->has_place(0));
  let_go(0, 0);
  ask(0, 1), ask(0, 2), end_reads();
  EXPECT_EQ(shared_.state(2), Residency::kResident);
  take(machine_->mend_entries(0, 1));
  let_go(0, 1);
  ask(0, 0), end_reads();
  EXPECT_EQ(shared_.state(0), Residency::kResident);
}

/// A lease on what stays may last for ever, and must not keep a place of the window.
TEST_F(Window, WhatStaysIsNoAliasOfWhatTakesTurns) {
  make(2);
  attach(0);
  for (const uint32_t entry : {0U, kStays}) {
    take(machine_->fetch(0, {}, {entry}));
    const Action read = reads_.front();
    reads_.clear();
    take(machine_->read_done(entry, read.load, Status::ok(), hash_of(99)));
    EXPECT_EQ(shared_.state(entry), Residency::kResident);
  }
  EXPECT_EQ(machine_->aliases(), 0u);
}

TEST_F(Window, ASuccessorFindsTheLayersWhereTheyLie) {
  make(3);
  attach(0);
  ask(0, 3), ask(0, 4), end_reads();
  const auto offsets = shared_.offsets;
  std::vector<StoreMachine::Former> former;
  for (uint32_t entry = 0; entry < kAll; ++entry)
    former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                      shared_.offsets[entry], shared_.contents[entry]});
  auto elsewhere = former;
  elsewhere[3].offset += kPage / 2;
  make(3);
  EXPECT_FALSE(machine_->adopt(elsewhere)) << "no place begins there";
  make(3);
  machine_->attached(0, kPage);
  const auto checks = machine_->adopt(former);
  ASSERT_TRUE(checks) << checks.status().message();
  for (const Action& check : *checks) {
    ASSERT_EQ(check.kind, Action::Kind::kCheck);
    take(machine_->checked(check.entry, check.load, check.entry != 4));
  }
  EXPECT_EQ(shared_.state(3), Residency::kResident);
  EXPECT_EQ(shared_.offsets[3], offsets[3]);
  ASSERT_EQ(reads_.size(), 1u) << "of the one that was damaged";
  EXPECT_EQ(reads_[0].offset, offsets[4]);
}

TEST(ArenaDirectoryWindow, IsReadAsItWasWritten) {
  ArenaDirectory directory{10, 1 << 20, 64, 4096, 2, 8192, {}};
  directory.packs.push_back({1, 0, 10, "/a", {1, 3, 5}});
  directory.packs.push_back({2, 10, 10, "/b", {}});
  const auto read = parse_directory(serialise_directory(directory));
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->window_places, 2u);
  EXPECT_EQ(read->window_place_bytes, 8192u);
  EXPECT_THAT(read->packs.at(0).streamed, ElementsAre(1, 3, 5));
  EXPECT_THAT(read->packs.at(1).streamed, IsEmpty());
  directory.packs[0].streamed = {3, 3};
  EXPECT_FALSE(parse_directory(serialise_directory(directory)));
  directory.packs[0].streamed = {10};
  EXPECT_FALSE(parse_directory(serialise_directory(directory)));
}

}  // namespace
}  // namespace moestro::store

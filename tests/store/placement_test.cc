// Where blobs lie: dense weights and experts share the arena from its two ends.

#include "store/machine/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/policy/frequency_policy.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {


TEST(Placement, DenseWeightsBorrowSegmentsAndGiveThemBack) {
  Placement room(22 * kPage, 4 * kPage);  // 2 pages, then 5 segments
  EXPECT_EQ(room.place(true, kPage, 0), 0u);
  EXPECT_EQ(room.place(true, 3 * kPage, 1), kPage) << "one page of the rest, two of segment 0";
  EXPECT_EQ(room.segments().lent(), 1u);
  EXPECT_EQ(room.place(false, 4 * kPage, 2), 18 * kPage);
  EXPECT_EQ(room.place(true, 2 * kPage, 3), 4 * kPage) << "what is left of segment 0";
  EXPECT_EQ(room.place(true, 9 * kPage, 4), 6 * kPage) << "three more";
  EXPECT_FALSE(room.place(false, kPage, 5));
  EXPECT_EQ(room.place(true, 3 * kPage, 6), 15 * kPage);
  EXPECT_EQ(room.used_bytes(), 22 * kPage);
  room.give_back(true, 6 * kPage, 9 * kPage);
  EXPECT_EQ(room.segments().free_segments(), 2u) << "segment 3 still holds something";
  EXPECT_EQ(room.place(false, kPage, 5), 10 * kPage);
  room.give_back(true, 15 * kPage, 3 * kPage), room.give_back(true, 4 * kPage, 2 * kPage),
      room.give_back(true, kPage, 3 * kPage);
  room.give_back(true, 0, kPage), room.give_back(false, 10 * kPage, kPage),
      room.give_back(false, 18 * kPage, 4 * kPage);
  EXPECT_EQ(room.segments().free_segments(), 5u);
  EXPECT_EQ(room.used_bytes(), 0u);
}

TEST(Placement, DenseWeightsUseWhatIsFreeOnBothSidesOfASegment) {
  Placement room(12 * kPage, 2 * kPage);
  EXPECT_EQ(room.place(true, 3 * kPage, 0), 0u);
  EXPECT_EQ(room.place(true, kPage, 1), 3 * kPage);
  EXPECT_EQ(room.place(true, kPage, 2), 4 * kPage);
  EXPECT_EQ(room.place(true, 2 * kPage, 3), 5 * kPage);
  EXPECT_EQ(room.place(true, kPage, 4), 7 * kPage);
  EXPECT_TRUE(room.place(false, 2 * kPage, 5));
  EXPECT_TRUE(room.place(false, 2 * kPage, 6));
  room.give_back(true, 4 * kPage, kPage), room.give_back(true, 5 * kPage, 2 * kPage);
  EXPECT_EQ(room.segments().free_segments(), 1u) << "pages 4 and 5; page 6 is free in a segment that is lent";
  EXPECT_EQ(room.place(true, 3 * kPage, 7), 4 * kPage);
}

TEST(Placement, ClaimsWhatAFormerStorePlacedInAnyOrder) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    Placement first(203 * kPage, 10 * kPage), second(203 * kPage, 10 * kPage);
    struct Blob {
      bool dense;
      uint64_t offset, length;
    };
    std::vector<Blob> blobs;
    for (uint32_t key = 0; key < 60; ++key) {
      const bool dense = random() % 3 == 0;
      const uint64_t length = (dense ? 1 + random() % 14 : std::array<uint64_t, 4>{1, 3, 10, 14}[random() % 4]) * kPage;
      if (const auto offset = first.place(dense, length, key)) blobs.push_back({dense, *offset, length});
    }
    for (int i = 0; i < 8; ++i) {
      const auto at = blobs.begin() + static_cast<long>(random() % blobs.size());
      first.give_back(at->dense, at->offset, at->length);
      blobs.erase(at);
    }
    std::shuffle(blobs.begin(), blobs.end(), random);
    for (const Blob& blob : blobs)
      ASSERT_TRUE(second.claim(blob.dense, blob.offset, blob.length, 0)) << "seed " << seed;
    EXPECT_EQ(second.used_bytes(), first.used_bytes());
    EXPECT_EQ(second.segments().free_segments(), first.segments().free_segments());
    for (const Blob& blob : blobs)
      EXPECT_FALSE(second.claim(!blob.dense, blob.offset, blob.length, 0)) << "something lies there";
  }
}

TEST(Placement, PinsCountAsBlocksWhereLengthsDiffer) {
  Placement room(40 * kPage, 4 * kPage);
  EXPECT_EQ(room.pin_bytes_min({4 * kPage}), 0u);
  EXPECT_EQ(room.pin_bytes_min({kPage, 4 * kPage}), 4 * kPage);
  EXPECT_EQ(room.pin_bytes_min({kPage, 9 * kPage}), 12 * kPage) << "longer than a segment: three";
  EXPECT_EQ(room.pin_bytes_min({5 * kPage, 9 * kPage}), 24 * kPage) << "a block of two can lie across two of three";
  EXPECT_EQ(room.pin_bytes_max({4 * kPage}, {}), 40 * kPage);
  EXPECT_EQ(room.pin_bytes_max({kPage, 9 * kPage}, {}), 32 * kPage);
  const std::vector<uint64_t> dense(12, kPage);
  EXPECT_EQ(room.pin_bytes_max({4 * kPage}, dense), 12 * kPage) << "12 pages, in at most 7 segments";
  ASSERT_TRUE(room.place(true, 5 * kPage, 0));
  EXPECT_EQ(room.pin_bytes_max({4 * kPage}, {}), 32 * kPage);
}

/// A store's table as its successor finds it.
std::vector<StoreMachine::Former> former_of(const StoreMachine& machine, const FakeSharedState& shared) {
  std::vector<StoreMachine::Former> former;
  for (uint32_t entry = 0; entry < machine.entries(); ++entry)
    former.push_back({static_cast<uint8_t>(shared.state(entry)),
                      machine.generation(entry),
                      shared.offsets[entry],
                      {entry + 1, 1},
                      0,
                      shared.stamps[entry]});
  return former;
}

class OneStore : public ::testing::Test {
 protected:
  void make(std::vector<MachineBlob> blobs, uint64_t pages, uint64_t segment_pages = 0) {
    shared_.resize(blobs.size());
    auto made = StoreMachine::create(
        {.arena_bytes = pages * kPage, .loading_bytes_max = 1 << 20, .segment_bytes = segment_pages * kPage},
        std::move(blobs), std::make_unique<policy::FrequencyPolicy>(policy::LfruOptions{50}), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
    ASSERT_TRUE(machine_->attach(0, kPage, "w"));
  }
  void bring(uint32_t entry) {
    Actions todo = machine_->fetch(0, {}, {entry});
    for (size_t i = 0; i < todo.size(); ++i) {
      if (todo[i].kind != Action::Kind::kRead) continue;
      const Actions more = machine_->read_done(todo[i].entry, todo[i].load, Status::ok(), {todo[i].entry + 1, 1});
      todo.insert(todo.end(), more.begin(), more.end());
    }
    shared_.use(0, entry);
  }
  uint32_t there(uint32_t first, uint32_t count) const {
    uint32_t found = 0;
    for (uint32_t entry = first; entry < first + count; ++entry) found += shared_.state(entry) == Residency::kResident;
    return found;
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
};

TEST_F(OneStore, AnArenaOfJustTheModelHoldsAllOfIt) {
  for (const uint64_t dense_pages : {0, 1, 2, 5, 11}) {
    std::vector<MachineBlob> blobs;
    for (int i = 0; i < 100; ++i) blobs.push_back({false, 7 * kPage});
    for (uint64_t i = 0; i < dense_pages; ++i) blobs.push_back({true, kPage});
    EXPECT_EQ(StoreMachine::arena_bytes_max(blobs), (700 + dense_pages) * kPage);
    make(blobs, 700 + dense_pages);
    for (uint32_t entry = 0; entry < blobs.size(); ++entry) bring(entry);
    EXPECT_EQ(there(0, static_cast<uint32_t>(blobs.size())), blobs.size());
    EXPECT_EQ(machine_->counters().evictions, 0u);
  }
}

TEST_F(OneStore, AnArenaAsLargeAsIsUsefulHoldsAllLengths) {
  std::vector<MachineBlob> blobs{{true, 9 * kPage}};
  for (int i = 0; i < 90; ++i)
    blobs.push_back({false, std::array<uint64_t, 3>{2, 5, 16}[static_cast<size_t>(i % 3)] * kPage});
  const uint64_t pages = StoreMachine::arena_bytes_max(blobs) / kPage;
  EXPECT_LE(pages, (9 + 30 * (2 + 5 + 16)) * 5 / 4u);
  make(blobs, pages);
  for (uint32_t entry = 0; entry < blobs.size(); ++entry) bring(entry);
  EXPECT_EQ(there(0, 91), 91u);
}

TEST_F(OneStore, SegmentsGoToTheLengthThatIsUsed) {
  std::vector<MachineBlob> blobs;
  for (int i = 0; i < 32; ++i) blobs.push_back({false, 8 * kPage});
  for (int i = 0; i < 128; ++i) blobs.push_back({false, kPage});
  make(blobs, 16 * 8, 8);  // room for half of it
  for (int round = 0; round < 4; ++round)
    for (uint32_t entry = 0; entry < 32; ++entry) bring(entry);
  EXPECT_EQ(there(0, 32), 16u);
  for (int round = 0; round < 40; ++round)  // now the short ones are wanted, the long ones hardly
    for (uint32_t entry = 32; entry < 160; ++entry) bring(entry), bring(round % 2);
  EXPECT_EQ(there(32, 128), 14u * 8) << "all segments but two";
  EXPECT_EQ(there(0, 2), 2u) << "what is hot stays";
  for (int round = 0; round < 60; ++round)
    for (uint32_t entry = 0; entry < 12; ++entry) bring(entry);
  EXPECT_EQ(there(0, 12), 12u) << "and back";
}

TEST_F(OneStore, ASuccessorTakesOverSegmentsOfAllLengths) {
  std::vector<MachineBlob> blobs{{true, 5 * kPage}};
  for (int i = 0; i < 90; ++i)
    blobs.push_back({false, std::array<uint64_t, 3>{1, 3, 10}[static_cast<size_t>(i % 3)] * kPage, 1});
  make(blobs, 106, 10);
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) bring(static_cast<uint32_t>(random() % blobs.size()));
  const auto former = former_of(*machine_, shared_);
  const uint64_t used = machine_->used_bytes();
  make(blobs, 106, 10);
  const auto adopted = machine_->adopt(former);
  ASSERT_TRUE(adopted) << adopted.status().message();
  EXPECT_EQ(machine_->used_bytes(), used);
  for (const Action& check : *adopted) machine_->checked(check.entry, check.load, true);
  for (int i = 0; i < 500; ++i) bring(static_cast<uint32_t>(random() % blobs.size()));
  EXPECT_EQ(machine_->counters().damaged, 0u);
  auto moved = former;
  for (auto& f : moved) f.offset += f.state == static_cast<uint8_t>(Residency::kResident) ? kPage / 2 : 0;
  make(blobs, 106, 10);
  EXPECT_EQ(machine_->adopt(moved).status().code(), Code::kCorrupt);
}

TEST_F(OneStore, ASuccessorReadsALeasedBlobAgainWhereItLies) {
  const std::vector<MachineBlob> blobs{{true, 2 * kPage}, {false, kPage}, {false, kPage}, {false, kPage}};
  make(blobs, 5);
  for (uint32_t entry = 0; entry < 4; ++entry) bring(entry);
  auto former = former_of(*machine_, shared_);
  shared_.pins[0] = {0, 2};
  for (const uint32_t entry : {0, 2, 3}) former[entry].state = static_cast<uint8_t>(Residency::kLoading);
  make(blobs, 5);
  const auto adopted = machine_->adopt(former);
  ASSERT_TRUE(adopted) << adopted.status().message();
  std::map<uint32_t, uint64_t> read;
  for (const Action& action : *adopted)
    if (action.kind == Action::Kind::kRead) read[action.entry] = action.offset;
  EXPECT_EQ(read, (std::map<uint32_t, uint64_t>{{0, former[0].offset}, {2, former[2].offset}}));
  EXPECT_EQ(machine_->used_bytes(), 4 * kPage) << "what nobody has pinned is free";
}

TEST_F(OneStore, ASuccessorLeavesSharesAloneUntilItKnowsTheWorkers) {
  const std::vector<MachineBlob> blobs{{true, 2 * kPage}, {false, kPage}, {false, kPage}, {false, kPage}};
  make(blobs, 5);
  const uint64_t share = shared_.shares[0];
  ASSERT_GT(share, 0u);
  const auto former = former_of(*machine_, shared_);
  machine_ =
      std::move(*StoreMachine::create({.arena_bytes = 5 * kPage, .loading_bytes_max = 1 << 20}, blobs,
                                      std::make_unique<policy::FrequencyPolicy>(policy::LfruOptions{50}), shared_));
  shared_.on_share = [&](uint32_t slot, uint64_t bytes) {
    EXPECT_TRUE(slot != 0 || bytes == share) << "a step that pins just now fails";
  };
  machine_->hold_shares();
  machine_->set_owners(0, 4, 1);
  machine_->attached(0, kPage, 0);
  ASSERT_TRUE(machine_->adopt(former));
  EXPECT_EQ(shared_.shares[0], share);
}

}  // namespace
}  // namespace moestro::store

// What a machine says is hot, and how the next one begins with it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/policy/make_policy.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = Action::Kind;

constexpr uint32_t kTable = 17;

/// A dense blob (entry 0) and eight experts of one page (entries 1 to 8).
struct Machine {
  explicit Machine(const std::string& policy, uint32_t slots) {
    std::vector<MachineBlob> blobs{{true, 8192}};
    for (uint32_t i = 0; i < 8; ++i) blobs.push_back({false, kExpertBytes});
    shared.resize(kTable);
    auto made = StoreMachine::create({.arena_bytes = 8192 + slots * kExpertBytes, .entries_max = kTable}, blobs,
                                     *policy::make_policy(policy, 8), shared);
    EXPECT_TRUE(made) << made.status().message();
    machine = std::move(*made);
    EXPECT_TRUE(machine->attach(0, kExpertBytes, "a"));
  }
  /// Carries reads out, those they lead to as well; returns what was read, in order.
  std::vector<uint32_t> land(Actions actions) {
    std::vector<uint32_t> read;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != Kind::kRead) continue;
      read.push_back(actions[i].entry);
      const Actions more =
          machine->read_done(actions[i].entry, actions[i].load, Status::ok(), {actions[i].entry + 100, 7});
      actions.insert(actions.end(), more.begin(), more.end());
    }
    return read;
  }
  void use(uint32_t entry, int times = 1) {
    for (int i = 0; i < times; ++i) shared.use(0, entry);
    if (shared.state(entry) != Residency::kResident) land(machine->fetch(0, {}, {entry}));
  }
  std::vector<uint32_t> order() {
    std::vector<uint32_t> entries;
    for (const Warmth& known : machine->by_heat()) entries.push_back(known.entry);
    return entries;
  }
  FakeSharedState shared;
  std::unique_ptr<StoreMachine> machine;
};

class Warmness : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policy, Warmness, ::testing::Values("interval", "lfru", "lfu", "lru"));

TEST_P(Warmness, DenseFirstThenWhatWasUsedMostOrLast) {
  Machine m(GetParam(), 8);
  m.land(m.machine->fetch(0, {}, {0}));
  for (const uint32_t entry : {5, 3, 6, 1}) m.use(entry);
  m.use(6, 3), m.use(1, 8);
  EXPECT_THAT(m.order(), ElementsAre(0, 1, 6, 3, 5));
}

TEST_P(Warmness, UsesThatNobodyLookedAtYetCount) {
  Machine m(GetParam(), 8);
  for (const uint32_t entry : {1, 2, 3}) m.use(entry);
  m.use(2, 20);
  EXPECT_EQ(m.order().front(), 2u);
}

TEST_P(Warmness, WhatIsReadAgainIsAsHotAsItWas) {
  Machine before(GetParam(), 8);
  for (const uint32_t entry : {4, 7, 2, 5}) before.use(entry);
  before.use(7, 6), before.use(2, 12);
  const std::vector<Warmth> hot = before.machine->by_heat();
  Machine after(GetParam(), 4);
  after.machine->remember(hot);
  std::vector<uint32_t> entries;
  for (const Warmth& known : hot) entries.push_back(known.entry);
  EXPECT_EQ(after.land(after.machine->warm(entries)), entries) << "the hottest first";
  EXPECT_EQ(after.order(), entries) << "a second shutdown says the same";
  after.use(8);  // one has to give way
  EXPECT_EQ(after.shared.state(entries.back()), Residency::kAbsent) << "the coldest of them";
  EXPECT_EQ(after.shared.state(entries.front()), Residency::kResident);
}

/// Its bytes lie where a pack read them that is served no more; they are as hot as ever.
TEST_P(Warmness, WhatIsSharedWithAPackThatIsGoingKeepsItsHeat) {
  Machine m(GetParam(), 16);
  std::vector<MachineBlob> blobs{{true, 8192, 1}};
  for (uint32_t i = 0; i < 3; ++i) blobs.push_back({false, kExpertBytes, 2});
  ASSERT_TRUE(m.machine->add_entries(9, blobs));
  ASSERT_TRUE(m.machine->add_entries(13, blobs));
  const auto bring = [&](uint32_t entry, uint64_t content) {
    const Actions actions = m.machine->fetch(0, {}, {entry});
    for (const Action& action : actions)
      if (action.kind == Kind::kRead)
        m.machine->read_done(action.entry, action.load, Status::ok(), {content, 7});
  };
  for (const uint32_t entry : {0, 1, 2, 3}) bring(9 + entry, 50 + entry), bring(13 + entry, 50 + entry);
  m.shared.use(0, 10);
  for (int i = 0; i < 9; ++i) m.shared.use(0, 12);
  for (int i = 0; i < 5; ++i) m.shared.use(0, 11);
  m.use(1);
  const std::vector<uint32_t> before = m.order();
  m.machine->remove_entries(9, 4);
  const std::vector<uint32_t> after = m.order();
  const auto hottest = [](const std::vector<uint32_t>& order, uint32_t of) {
    return std::ranges::find(order, of) - order.begin();
  };
  EXPECT_EQ(after.front(), 13u) << "dense weights first";
  for (const uint32_t entry : {1, 2, 3}) EXPECT_EQ(hottest(after, 13 + entry), hottest(before, 9 + entry)) << entry;
}

TEST(MachineWarmth, TakesOnlyWhatIsFree) {
  Machine m("lru", 3);
  m.use(1), m.use(2);
  m.machine->remember(std::vector<Warmth>{{5, 9}, {6, 8}});
  EXPECT_THAT(m.land(m.machine->warm({5, 6})), ElementsAre(5));
  EXPECT_FALSE(m.machine->wanted(6)) << "it found no room, and waits for none";
  EXPECT_FALSE(m.machine->blocked());
  EXPECT_EQ(m.machine->counters().evictions, 0u);
  EXPECT_EQ(m.machine->counters().prefetches_dropped, 0u);
  EXPECT_EQ(m.shared.state(1), Residency::kResident);
}

TEST(MachineWarmth, WaitsForWhatAWorkerWants) {
  Machine m("lru", 8);
  const Actions begun = m.machine->warm({1, 2, 3, 4, 5, 6, 7, 8});
  ASSERT_EQ(begun.size(), 2u) << "the drive is idle: one, and the next";
  EXPECT_EQ(m.land(begun).size(), 8u);
  Machine busy("lru", 8);
  busy.machine->fetch(0, {}, {1});
  const Actions after = busy.machine->warm({1, 2});
  ASSERT_EQ(after.size(), 1u) << "1 is being read already";
  EXPECT_EQ(after[0].entry, 2u);
  EXPECT_EQ(after[0].read_class, ReadClass::kScrub) << "the reader serves it when nothing else is to be read";
  const Actions demanded = busy.machine->fetch(0, {}, {2});
  ASSERT_EQ(demanded.size(), 1u);
  EXPECT_EQ(demanded[0].kind, Kind::kPromote);
}

TEST(MachineWarmth, OneThatWasUsedBeforeItWasReadAgainCountsByItsUses) {
  Machine m("lru", 8);
  m.machine->remember(std::vector<Warmth>{{1, 5}, {2, 4}, {3, 3}});
  m.use(3);
  m.land(m.machine->warm({1, 2, 3}));
  EXPECT_EQ(m.order().front(), 3u);
}

TEST(MachineWarmth, WhatIsGoneOrThereIsNotReadAgain) {
  Machine m("lru", 8);
  m.use(1);
  EXPECT_THAT(m.machine->warm({1}), IsEmpty());
  m.machine->remove_entries(2, 1);
  EXPECT_THAT(m.machine->warm({2}), IsEmpty());
}

}  // namespace
}  // namespace moestro::store

// Equal content, one copy: the index, and the machine step by step and under random histories.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "common/policy/lru_policy.h"
#include "store/machine/content_index.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ContentKey key(uint64_t n) { return {hash_of(n), 4096, 1}; }

TEST(ContentIndex, TheFirstKeepsAndTheOthersAreItsAliases) {
  ContentIndex index;
  index.resize(5);
  EXPECT_FALSE(index.learn(3, key(1)));
  EXPECT_EQ(index.learn(0, key(1)), 3u);
  EXPECT_EQ(index.learn(4, key(1)), 3u);
  EXPECT_FALSE(index.learn(1, key(2)));
  EXPECT_FALSE(index.learn(3, key(1))) << "read again";
  EXPECT_EQ(index.resolve(0), 3u);
  EXPECT_EQ(index.resolve(1), 1u);
  EXPECT_THAT(index.holders(3), ElementsAre(3, 0, 4));
  EXPECT_EQ(index.aliases(), 2u);
  index.forget(0), index.forget(4), index.forget(3);
  EXPECT_FALSE(index.learn(2, key(1))) << "nobody has it any more";
}

TEST(ContentIndex, EqualHashesOfOtherLengthOrFormatAreNotEqual) {
  ContentIndex index;
  index.resize(4);
  EXPECT_FALSE(index.learn(0, {hash_of(1), 4096, 1}));
  EXPECT_FALSE(index.learn(1, {hash_of(1), 8192, 1}));
  EXPECT_FALSE(index.learn(2, {hash_of(1), 4096, 2}));
  EXPECT_FALSE(index.learn(3, {{}, 4096, 1})) << "not known";
  EXPECT_FALSE(index.contradicts(0, {hash_of(1), 4096, 1}));
  EXPECT_TRUE(index.contradicts(0, {hash_of(2), 4096, 1}));
  EXPECT_NE(blob_format(1, 2, true), blob_format(1, 2, false));
}

/// Experts 0..n-1 of one page each, `slots` of which fit.
class SharedContent : public ::testing::Test {
 protected:
  void make(uint32_t experts, uint32_t slots, const std::function<ContentHash(uint32_t)>& claim = {}) {
    shared_.resize(experts);
    make_machine(experts, slots, claim);
  }
  void make_machine(uint32_t experts, uint32_t slots, const std::function<ContentHash(uint32_t)>& claim = {}) {
    std::vector<MachineBlob> blobs(experts, MachineBlob{.length = 4096, .format = 1});
    for (uint32_t entry = 0; claim && entry < experts; ++entry) blobs[entry].claim = claim(entry);
    machine_ = std::move(
        *StoreMachine::create({slots * 4096ULL, 1 << 20, true}, blobs, std::make_unique<policy::LruPolicy>(), shared_));
    ASSERT_TRUE(machine_->attach(0, 4096, "a") && machine_->attach(1, 4096, "b"));
  }
  /// Fetches for `slot` and ends the reads at once; returns who was told of what.
  std::vector<std::pair<uint32_t, uint32_t>> bring(uint32_t slot, uint32_t entry, const ContentHash& content) {
    return end(machine_->fetch(slot, {}, {entry}), content);
  }
  std::vector<std::pair<uint32_t, uint32_t>> end(Actions todo, const ContentHash& content,
                                                 const Status& status = Status::ok()) {
    std::vector<std::pair<uint32_t, uint32_t>> told;
    while (!todo.empty()) {
      const Action action = todo.front();
      todo.erase(todo.begin());
      if (action.kind == Action::Kind::kNotify) told.emplace_back(action.slot, action.entry);
      if (action.kind != Action::Kind::kRead) continue;
      read_from_.push_back(action.source);
      const bool bad = bad_sources_.contains(action.source);
      const Actions more =
          machine_->read_done(action.entry, action.load, bad ? io_error("no such drive") : status, content);
      todo.insert(todo.end(), more.begin(), more.end());
    }
    return told;
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  std::vector<uint32_t> read_from_;
  std::set<uint32_t> bad_sources_;
};

TEST_F(SharedContent, TheSecondCopyGivesItsRangeBackAndPointsToTheFirst) {
  make(4, 4);
  bring(0, 0, hash_of(1));
  EXPECT_THAT(bring(1, 2, hash_of(1)), ElementsAre(std::pair(1u, 2u))) << "who waited is told";
  EXPECT_EQ(machine_->used_bytes(), 4096u);
  EXPECT_EQ(shared_.state(2), Residency::kAlias);
  EXPECT_EQ(shared_.aliases[2], 1u);
  EXPECT_EQ(machine_->resolve(2), 0u);
  EXPECT_THAT(bring(1, 2, hash_of(1)), ElementsAre(std::pair(1u, 0u)))
      << "asked for again: told of the first, nothing is read";
  EXPECT_EQ(machine_->counters().loads, 2u);
}

TEST_F(SharedContent, ACopyThatArrivesWhenTheFirstIsGoneIsHandedOver) {
  make(4, 2);
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
  ASSERT_EQ(shared_.state(0), Residency::kAbsent) << "evicted";
  shared_.pins[1].insert(2);  // the intent of the worker that asks
  bring(1, 2, hash_of(1));
  EXPECT_EQ(shared_.state(0), Residency::kResident);
  EXPECT_EQ(shared_.state(2), Residency::kAlias);
  EXPECT_EQ(machine_->used_bytes(), 2 * 4096u) << "one copy, not read twice";
}

TEST_F(SharedContent, WhoeverWaitsForTheFirstIsToldToo) {
  make(4, 2);
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
  shared_.pins[0].insert(1);
  const Actions second = machine_->fetch(1, {}, {2});
  machine_->fetch(0, {}, {0});  // waits for room behind it
  shared_.pins[0].insert(0);
  EXPECT_THAT(end(second, hash_of(1)), ::testing::UnorderedElementsAre(std::pair(0u, 0u), std::pair(1u, 2u)));
}

TEST_F(SharedContent, ABadPackIsPassedOverForOneThatHasTheSameBytes) {
  make(4, 2);
  bring(0, 0, hash_of(1)), bring(0, 2, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
  ASSERT_EQ(shared_.state(0), Residency::kAbsent);
  read_from_.clear();
  bad_sources_ = {0};
  EXPECT_THAT(bring(0, 0, hash_of(1)), ElementsAre(std::pair(0u, 0u)));
  EXPECT_THAT(read_from_, ElementsAre(0, 2));
  EXPECT_EQ(machine_->counters().reads_elsewhere, 1u);
  bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3)), bring(0, 2, hash_of(1));
  EXPECT_EQ(read_from_.back(), 2u) << "what served last is asked first";
  bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
  bad_sources_ = {0, 2};
  bring(0, 0, hash_of(1));
  EXPECT_EQ(shared_.state(0), Residency::kBad);
  EXPECT_EQ(machine_->failure(0).message(), "no such drive");
}

TEST_F(SharedContent, BytesThatAreNotThoseOfBeforeAreRefused) {
  make(4, 2);
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
  bring(0, 0, hash_of(9));
  EXPECT_EQ(shared_.state(0), Residency::kBad);
  EXPECT_EQ(machine_->failure(0).code(), Code::kCorrupt);
}

TEST_F(SharedContent, ACopyFromAnotherPackMendsABadOne) {
  make(4, 2);
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
  bad_sources_ = {0};
  bring(0, 0, hash_of(1));
  ASSERT_EQ(shared_.state(0), Residency::kBad);
  EXPECT_EQ(machine_->unreadable(), 1u);
  bring(0, 2, hash_of(1));
  EXPECT_EQ(shared_.state(0), Residency::kResident);
  EXPECT_EQ(machine_->unreadable(), 0u);
  EXPECT_THAT(machine_->take_readable_again(), ElementsAre(0));
  EXPECT_THAT(bring(0, 0, hash_of(1)), ElementsAre(std::pair(0u, 0u)));
  EXPECT_THAT(machine_->take_readable_again(), IsEmpty()) << "that is news once";
}

TEST_F(SharedContent, OneThatCouldNotBeReadCanBeAgainAsAnAlias) {
  make(4, 4);
  bad_sources_ = {2};
  bring(1, 2, hash_of(1));
  ASSERT_EQ(shared_.state(2), Residency::kBad);
  bad_sources_.clear();
  bring(0, 0, hash_of(1));
  EXPECT_EQ(machine_->unreadable(), 1u) << "nobody knows yet that they are equal";
  EXPECT_THAT(machine_->take_readable_again(), IsEmpty());
  machine_->at(std::chrono::seconds(10));
  bring(1, 2, hash_of(1));
  ASSERT_EQ(shared_.state(2), Residency::kAlias);
  EXPECT_EQ(machine_->unreadable(), 0u);
  EXPECT_THAT(machine_->take_readable_again(), ElementsAre(2));
}

TEST_F(SharedContent, OneThatCouldNotBeReadCanBeAgainAsAnAliasUnread) {
  make(6, 2, [](uint32_t entry) { return ContentHash{entry % 3 + 1, 0}; });
  bad_sources_ = {3};
  bring(1, 3, hash_of(1)), bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2));
  ASSERT_EQ(shared_.state(3), Residency::kBad);
  EXPECT_EQ(machine_->unreadable(), 1u);
  shared_.pins[0] = {0, 1};  // there is no room to read it again
  EXPECT_THAT(bring(1, 3, hash_of(1)), ElementsAre(std::pair(1u, 3u))) << "at once: nothing is read again";
  ASSERT_EQ(shared_.state(3), Residency::kAlias);
  EXPECT_EQ(machine_->unreadable(), 0u);
  EXPECT_THAT(machine_->take_readable_again(), ElementsAre(3));
}

/// Blobs of equal checksums in their manifests.
TEST_F(SharedContent, WhatIsKnownFromAnotherPackIsNotReadAgain) {
  make(6, 4, [](uint32_t entry) { return ContentHash{entry % 3 + 1, 0}; });
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2));
  read_from_.clear();
  EXPECT_THAT(bring(1, 3, hash_of(1)), ElementsAre(std::pair(1u, 3u)))
      << "who asks is told to look, and finds the alias";
  EXPECT_EQ(shared_.state(3), Residency::kAlias);
  EXPECT_EQ(shared_.aliases[3], 1u);
  for (const Action& action : machine_->share_known(3, 3)) EXPECT_NE(action.kind, Action::Kind::kRead);
  EXPECT_EQ(shared_.aliases[4], 2u);
  EXPECT_EQ(shared_.state(5), Residency::kAbsent) << "nobody has read what equals it";
  EXPECT_THAT(read_from_, IsEmpty());
  bring(1, 5, hash_of(3)), bring(1, 2, hash_of(3));
  EXPECT_THAT(read_from_, ElementsAre(5)) << "either pack may be the first";
  EXPECT_EQ(shared_.aliases[2], 6u);
  EXPECT_EQ(machine_->used_bytes(), 3 * 4096u);
}

TEST_F(SharedContent, ABadCopyStandsForNobodyUnread) {
  make(6, 2, [](uint32_t entry) { return ContentHash{entry % 3 + 1, 0}; });
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 2, hash_of(3));
  ASSERT_EQ(shared_.state(0), Residency::kAbsent) << "evicted";
  bad_sources_ = {0};
  bring(0, 0, hash_of(1));
  ASSERT_EQ(shared_.state(0), Residency::kBad);
  read_from_.clear();
  bring(1, 3, hash_of(1));
  EXPECT_THAT(read_from_, ElementsAre(3));
  EXPECT_EQ(shared_.state(0), Residency::kResident) << "mended by the copy";
}

TEST_F(SharedContent, AForgottenEntrysClaimIsNobodysAnyMore) {
  make(4, 4, [](uint32_t entry) { return ContentHash{entry % 2 + 1, 0}; });
  bring(0, 0, hash_of(1));
  machine_->remove_entries(0, 1);
  ASSERT_TRUE(machine_->entries_free(0, 1));
  EXPECT_THAT(machine_->share_known(0, 4), IsEmpty());
  bring(0, 2, hash_of(1));
  EXPECT_EQ(shared_.state(2), Residency::kResident);
}

/// A store that dies at any write of handing over a copy to the entry that had it first leaves an arena that its
/// successor can adopt, also where the entries stood for other blobs before.
TEST_F(SharedContent, AStoreThatDiesWhileHandingOverIsFollowedByOneThatAdopts) {
  struct Killed {};
  bool through = false;
  for (int writes = 1; !through; ++writes) {
    shared_ = {};
    make(4, 2);
    bring(0, 2, hash_of(5));
    machine_->remove_entries(2, 1);
    ASSERT_TRUE(machine_->add_entries(2, {{.length = 4096, .format = 1}}));
    bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(3));
    ASSERT_EQ(shared_.state(0), Residency::kAbsent);
    shared_.pins[1] = {2};
    const Actions reading = machine_->fetch(1, {}, {2});
    shared_.on_write = [left = writes]() mutable {
      if (--left == 0) throw Killed{};
    };
    try {
      machine_->read_done(2, reading.back().load, Status::ok(), hash_of(1));
      through = true;
    } catch (const Killed&) {
    }
    shared_.on_write = nullptr;
    std::vector<StoreMachine::Former> former;
    for (uint32_t entry = 0; entry < 4; ++entry)
      former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                        shared_.offsets[entry], shared_.contents[entry], shared_.aliases[entry]});
    make_machine(4, 2);
    const auto adopted = machine_->adopt(former);
    ASSERT_TRUE(adopted) << adopted.status().message() << ", killed at write " << writes;
    EXPECT_NE(shared_.state(3), Residency::kAbsent) << "what was there stays";
  }
}

/// Its table says that it is an alias of what another manifest calls something else.
TEST_F(SharedContent, AnAliasThatItsOwnManifestContradictsIsNotAdopted) {
  const auto claim = [](uint32_t entry) { return ContentHash{entry % 3 + 1, 0}; };
  make(6, 4, claim);
  bring(0, 0, hash_of(1)), bring(0, 1, hash_of(2)), bring(0, 3, hash_of(1));
  ASSERT_EQ(shared_.aliases[3], 1u);
  for (const uint32_t alias : {1U, 2U}) {
    std::vector<StoreMachine::Former> former;
    for (uint32_t entry = 0; entry < 6; ++entry)
      former.push_back({static_cast<uint8_t>(shared_.state(entry)), ResidencyWord::generation(shared_.words[entry]),
                        shared_.offsets[entry], shared_.contents[entry], shared_.aliases[entry]});
    former[3].alias = alias;
    make_machine(6, 4, claim);
    const auto adopted = machine_->adopt(former);
    EXPECT_EQ(adopted.is_ok(), alias == 1) << alias;
    if (!adopted) EXPECT_EQ(adopted.status().message(), "table entry 3 is an alias of nothing");
  }
}

/// What is read holds one of few contents, so that entries meet all the time; reads end in any order.
TEST_F(SharedContent, RandomHistoriesKeepOneCopyOfEach) {
  for (uint64_t seed = 1; seed <= 200 && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    // In every second history manifests say what is equal.
    make(20, 4,
         seed % 2 == 0 ? std::function<ContentHash(uint32_t)>([](uint32_t entry) {
           return ContentHash{entry % 7 + 1, 0};
         })
                       : nullptr);
    const auto content = [](uint32_t entry) { return hash_of(entry % 7); };
    std::vector<Action> reads;
    const auto take = [&](const Actions& actions) {
      for (const Action& action : actions)
        if (action.kind == Action::Kind::kRead) {
          ASSERT_EQ(content(action.source), content(action.entry)) << "bytes of something else";
          reads.push_back(action);
        }
    };
    for (int step = 0; step < 600; ++step) {
      if (random() % 2 == 0)
        take(machine_->fetch(static_cast<uint32_t>(random() % 2), {random() % 9, 0},
                             {static_cast<uint32_t>(random() % 20)}));
      if (reads.empty() || random() % 2 == 0) continue;
      const auto at = reads.begin() + static_cast<long>(random() % reads.size());
      const Action read = *at;
      reads.erase(at);
      take(machine_->read_done(read.entry, read.load, random() % 10 == 0 ? io_error("passing") : Status::ok(),
                               content(read.source)));
      std::map<ContentHash, int> copies;
      std::set<uint64_t> places;
      for (uint32_t entry = 0; entry < 20; ++entry) {
        if (shared_.state(entry) != Residency::kResident) continue;
        ASSERT_EQ(++copies[content(entry)], 1);
        ASSERT_TRUE(places.insert(shared_.offsets[entry]).second);
      }
      uint64_t used = copies.size() + reads.size();
      ASSERT_EQ(machine_->used_bytes(), used * 4096);
    }
  }
}

}  // namespace
}  // namespace moestro::store

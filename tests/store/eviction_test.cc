// Who goes, in the machine: prompts do not flush what decodes, what a scan reads ahead takes the coldest and not much,
// and finding a victim does not mean to look at everyone.

#include <gtest/gtest.h>

#include <random>

#include "common/policy/make_policy.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {


class Eviction : public ::testing::Test {
 protected:
  void make(const std::string& policy, std::vector<MachineBlob> blobs, uint64_t pages) {
    shared_ = FakeSharedState();
    shared_.resize(blobs.size());
    const size_t count = blobs.size();
    machine_ =
        std::move(*StoreMachine::create({.arena_bytes = pages * kPage, .loading_bytes_max = 64 * kPage},
                                        std::move(blobs), std::move(*policy::make_policy(policy, count)), shared_));
    ASSERT_TRUE(machine_->attach(0, kPage, "w"));
  }
  void make(const std::string& policy, uint32_t experts, uint32_t slots) {
    make(policy, std::vector<MachineBlob>(experts, MachineBlob{false, kPage}), slots);
  }
  /// A decoded token's use: a hit, or a fetch. True: a hit.
  bool decode(uint32_t entry) {
    const bool hit = shared_.state(entry) == Residency::kResident;
    if (hit) return shared_.use(0, entry), true;
    shared_.use(0, entry);
    read_all(machine_->fetch(0, {}, {entry}));
    return false;
  }
  /// A prompt's, of which `parts` sixteenths of the tokens went there.
  void prompt(uint32_t entry, uint32_t parts) {
    shared_.scan(entry, parts);
    if (shared_.state(entry) != Residency::kResident) read_all(machine_->fetch(0, {}, {entry}));
  }
  void read_all(Actions todo) {
    for (size_t i = 0; i < todo.size(); ++i) {
      if (todo[i].kind != Action::Kind::kRead) continue;
      const Actions more = machine_->read_done(todo[i].entry, todo[i].load, Status::ok(), {});
      todo.insert(todo.end(), more.begin(), more.end());
    }
  }
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
};

/// Five segments of two pages: dense weights in the first, an expert in each other, that of the fourth pinned. Dense
/// weights of two segments find room only in the second and third.
TEST_F(Eviction, LongDenseWeightsTakeSegmentsBesideEachOtherWhereverTheyAre) {
  std::vector<MachineBlob> blobs{{true, 2 * kPage, 1}};
  blobs.resize(5, {false, 2 * kPage, 2});
  shared_.resize(6);
  machine_ = std::move(
      *StoreMachine::create({.arena_bytes = 10 * kPage, .entries_max = 6, .segment_bytes = 2 * kPage}, blobs,
                            std::move(*policy::make_policy("lru", 6)), shared_));
  ASSERT_TRUE(machine_->attach(0, 2 * kPage, "w"));
  for (const uint32_t expert : {1U, 2U, 3U, 4U}) decode(expert);
  for (const uint32_t expert : {1U, 2U, 3U, 4U})
    if (shared_.offsets[expert] == 6 * kPage) shared_.pins[0] = {expert};
  ASSERT_EQ(shared_.pins[0].size(), 1u);
  ASSERT_TRUE(machine_->add_entries(5, {{true, 4 * kPage, 1}}));
  read_all(machine_->fetch(0, {}, {5}));
  EXPECT_EQ(shared_.state(5), Residency::kResident);
  EXPECT_EQ(shared_.offsets[5], 2 * kPage);
}

/// 8 layers of 32 experts, room for a quarter. Tokens go to 6 experts a layer; then a prompt of four chunks goes to all
/// 256.
TEST_F(Eviction, APromptThatTouchesEveryExpertDoesNotFlushTheDecodeSet) {
  for (const char* policy : {"interval", "lfru", "lfu", "lru"}) {
    SCOPED_TRACE(policy);
    make(policy, 256, 64);
    std::mt19937_64 random(1);
    const auto tokens = [&](int count) {
      int hits = 0;
      for (int token = 0; token < count; ++token)
        for (uint32_t layer = 0; layer < 8; ++layer)
          for (int k = 0; k < 2; ++k) hits += decode(32 * layer + static_cast<uint32_t>(random() % 6));
      return hits / (16.0 * count);
    };
    tokens(60);
    ASSERT_EQ(tokens(20), 1.0) << "all that decodes is there";
    for (int chunk = 0; chunk < 4; ++chunk)
      for (uint32_t entry = 0; entry < 256; ++entry) prompt(entry, 1);  // a sixteenth of its tokens each: top 2 of 32
    EXPECT_GE(tokens(2), 0.95);
  }
}

TEST_F(Eviction, AScanThatIsReadAheadTakesTheColdestAndAQuarterAtMost) {
  for (const char* policy : {"interval", "lfru", "lfu"}) {
    SCOPED_TRACE(policy);
    make(policy, 32, 16);
    for (int round = 0; round < 5; ++round)
      for (uint32_t entry = 0; entry < 12; ++entry) decode(entry);
    for (uint32_t entry = 12; entry < 16; ++entry) prompt(entry, 1);  // hardly used
    std::vector<ForeseenEntry> scan;
    for (uint32_t entry = 16; entry < 28; ++entry) scan.push_back({entry, 1, Nanos(100)});
    read_all(machine_->foresee(0, {scan, true}));
    for (uint32_t entry = 0; entry < 12; ++entry)
      EXPECT_EQ(shared_.state(entry), Residency::kResident) << "hot " << entry;
    for (uint32_t entry = 16; entry < 20; ++entry)
      EXPECT_EQ(shared_.state(entry), Residency::kResident) << "in a colder one's place";
    EXPECT_EQ(machine_->counters().evictions, 4u);
    EXPECT_GT(machine_->counters().guarded, 0u) << "nor does one promise take the place of another";
    decode(31);
    EXPECT_EQ(shared_.state(31), Residency::kResident) << "a demand has its room";
  }
}

/// 6,144 entries, a quarter of them there, every one of those hit between two misses: the order that the policy knows
/// is wrong throughout.
TEST_F(Eviction, FindingAVictimAmongThousandsLooksAtFew) {
  for (const char* policy : {"interval", "lfru", "lfu", "lru"}) {
    SCOPED_TRACE(policy);
    make(policy, 6144, 1536);
    for (uint32_t entry = 0; entry < 1536; ++entry) decode(entry);
    uint64_t most = 0;
    for (uint32_t miss = 0; miss < 400; ++miss) {
      for (uint32_t entry = 0; entry < 6144; ++entry)
        if (shared_.state(entry) == Residency::kResident) shared_.use(0, entry);
      const uint64_t before = shared_.looks;
      ASSERT_FALSE(decode(1536 + miss));
      most = std::max(most, shared_.looks - before);
    }
    EXPECT_LE(most, 400u);
    EXPECT_EQ(machine_->counters().evictions, 400u);
  }
}

/// Two lengths: all segments are looked at now and then, which adds a few looks to each eviction.
TEST_F(Eviction, WithTwoLengthsAVictimCostsFewLooksToo) {
  std::vector<MachineBlob> blobs(4096, MachineBlob{false, kPage});
  blobs.resize(4096 + 256, MachineBlob{false, 16 * kPage});
  make("lfru", std::move(blobs), 4096);
  std::mt19937_64 random(2);
  const auto step = [&] { decode(static_cast<uint32_t>(random() % 3 == 0 ? 4096 + random() % 256 : random() % 4096)); };
  for (int i = 0; i < 6000; ++i) step();
  const uint64_t looks = shared_.looks, evictions = machine_->counters().evictions;
  for (int i = 0; i < 6000; ++i) step();
  const double each =
      static_cast<double>(shared_.looks - looks) / static_cast<double>(machine_->counters().evictions - evictions);
  EXPECT_LE(each, 120) << "looks an eviction";
}

}  // namespace
}  // namespace moestro::store

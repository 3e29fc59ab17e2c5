// Every interleaving of one change of an entry with what a matcher does in an iteration, and every point at which the
// writer may die.

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "tests/activation/shared_history.h"

namespace moestro::activation {
namespace {

using testing::chosen;
using testing::content;

constexpr EamcShape kShape{2, 3, 1};
constexpr int32_t kEntries = 3, kChanging = 1;
constexpr uint64_t kOld = 4, kNew = 6;  ///< versions

struct Place {
  Place()
      : bytes(sizeof(EamcCounters) + eamc_layout(2, 3, kEntries).bytes),
        at(new (std::align_val_t(64)) std::byte[bytes]) {
    std::memset(at.get(), 0, bytes);
  }
  struct Free {
    void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t(64)); }
  };
  EamcCounters* counters() { return reinterpret_cast<EamcCounters*>(at.get()); }
  std::byte* arrays() { return at.get() + sizeof(EamcCounters); }
  size_t bytes;
  std::unique_ptr<std::byte[], Free> at;
};

/// The stores of Eamc::set, in an order that its protocol allows.
class Change {
 public:
  Change() {
    Eamc eamc(kShape, kEntries, memory_.counters(), memory_.arrays());
    const std::vector<uint8_t> before{9, 200, 40, 0, 7, 255}, after{230, 3, 90, 255, 1, 0},
        other{100, 100, 100, 100, 100, 100};
    for (int32_t i = 0; i < kEntries; ++i) MOESTRO_CHECK(eamc.set(i, other).is_ok(), "an entry");
    MOESTRO_CHECK(eamc.set(kChanging, before).is_ok() && eamc.view().version(kChanging) == kOld, "the old entry");
    old_.assign(memory_.at.get(), memory_.at.get() + memory_.bytes);
    MOESTRO_CHECK(eamc.set(kChanging, after).is_ok() && eamc.view().version(kChanging) == kNew, "the new entry");
    const size_t version = sizeof(EamcCounters) + eamc_layout(2, 3, kEntries).versions + kChanging * sizeof(uint64_t);
    std::vector<size_t> counters;
    stores_.push_back({version, std::byte{kOld + 1}});
    for (size_t i = 0; i < memory_.bytes; ++i) {
      if (old_[i] == memory_.at[i] || i == version) continue;
      if (i < sizeof(EamcCounters)) counters.push_back(i);
      else stores_.push_back({i, memory_.at[i]});
    }
    stores_.push_back({version, std::byte{kNew}});
    MOESTRO_CHECK(counters.size() == 1, "the number of changes, in its lowest byte");
    stores_.push_back({counters[0], memory_.at[counters[0]]});
  }
  size_t stores() const { return stores_.size(); }
  /// The memory after the first `stores` of them.
  void show(size_t stores) {
    std::memcpy(memory_.at.get(), old_.data(), old_.size());
    for (size_t i = 0; i < stores; ++i) memory_.at[stores_[i].first] = stores_[i].second;
  }
  EamcView view() { return {kShape, kEntries, memory_.counters(), memory_.arrays()}; }

 private:
  Place memory_;
  std::vector<std::byte> old_;
  std::vector<std::pair<size_t, std::byte>> stores_;
};

struct Seen {
  std::array<float, kEntries> scores{};  ///< 0: not among the best
  bool row_read = false;
  std::vector<uint8_t> row = std::vector<uint8_t>(3);  ///< of the entry that changes, layer 1
};

/// What a sequence of an iteration does, one step at a time.
class Reader {
 public:
  /// `earlier`: iterations that were over before anything changed.
  Reader(const EamcView& view, int32_t earlier) : matcher_(view, 4) {
    for (int32_t i = 0; i < earlier; ++i) iteration([](int) {});
  }
  static constexpr int kSteps = 6;
  template <typename Before>
  Seen iteration(const Before& before) {
    Seen seen;
    before(0), matcher_.begin_iteration();
    before(1), matcher_.add_row(0, chosen(0, 1), 1);
    before(2),
        matcher_.add_row(
            1, std::vector<ActivationCount>{{MoeLayerId(1), ExpertId(0), 3}, {MoeLayerId(1), ExpertId(2), 1}}, 4);
    before(3);
    const auto best = matcher_.best(kEntries);
    for (const EamcMatch& m : best) seen.scores[static_cast<size_t>(m.entry)] = m.score;
    before(4);
    for (const EamcMatch& m : best)
      if (m.entry == kChanging) seen.row_read = matcher_.read_row(m, 1, seen.row);
    before(5), matcher_.end_iteration();
    return seen;
  }

 private:
  EamcMatcher matcher_;
};

class Interleavings : public ::testing::TestWithParam<int32_t> {
 protected:
  Interleavings() {
    change_.show(0);
    expect(0);
    change_.show(change_.stores());
    expect(1);
    EXPECT_NE(expected_[0].scores[kChanging], expected_[1].scores[kChanging]);
  }
  void expect(size_t which) {
    const EamcView view = change_.view();
    Reader reader(view, GetParam());
    expected_[which] = reader.iteration([](int) {});
    expected_next_[which] = reader.iteration([](int) {});
  }
  /// All others as ever; of the one that changes only what it was, or is, or nothing. True if it was found.
  static bool check(const Seen& seen, const std::array<Seen, 2>& expected) {
    for (size_t i = 0; i < kEntries; ++i)
      if (i != kChanging) MOESTRO_CHECK(seen.scores[i] == expected[0].scores[i], "an entry that nobody changes");
    const float score = seen.scores[kChanging];
    if (score == 0) return false;
    const size_t which = score == expected[0].scores[kChanging] ? 0 : 1;
    MOESTRO_CHECK(score == expected[which].scores[kChanging], "a score of one entry, not of two");
    MOESTRO_CHECK(!seen.row_read || seen.row == expected[which].row, "a row of the entry that was matched");
    return true;
  }

  Change change_;
  std::array<Seen, 2> expected_, expected_next_;
};

TEST_P(Interleavings, AnEntryIsWhatItWasOrWhatItIsOrLeftOut) {
  const auto stores = change_.stores();
  std::array<size_t, Reader::kSteps> shown{};  // stores before each step, never fewer than before the step before
  int found = 0, left_out = 0;
  const auto run = [&] {
    change_.show(0);
    const EamcView view = change_.view();
    Reader reader(view, GetParam());
    const Seen seen = reader.iteration([&](int step) { change_.show(shown[static_cast<size_t>(step)]); });
    ++(check(seen, expected_) ? found : left_out);
    change_.show(stores);
    const Seen next = reader.iteration([](int) {});
    MOESTRO_CHECK(next.scores == expected_next_[1].scores && next.row_read && next.row == expected_next_[1].row,
                  "the next iteration has all that is new");
  };
  const auto choose = [&](const auto& self, size_t step, size_t from) -> void {
    if (step == shown.size()) return run();
    for (size_t n = from; n <= stores; ++n) shown[step] = n, self(self, step + 1, n);
  };
  choose(choose, 0, 0);
  EXPECT_GT(found, 100);
  EXPECT_GT(left_out, 1000);
  std::printf("%d orders, %d of them with the entry that changes\n", found + left_out, found);
}

TEST_P(Interleavings, AWriterThatDiesLeavesOneEntryOutAtMost) {
  for (size_t last = 0; last <= change_.stores(); ++last) {
    change_.show(0);
    const EamcView view = change_.view();
    Reader there_before(view, GetParam());
    change_.show(last);
    Reader new_one(view, 0);
    const bool whole = last == 0 || last >= change_.stores() - 1;
    EXPECT_EQ(check(there_before.iteration([](int) {}), expected_), whole && last != change_.stores() - 1) << last;
    check(there_before.iteration([](int) {}), expected_next_);
    EXPECT_EQ(new_one.iteration([](int) {}).row_read, whole) << last;
  }
}

INSTANTIATE_TEST_SUITE_P(AfterIterations, Interleavings, ::testing::Values(0, 2));

}  // namespace
}  // namespace moestro::activation

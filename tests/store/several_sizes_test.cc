// Experts of several lengths in one arena: workers that stop while they hold as many pins as they may, spread so as to
// be most in the way, keep nobody's experts from being placed, whatever their length. With first fit they do: a test
// here shows the same pins against it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "common/policy/lru_policy.h"
#include "store/arena/range_allocator.h"
#include "store/machine/store_machine.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {
namespace {

constexpr uint32_t kExperts = 40, kModels = 4;
constexpr std::array<uint64_t, kModels> kPages{1, 3, 7, 16};

/// Model m has kExperts experts of kPages[m] pages, entries from m * kExperts on, and worker m.
class FourModels {
 public:
  FourModels(uint64_t seed, uint32_t segments) : random_(seed) {
    std::vector<MachineBlob> blobs;
    for (const uint64_t pages : kPages)
      for (uint32_t i = 0; i < kExperts; ++i) blobs.push_back({false, pages * kPage, 0});
    shared_.resize(blobs.size());
    StoreMachine::Options options{.arena_bytes = segments * 16 * kPage + 3 * kPage,
                                  .loading_bytes_max = 32 * kPage,
                                  .poison_freed = true,
                                  .segment_bytes = 16 * kPage};
    machine_ =
        std::move(*StoreMachine::create(options, std::move(blobs), std::make_unique<policy::LruPolicy>(), shared_));
    for (uint32_t model = 0; model < kModels; ++model)
      machine_->set_owners(model * kExperts, kExperts, ModelMask{1} << model);
  }
  StoreMachine& machine() { return *machine_; }
  FakeSharedState& shared() { return shared_; }
  uint64_t pick(uint64_t n) { return random_() % n; }
  static uint32_t entry(uint32_t model, uint32_t expert) { return model * kExperts + expert; }
  static uint64_t length(uint32_t entry) { return kPages[entry / kExperts] * kPage; }

  /// Whether it arrives, if the worker does nothing but wait.
  bool bring(uint32_t slot, uint32_t entry) {
    shared_.pins[slot].insert(entry);
    Actions todo = machine_->fetch(slot, {1, 0}, {entry});
    for (size_t i = 0; i < todo.size(); ++i) {
      EXPECT_FALSE(todo[i].kind == Action::Kind::kPoison && shared_.pinned(todo[i].entry))
          << "a pinned blob was evicted";
      if (todo[i].kind != Action::Kind::kRead) continue;
      const Actions more = machine_->read_done(todo[i].entry, todo[i].load, Status::ok(), {});
      todo.insert(todo.end(), more.begin(), more.end());
    }
    if (shared_.state(entry) != Residency::kResident) return false;
    shared_.use(slot, entry);
    return true;
  }
  void let_go(uint32_t slot, uint32_t entry) { shared_.pins[slot].erase(entry); }
  bool visit(uint32_t slot, uint32_t entry) {
    const bool arrived = bring(slot, entry);
    if (arrived) let_go(slot, entry);
    return arrived;
  }
  uint64_t counted(uint32_t slot) {
    uint64_t bytes = 0;
    for (const uint32_t entry : shared_.pins[slot]) bytes += shared_.pin_cost(length(entry));
    return bytes;
  }
  /// Pins what it may of its model, in as many segments as it can, having what is not there brought.
  void pin_all_it_may(uint32_t slot) {
    std::set<uint64_t> segments;
    for (const bool anywhere : {false, true})
      for (uint32_t expert = 0; expert < kExperts; ++expert) {
        const uint32_t mine = entry(slot, expert);
        if (shared_.pins[slot].contains(mine) || counted(slot) + shared_.pin_cost(length(mine)) > shared_.shares[slot])
          continue;
        const bool there = shared_.state(mine) == Residency::kResident;
        if (!anywhere && (!there || !segments.insert(machine_->offset(mine) / (16 * kPage)).second)) continue;
        EXPECT_TRUE(bring(slot, mine)) << "within its share";
      }
  }

 private:
  std::mt19937_64 random_;
  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
};

TEST(SeveralSizes, StoppedWorkersKeepNobodysSizeFromBeingPlaced) {
  for (uint64_t seed = 1; seed <= 120 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FourModels box(seed, static_cast<uint32_t>(4 + seed % 17));
    for (uint32_t slot = 0; slot < kModels; ++slot)
      ASSERT_TRUE(box.machine().attach(slot, kPages[slot] * kPage, "w", slot));
    for (int i = 0; i < 300; ++i) {
      const auto slot = static_cast<uint32_t>(box.pick(kModels));
      ASSERT_TRUE(box.visit(slot, FourModels::entry(slot, static_cast<uint32_t>(box.pick(kExperts)))));
    }
    const auto alive = static_cast<uint32_t>(box.pick(kModels));
    for (uint32_t slot = 0; slot < kModels; ++slot)
      if (slot != alive) box.pin_all_it_may(slot);
    for (uint32_t expert = 0; expert < kExperts; ++expert)
      ASSERT_TRUE(box.visit(alive, FourModels::entry(alive, expert))) << "expert " << expert << " of worker " << alive;
  }
}

/// All but one model have had the arena to themselves and stop; the last one's worker comes only then.
TEST(SeveralSizes, RoomIsKeptForAModelWhoseWorkerIsStillToCome) {
  for (uint64_t seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FourModels box(seed, static_cast<uint32_t>(4 + seed % 9));
    const auto last = static_cast<uint32_t>(seed % kModels);
    for (uint32_t slot = 0; slot < kModels; ++slot)
      if (slot != last) ASSERT_TRUE(box.machine().attach(slot, kPages[slot] * kPage, "w", slot));
    for (uint32_t slot = 0; slot < kModels; ++slot)
      if (slot != last) box.pin_all_it_may(slot);
    ASSERT_TRUE(box.machine().attach(last, kPages[last] * kPage, "late", last));
    for (uint32_t expert = 0; expert < kExperts; ++expert)
      ASSERT_TRUE(box.visit(last, FourModels::entry(last, expert)));
  }
}

TEST(SeveralSizes, AWorkerTooManyIsRefused) {
  FourModels box(1, 2);
  ASSERT_TRUE(box.machine().attach(0, kPage, "a", 0));
  ASSERT_TRUE(box.machine().attach(1, 3 * kPage, "b", 1));
  const Status third = box.machine().attach(2, 7 * kPage, "c", 2);
  EXPECT_EQ(third.code(), Code::kExhausted);
  EXPECT_THAT(third.message(), ::testing::HasSubstr("worker 'c'"));
}

TEST(SeveralSizes, WhatAModelIsGuaranteedStaysWhateverLengthsAreWanted) {
  for (uint64_t seed = 1; seed <= 30 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FourModels box(seed, 12);
    box.machine().set_model_share(0, {.guaranteed = 30 * kPage});
    for (uint32_t slot = 0; slot < kModels; ++slot)
      ASSERT_TRUE(box.machine().attach(slot, kPages[slot] * kPage, "w", slot));
    for (uint32_t expert = 0; expert < kExperts; ++expert) ASSERT_TRUE(box.visit(0, FourModels::entry(0, expert)));
    for (int i = 0; i < 300; ++i) {
      const auto slot = static_cast<uint32_t>(1 + box.pick(kModels - 1));
      ASSERT_TRUE(box.visit(slot, FourModels::entry(slot, static_cast<uint32_t>(box.pick(kExperts)))));
      ASSERT_GE(box.machine().model_bytes(0), 30 * kPage);
    }
  }
}

/// It stands in nobody's way for ever either.
TEST(SeveralSizes, GuaranteesAndStoppedWorkersTogether) {
  for (uint64_t seed = 1; seed <= 60 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FourModels box(seed, 24);
    box.machine().set_model_share(0, {.guaranteed = 12 * kPage});
    box.machine().set_model_share(1, {.guaranteed = 40 * kPage});
    for (uint32_t slot = 0; slot < kModels; ++slot)
      ASSERT_TRUE(box.machine().attach(slot, kPages[slot] * kPage, "w", slot)) << slot;
    for (int i = 0; i < 400; ++i) {
      const auto slot = static_cast<uint32_t>(box.pick(kModels));
      ASSERT_TRUE(box.visit(slot, FourModels::entry(slot, static_cast<uint32_t>(box.pick(kExperts)))));
    }
    const auto stopped = static_cast<uint32_t>(box.pick(kModels)), alive = (stopped + 1) % kModels;
    box.pin_all_it_may(stopped);
    for (int round = 0; round < 2; ++round)
      for (uint32_t expert = 0; expert < kExperts; ++expert)
        ASSERT_TRUE(box.visit(alive, FourModels::entry(alive, expert)));
  }
}

/// The pins of the first test as they were without segments: shares in bytes that fit in the arena together, first fit,
/// everything that is not pinned gone. The longest kind finds no hole although more than half of the arena is free.
TEST(SeveralSizes, FirstFitIsStoppedByTheSamePins) {
  int stopped = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t arena = 128 * kPage;
    RangeAllocator ranges(arena, kPage);
    std::vector<std::pair<uint64_t, uint64_t>> placed;
    while (true) {
      const uint64_t length = kPages[random() % 2] * kPage;
      const auto offset = ranges.allocate(length, RangeAllocator::End::kHigh);
      if (!offset) break;
      placed.emplace_back(*offset, length);
    }
    uint64_t pinned = 0, last = arena;
    for (const auto& [offset, length] :
         placed) {  // from the high end down: pins the next one whenever 16 pages would be free otherwise
      const bool pin = last - offset > 14 * kPage && pinned + length <= arena / kModels;
      if (pin) pinned += length, last = offset;
      else ranges.free(offset, length);
    }
    EXPECT_GT(ranges.free_bytes(), arena / 2);
    stopped += !ranges.allocate(16 * kPage, RangeAllocator::End::kHigh).has_value();
  }
  EXPECT_GT(stopped, 40);
}

}  // namespace
}  // namespace moestro::store

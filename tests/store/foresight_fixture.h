#pragma once
// A machine that workers foresee experts to, without a drive: a test says when a read ends.

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "common/policy/make_policy.h"
#include "tests/store/fake_shared_state.h"

namespace moestro::store {

/// Experts of one page, entries 1 to 40; two are begun at once.
class ForesightTest : public ::testing::Test {
 protected:
  using Kind = Action::Kind;
  static constexpr uint64_t kExpert = 4096;
  static constexpr uint32_t kExperts = 40;
  static constexpr Nanos kRead{100};  ///< what the drive needs for an expert, once it is taught()

  void make(uint32_t room, float waste_max = 0, uint32_t at_once = 2, const char* policy = "lru") {
    std::vector<MachineBlob> blobs{{true, 8192}};
    for (uint32_t i = 0; i < kExperts; ++i) blobs.push_back({false, kExpert});
    shared_.resize(blobs.size());
    StoreMachine::Options options;
    options.arena_bytes = 8192 + room * kExpert;
    options.loading_bytes_max = at_once * kExpert;
    options.poison_freed = true;
    options.ahead_waste_max = waste_max;
    auto made = StoreMachine::create(options, blobs, *policy::make_policy(policy, blobs.size()), shared_);
    ASSERT_TRUE(made) << made.status().message();
    machine_ = std::move(*made);
    ASSERT_TRUE(machine_->attach(0, kExpert, "a"));
    ASSERT_TRUE(machine_->attach(1, kExpert, "b"));
  }
  void TearDown() override { EXPECT_EQ(machine_->inconsistency(), ""); }
  static std::vector<uint32_t> of(const Actions& actions, Kind kind) {
    std::vector<uint32_t> found;
    for (const Action& action : actions)
      if (action.kind == kind) found.push_back(action.entry);
    return found;
  }
  Actions foresee(const std::vector<ForeseenEntry>& experts, bool scan = false, bool leads = false,
                  uint32_t slot = 0) {
    return machine_->foresee(slot, {experts, scan, leads});
  }
  Actions done(const Action& read, const Status& status = Status::ok(), uint64_t carried = 0) {
    return machine_->read_done(read.entry, read.load, status, {read.entry, 7}, carried);
  }
  /// Everything that is read in consequence too. Returns what was read, in order.
  std::vector<uint32_t> finish(Actions actions) {
    std::vector<uint32_t> read;
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind != Kind::kRead) continue;
      read.push_back(actions[i].entry);
      const Actions more = done(Action(actions[i]));
      actions.insert(actions.end(), more.begin(), more.end());
    }
    return read;
  }
  /// These are resident, used once each in this order, and nobody has them pinned.
  void fill(std::initializer_list<uint32_t> entries) {
    for (const uint32_t entry : entries) finish(machine_->fetch(0, {1, 0}, {entry})), shared_.use(0, entry);
    machine_->look_at_all();
  }
  void advance(Nanos by) { machine_->at(now_ += by); }
  /// The machine knows the speed of its drive.
  void taught(uint32_t entry) {
    const Actions begun = machine_->fetch(0, {1, 0}, {entry});
    advance(kRead);
    finish(begun);
    shared_.use(0, entry);
    machine_->look_at_all();
  }
  bool there(uint32_t entry) const { return shared_.state(entry) == Residency::kResident; }

  FakeSharedState shared_;
  std::unique_ptr<StoreMachine> machine_;
  Nanos now_{0};
};

}  // namespace moestro::store

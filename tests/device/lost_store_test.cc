// A device with a memory of its own, and a store that dies while experts are on their way to it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/worker/device/device_experts.h"
#include "tests/store/killable_store.h"

namespace moestro::device::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class LostStore : public store::KillableStore {
 protected:
  static constexpr uint32_t kSlots = 4;  ///< of the device

  void attach_device(milliseconds store_wait) {
    auto client = attach(store_wait);
    ASSERT_TRUE(client) << client.status().message();
    client_ = std::move(*client);
    auto made = DeviceExperts::create(
        *client_,
        {.device = {.vram_bytes = kSlots * pack_.expert_bytes, .link_bytes_per_s = uint64_t{1} << 30},
         .precision = pack_.manifest.expert_precisions.front(),
         .poison_slots = true},
        clock_);
    ASSERT_TRUE(made) << made.status().message();
    experts_ = std::move(*made);
    experts_->begin_step(PlanId(1), false);
  }
  /// The router of layer 0 has named `keys`; none of them is there.
  void ask_for(std::vector<tier::Key> keys) {
    std::vector<store::Need> needs;
    std::vector<uint32_t> blobs;
    for (const tier::Key key : keys) {
      blobs.push_back(*pack_.manifest.expert_blob(MoeLayerId(0), ExpertId(key), precision()));
      needs.push_back({blobs.back()});
    }
    experts_->need({MoeLayerId(0), needs});
    EXPECT_FALSE(experts_->routed(MoeLayerId(0), {})) << "some are missing";
    for (const uint32_t blob : blobs) EXPECT_FALSE(experts_->try_pin(blob));
    ASSERT_TRUE(experts_->fetch(blobs, {PlanId(1), MoeLayerId(0)}));
  }
  /// As the engine waits: a second at a time.
  Result<store::Lease> next() {
    for (int waits = 0;; ++waits) {
      auto arrived = experts_->next_arrival(milliseconds(1000));
      if (arrived || arrived.status().code() != Code::kUnavailable || waits == 20) return arrived;
    }
  }
  DType precision() const { return pack_.manifest.expert_precisions.front(); }

  SteadyClock clock_;
  std::unique_ptr<store::StoreClient> client_;
  std::unique_ptr<DeviceExperts> experts_;
};

TEST_F(LostStore, WhatADeadStoreWasAskedForComesFromItsSuccessor) {
  auto store = start_store(6, "first.log");
  attach_device(kLong);
  store->kill(SIGSTOP);  // it does not hear what it is asked now, and never will
  ask_for({1, 2, 3});
  kill(store);
  store = start_store(6, "second.log");
  for (int i = 0; i < 3; ++i) {
    const auto arrived = next();
    ASSERT_TRUE(arrived) << arrived.status().message();
    EXPECT_TRUE(pack_.holds(*arrived));
  }
}

TEST_F(LostStore, AStoreThatNeverComesBackFailsWhatNeedsItByName) {
  auto store = start_store(6, "store.log");
  attach_device(milliseconds(200));
  kill(store);
  ask_for({1, 2});
  for (int i = 0; i < 2; ++i) {
    const auto failed = next();
    EXPECT_EQ(failed.status().code(), Code::kIo);
    EXPECT_TRUE(experts_->failed_blob()) << "that one alone: others may be there";
    EXPECT_THAT(failed.status().message(), HasSubstr("no store has come back at " + endpoint() + " for 200 ms"));
  }
  experts_->cancel_fetches();
  store = start_store(6, "second.log");
  experts_->begin_step(PlanId(2), false);
  ask_for({1, 2});
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(next()) << "it goes on with the next store";
}

TEST_F(LostStore, AnArenaThatIsOverEndsTheWait) {
  auto store = start_store(6, "store.log");
  attach_device(kLong);
  store->kill(SIGTERM);
  store->wait();
  ask_for({1, 2});
  const auto failed = next();
  EXPECT_EQ(failed.status().code(), Code::kIo);
  EXPECT_FALSE(experts_->failed_blob()) << "the source as a whole";
  EXPECT_THAT(failed.status().message(), HasSubstr("attach anew"));
}

}  // namespace
}  // namespace moestro::device::testing

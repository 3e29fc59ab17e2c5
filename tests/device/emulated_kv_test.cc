// KV on an emulated link: it arrives where it belongs, takes the link's time, and shares that with experts by layer.

#include "services/worker/device/emulated_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "common/policy/make_policy.h"
#include "services/worker/device/emulated_link.h"

namespace moestro::device {
namespace {

using lanes::Lane;
using lanes::TaskKind;

constexpr uint64_t kBytes = 256 * 1024;
constexpr int64_t kMoveBytes = 100'000;

class EmulatedKvTest : public ::testing::Test {
 protected:
  explicit EmulatedKvTest(uint64_t rate = 32 << 20)
      : link_(tier_, slots_, {.bytes_per_s = rate, .kv = true}, clock_, 8) {
    for (size_t i = 0; i < host_.size(); ++i) host_[i].assign(kMoveBytes, static_cast<std::byte>(i + 1));
    for (auto& block : device_) block.assign(kMoveBytes, std::byte{0});
  }
  static lanes::Task task(Lane lane, int32_t layer) {
    return {.lane = lane, .kind = lane == Lane::kHostToDevice ? TaskKind::kKvLoad : TaskKind::kKvSave, .layer = layer,
            .micro_batch = 1};
  }
  std::vector<lanes::TaskId> wait_for(size_t tasks) {
    std::vector<lanes::TaskId> ended;
    for (int i = 0; i < 20 && ended.size() < tasks; ++i) {
      link_.kv()->wait(std::chrono::seconds(1));
      link_.kv()->take_ended(ended);
    }
    return ended;
  }
  /// `key` of layer key / 4 is needed.
  void need(tier::Key key) {
    std::unique_lock lock(link_.mutex());
    tier_.begin_step(clock_.now(), false);
    link_.set_source(key, expert_.data(), expert_.size());
    const std::vector<tier::DeviceTier::Wanted> wanted{{key}};
    std::vector<tier::Found> found(1);
    tier_.routed(clock_.now(), static_cast<int32_t>(key) / 4, wanted, found);
  }

  SteadyClock clock_;
  std::vector<std::vector<std::byte>> host_{12}, device_{12};
  std::vector<std::byte> expert_ = std::vector<std::byte>(kBytes, std::byte{7});
  SlotMemory slots_ = std::move(*SlotMemory::create(4, kBytes));
  tier::DeviceTier tier_{{.layers = 2, .experts = 4, .slots = 4, .expert_bytes = kBytes, .chunk_bytes = kBytes / 4},
                         std::move(*policy::make_policy("lru", 8))};
  EmulatedLink link_;
};

TEST_F(EmulatedKvTest, BytesArriveInBothDirectionsAndTakeTheirTime) {
  std::vector<engine::KvMove> in, out;
  for (size_t i = 0; i < 12; ++i) in.push_back({device_[i].data(), host_[i].data(), kMoveBytes});
  const Nanos begin = clock_.now();
  link_.kv()->begin(5, task(Lane::kHostToDevice, 0), 0, in);
  EXPECT_EQ(wait_for(1), std::vector<lanes::TaskId>{5});
  const double seconds = std::chrono::duration<double>(clock_.now() - begin).count();
  EXPECT_GE(seconds, 12.0 * kMoveBytes / (32 << 20));
  EXPECT_EQ(device_, host_);
  std::vector<std::vector<std::byte>> home(12, std::vector<std::byte>(kMoveBytes));
  for (size_t i = 0; i < 12; ++i) out.push_back({home[i].data(), device_[i].data(), kMoveBytes});
  link_.kv()->begin(6, task(Lane::kDeviceToHost, 0), 0, out);
  EXPECT_EQ(wait_for(1), std::vector<lanes::TaskId>{6});
  EXPECT_EQ(home, host_);
  std::vector<engine::KvCarried> carried;
  link_.kv()->take_carried(carried);
  int64_t bytes[2] = {};
  for (const engine::KvCarried& c : carried) {
    EXPECT_EQ(c.micro_batch, 1);
    bytes[c.lane == Lane::kDeviceToHost] += c.bytes;
    EXPECT_NEAR(static_cast<double>((c.end - c.begin).count()), static_cast<double>(c.bytes) * 1e9 / (32 << 20), 10);
  }
  EXPECT_EQ(bytes[0], 12 * kMoveBytes);
  EXPECT_EQ(bytes[1], 12 * kMoveBytes);
}

/// An expert of a layer before comes first; KV comes before the experts of its own layer.
TEST_F(EmulatedKvTest, TheEarlierLayerComesFirst) {
  for (const tier::Key key : {1u, 5u}) {
    std::vector<engine::KvMove> in;
    for (size_t i = 0; i < 12; ++i) in.push_back({device_[i].data(), host_[i].data(), kMoveBytes});
    need(key);
    link_.kv()->begin(9, task(Lane::kHostToDevice, 3), 1, in);
    link_.wake();
    ASSERT_EQ(wait_for(1).size(), 1u);
    std::unique_lock lock(link_.mutex());
    uint64_t seen = 0;
    while (link_.ends() < (key == 1 ? 2u : 4u)) link_.wait_for_end(lock, seen, clock_.now() + std::chrono::seconds(9));
    lock.unlock();
    std::vector<Copied> copied;
    {
      const std::lock_guard locked(link_.mutex());
      link_.take_ended(copied);
      tier_.released(clock_.now(), key);
    }
    std::vector<engine::KvCarried> carried;
    link_.kv()->take_carried(carried);
    ASSERT_FALSE(copied.empty());
    ASSERT_FALSE(carried.empty());
    // What was on its way when the other came is not interrupted: a chunk is allowed.
    if (key == 1) EXPECT_LE(copied.back().end, carried.back().begin);
    else EXPECT_LE(carried.back().end, copied.back().end);
  }
}

TEST_F(EmulatedKvTest, WhatIsAbandonedTouchesNothingAnyMore) {
  std::vector<engine::KvMove> in;
  for (size_t i = 0; i < 12; ++i) in.push_back({device_[i].data(), host_[i].data(), kMoveBytes});
  link_.kv()->begin(1, task(Lane::kHostToDevice, 0), 0, in);
  link_.kv()->begin(2, task(Lane::kHostToDevice, 1), 1, in);
  link_.kv()->abandon();
  const auto copy = device_;
  for (auto& block : host_) std::ranges::fill(block, std::byte{0xee});
  link_.kv()->begin(3, task(Lane::kDeviceToHost, 0), 0, std::span(in).first(1));
  EXPECT_EQ(wait_for(1), std::vector<lanes::TaskId>{3}) << "what was dropped does not end";
  EXPECT_TRUE(std::equal(copy.begin() + 1, copy.end(), device_.begin() + 1));
}

}  // namespace
}  // namespace moestro::device

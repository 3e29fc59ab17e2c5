// Dense weights on an emulated link: they arrive where they belong, take the link's time, and share it with experts and
// KV by layer.

#include "services/worker/device/emulated_dense.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/policy/make_policy.h"
#include "services/worker/device/emulated_link.h"

namespace moestro::device {
namespace {

constexpr uint64_t kBytes = 256 * 1024;
constexpr uint64_t kLayerBytes = 3'000'000;  ///< three chunks

class EmulatedDenseTest : public ::testing::Test {
 protected:
  EmulatedDenseTest()
      : link_(tier_, slots_, {.bytes_per_s = 64 << 20, .latency = Nanos(2'000'000), .kv = true, .dense = true}, clock_,
              8) {
    for (size_t i = 0; i < host_.size(); ++i) host_[i].assign(kLayerBytes, static_cast<std::byte>(i + 1));
    for (auto& place : device_) place.assign(kLayerBytes, std::byte{0});
  }
  EmulatedDense& dense() { return *link_.dense(); }
  DenseCopy copy(uint64_t number, int32_t layer) {
    return {.number = number, .layer = layer, .moe_layer = layer, .from = host_[number].data(),
            .to = device_[number].data(), .bytes = kLayerBytes};
  }
  std::vector<uint64_t> wait_for(size_t copies) {
    std::vector<uint64_t> ended;
    std::unique_lock lock(link_.mutex());
    uint64_t seen = 0;
    for (int i = 0; i < 50; ++i) {
      dense().take_ended(ended);
      if (ended.size() >= copies) break;
      link_.wait_for_end(lock, seen, clock_.now() + std::chrono::seconds(1));
    }
    return ended;
  }
  /// `key` of MoE layer key / 4 is needed; with the lock held.
  void need(tier::Key key) {
    tier_.begin_step(clock_.now(), false);
    link_.set_source(key, expert_.data(), expert_.size());
    const std::vector<tier::DeviceTier::Wanted> wanted{{key}};
    std::vector<tier::Found> found(1);
    tier_.routed(clock_.now(), static_cast<int32_t>(key) / 4, wanted, found);
  }
  std::vector<Copied> carried() {
    const std::lock_guard lock(link_.mutex());
    std::vector<Copied> all;
    link_.take_ended(all);
    dense().take_carried(all);
    std::ranges::sort(all, {}, &Copied::begin);
    return all;
  }

  SteadyClock clock_;
  std::vector<std::vector<std::byte>> host_{4}, device_{4};
  std::vector<std::byte> expert_ = std::vector<std::byte>(kBytes, std::byte{7});
  SlotMemory slots_ = std::move(*SlotMemory::create(4, kBytes));
  tier::DeviceTier tier_{{.layers = 2, .experts = 4, .slots = 4, .expert_bytes = kBytes, .chunk_bytes = kBytes / 4},
                         std::move(*policy::make_policy("lru", 8))};
  EmulatedLink link_;
};

TEST_F(EmulatedDenseTest, LayersArriveInOrderAndTakeTheirTime) {
  {
    const std::lock_guard lock(link_.mutex());
    dense().set_step_end(4);
    dense().begin(copy(0, 0));
    dense().begin(copy(1, 1));
  }
  link_.wake();
  EXPECT_EQ(wait_for(2), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(device_[0], host_[0]);
  EXPECT_EQ(device_[1], host_[1]);
  const auto all = carried();
  ASSERT_EQ(all.size(), 2u) << "what nothing interrupts is one stretch";
  for (const Copied& c : all) {
    EXPECT_EQ(c.dense_bytes, kLayerBytes);
    EXPECT_NEAR(std::chrono::duration<double>(c.end - c.begin).count(), 0.002 + double{kLayerBytes} / (64 << 20), 1e-4);
  }
  EXPECT_EQ(all[1].begin, all[0].end);
}

TEST_F(EmulatedDenseTest, AnExpertThatAnEarlierLayerWaitsForComesFirstAndLaterOnesLast) {
  {
    const std::lock_guard lock(link_.mutex());
    dense().set_step_end(4);
    dense().begin(copy(0, 1));  // of MoE layer 1, which is the second
    need(2);                    // of the first
  }
  link_.wake();
  wait_for(1);
  auto all = carried();
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all.front().dense_layer, -1) << "the expert";
  {
    const std::lock_guard lock(link_.mutex());
    dense().begin(copy(1, 1));
    need(5);  // of the second: its router needs the dense weights
  }
  link_.wake();
  wait_for(1);
  all = carried();
  EXPECT_EQ(all.front().dense_layer, 1);
}

TEST_F(EmulatedDenseTest, TheNextStepsWeightsComeBehindEverything) {
  {
    const std::lock_guard lock(link_.mutex());
    dense().set_step_end(0);
    dense().begin(copy(0, 0));
    need(5);
  }
  link_.wake();
  wait_for(1);
  EXPECT_EQ(carried().front().dense_layer, -1) << "the expert that this step needs";
}

TEST_F(EmulatedDenseTest, OfKvAndWeightsTheEarlierLayersComeFirst) {
  std::vector<std::byte> from(100'000, std::byte{9}), to(from.size());
  const std::vector<engine::KvMove> moves{{to.data(), from.data(), static_cast<int64_t>(from.size())}};
  for (const int32_t layer : {0, 1}) {  // of the KV; the weights are of layer 1
    const lanes::Task load{.lane = lanes::Lane::kHostToDevice, .kind = lanes::TaskKind::kKvLoad, .layer = layer,
                           .micro_batch = 0};
    {
      const std::lock_guard lock(link_.mutex());
      dense().set_step_end(4);
      dense().begin(copy(2, 1));
    }
    link_.kv()->begin(1, load, layer, moves);
    wait_for(1);
    std::vector<engine::KvCarried> kv;
    for (int i = 0; i < 50 && kv.empty(); ++i) {
      link_.kv()->wait(std::chrono::seconds(1));
      link_.kv()->take_carried(kv);
    }
    std::vector<lanes::TaskId> ended;
    link_.kv()->take_ended(ended);
    const auto weights = carried();
    ASSERT_FALSE(kv.empty());
    if (layer == 0) EXPECT_LT(kv.front().begin, weights.back().end);
    else EXPECT_GE(kv.front().begin, weights.back().end);
  }
}

TEST_F(EmulatedDenseTest, WhatIsAbandonedTouchesNoMemoryAnyMore) {
  std::unique_lock lock(link_.mutex());
  dense().set_step_end(4);
  for (uint64_t number = 0; number < 4; ++number) dense().begin(copy(number, 0));
  link_.wake();
  std::vector<engine::KvCarried> none;
  while (std::ranges::all_of(device_[0], [](std::byte b) { return b == std::byte{0}; })) {
    lock.unlock();
    link_.kv()->wait(std::chrono::milliseconds(1));
    link_.kv()->take_carried(none);
    lock.lock();
  }
  const Nanos asked = clock_.now();
  dense().abandon(lock);
  EXPECT_LT(clock_.now() - asked, Nanos(100'000'000)) << "a chunk takes 16 ms, all of them 180";
  const auto there = device_;
  lock.unlock();
  link_.wake();
  for (auto& layer : host_) std::ranges::fill(layer, std::byte{99});
  const std::lock_guard again(link_.mutex());
  EXPECT_EQ(device_, there);
  EXPECT_FALSE(dense().has_more());
}

}  // namespace
}  // namespace moestro::device

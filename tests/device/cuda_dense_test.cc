// Dense weights on the link of a CUDA device: they arrive where they belong, share it with experts by layer, and no
// place is written that kernels still read.

#include "services/worker/device/cuda_dense.h"

#include <algorithm>

#include "tests/device/gated_link_fixture.h"

namespace moestro::device::testing {
namespace {

/// Two layers of four chunks each.
class CudaDenseTest : public GatedLinkFixture {
 protected:
  static constexpr uint64_t kLayer = 4 * kChunk - 100;

  CudaDenseTest() : layers_(2, std::vector<std::byte>(kLayer)) {
    for (size_t i = 0; i < layers_.size(); ++i) std::ranges::fill(layers_[i], static_cast<std::byte>(100 + i));
  }
  ~CudaDenseTest() override {
    gate_open = true;
    end();
    places_.reset();
  }
  void make_with_dense() {
    make(ArenaRegistration::kPiece, kKeys * kBytes, kLayer);
    emulated::make_streams_late(0);
    // Registered like the arena: what is copied is told apart by where it lies.
    places_ = std::make_unique<SlotMemory>(*SlotMemory::on_device(device_, 2, kLayer));
  }
  CudaDense& dense() { return *static_cast<CudaDense*>(link_->dense()); }
  DenseCopy copy(uint64_t number, int32_t moe_layer, uint64_t after = 0) {
    return {.number = number, .layer = moe_layer, .moe_layer = moe_layer, .from = layers_[number % 2].data(),
            .to = places_->slot(number % 2), .bytes = kLayer, .after = after, .poison_bytes = kLayer};
  }
  /// The copies that have been queued, once there are `count`: e of experts, d of dense weights.
  std::string kinds_of(size_t count) {
    std::string kinds;
    for (const std::byte* from : queued(count))
      kinds += from >= arena_.data() && from < arena_.data() + arena_.size() ? 'e' : 'd';
    return kinds;
  }
  void wait_for_copies(size_t count) {
    std::vector<uint64_t> ended;
    std::unique_lock lock(link_->mutex());
    uint64_t seen = 0;
    while (ended.size() < count && link_->failure().is_ok()) {
      dense().take_ended(ended);
      if (ended.size() < count) link_->wait_for_end(lock, seen, clock_.now() + std::chrono::seconds(10));
    }
    ASSERT_EQ(ended.size(), count) << link_->failure().message();
  }
  void begin(const std::vector<DenseCopy>& copies_of, uint64_t step_end) {
    {
      const std::lock_guard lock(link_->mutex());
      dense().set_step_end(step_end);
      for (const DenseCopy& one : copies_of) dense().begin(one);
    }
    link_->wake();
  }

  std::vector<std::vector<std::byte>> layers_;
  std::unique_ptr<SlotMemory> places_;
};

TEST_F(CudaDenseTest, LayersArriveInChunksTwoAtATime) {
  make_with_dense();
  begin({copy(0, 0), copy(1, 1)}, 4);
  EXPECT_EQ(kinds_of(2), "dd");
  gate_open = true;
  wait_for_copies(2);
  EXPECT_EQ(kinds_of(8), "dddddddd");
  for (uint32_t place : {0U, 1U}) EXPECT_EQ(read_back(places_->slot(place), kLayer), layers_[place]);
  EXPECT_EQ(link_->staged_bytes(), 2 * kLayer) << "they lie in no registered memory here";
  std::vector<Copied> carried;
  const std::lock_guard lock(link_->mutex());
  dense().take_carried(carried);
  uint64_t bytes = 0;
  for (const Copied& c : carried) bytes += c.dense_bytes;
  EXPECT_EQ(bytes, 2 * kLayer);
}

TEST_F(CudaDenseTest, TheStepsComeBeforeExpertsOfTheirLayerAndTheNextStepsLast) {
  make_with_dense();
  begin({copy(0, 1)}, 4);
  EXPECT_EQ(kinds_of(2), "dd");
  route(1, {5});  // whose router needs the weights
  gate_open = true;
  ASSERT_NE(wait_for(5), nullptr);
  wait_for_copies(1);
  EXPECT_EQ(kinds_of(8).substr(0, 3), "ddd") << "two chunks were under way, and another came before any of the expert";
  gate_open = false;
  {
    const std::lock_guard lock(copies_mutex);
    copies.clear();
  }
  begin({copy(5, 0)}, 4);  // of the next step
  route(1, {6});
  gate_open = true;
  ASSERT_NE(wait_for(6), nullptr);
  wait_for_copies(1);
  EXPECT_EQ(std::ranges::count(kinds_of(8), 'e'), 4);
}

TEST_F(CudaDenseTest, AnExpertThatAnEarlierLayerWaitsForComesBeforeFurtherChunks) {
  make_with_dense();
  begin({copy(0, 1)}, 4);
  EXPECT_EQ(kinds_of(2), "dd");
  route(0, {1});
  EXPECT_EQ(kinds_of(4), "ddee") << "beside the two that are under way";
  gate_open = true;
  ASSERT_NE(wait_for(1), nullptr);
  wait_for_copies(1);
}

/// While a place is read the link is there for experts, and the layer's first chunk waits on the device.
TEST_F(CudaDenseTest, APlaceIsNotWrittenWhileKernelsReadIt) {
  device_.chunk_bytes = kChunk;
  make_with_dense();
  gate_open = true;
  begin({copy(0, 0)}, 4);
  wait_for_copies(1);
  void* read = nullptr;
  ASSERT_EQ(cuda().allocate_pinned(kLayer, &read), 0);
  ASSERT_EQ(cuda().copy_out(read, places_->slot(0), kLayer, device_.compute), 0);  // as late as it may
  ASSERT_TRUE(link_->launched().is_ok());
  std::ranges::fill(layers_[0], std::byte{42});
  begin({copy(2, 0, 1)}, 4);
  wait_for_copies(1);
  EXPECT_EQ(read_back(places_->slot(0), kLayer), layers_[0]);
  EXPECT_EQ(*static_cast<std::byte*>(read), std::byte{100});
  EXPECT_EQ(static_cast<std::byte*>(read)[kLayer - 1], std::byte{100});
  EXPECT_EQ(cuda().release_pinned(read), 0);
}

TEST_F(CudaDenseTest, KernelsMayFollowWhenTheLastChunkIsQueued) {
  make_with_dense();
  const auto may_follow = [this] {
    const std::lock_guard lock(link_->mutex());
    return *dense().kernels_may_follow(0);
  };
  begin({copy(0, 0)}, 4);
  EXPECT_EQ(kinds_of(2), "dd");
  EXPECT_FALSE(may_follow());
  gate_open = true;
  kinds_of(4);
  gate_open = false;
  for (int i = 0; i < 10'000 && !may_follow(); ++i) {
    std::vector<uint64_t> ended;
    const std::lock_guard lock(link_->mutex());
    dense().take_ended(ended);
    if (!ended.empty()) break;  // it has arrived before this thread has looked
  }
  EXPECT_EQ(read_back(places_->slot(0), kLayer), layers_[0]) << "by what was queued behind it";
}

TEST_F(CudaDenseTest, WhatIsAbandonedIsNotQueuedAnyMore) {
  make_with_dense();
  begin({copy(0, 0), copy(1, 1)}, 4);
  EXPECT_EQ(kinds_of(2), "dd");
  std::thread opener([] {
    std::this_thread::yield();
    gate_open = true;
  });
  {
    std::unique_lock lock(link_->mutex());
    dense().abandon(lock);
    EXPECT_EQ(dense().under_way(), 0U);
    EXPECT_FALSE(dense().has_more());
  }
  opener.join();
  const size_t sent = kinds_of(2).size();
  EXPECT_LT(sent, 8u);
  link_->wake();
  route(0, {0});
  ASSERT_NE(wait_for(0), nullptr);
  EXPECT_EQ(std::ranges::count(kinds_of(sent), 'd'), static_cast<std::ptrdiff_t>(sent));
}

}  // namespace
}  // namespace moestro::device::testing

// Chunks arrive where they belong on a CUDA device, from wherever they lie, two under way at a time.

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/prediction/forecast.h"
#include "tests/device/gated_link_fixture.h"

namespace moestro::device::testing {
namespace {

class CudaLinkTest : public CudaLinkFixture {
 protected:
  void expect_all_arrive() {
    route(0, {0, 1, 2, 3});
    for (tier::Key key = 0; key < kSlots; ++key) {
      const std::byte* slot = wait_for(key);
      ASSERT_NE(slot, nullptr) << link_->failure().message();
      EXPECT_EQ(read_back(slot), bytes_of(key)) << key;
    }
    std::vector<Copied> ended;
    {
      const std::lock_guard lock(link_->mutex());
      link_->take_ended(ended);
      EXPECT_TRUE(tier_->idle());
      EXPECT_EQ(tier_->counters().moved_bytes, kSlots * kBytes);
    }
    for (size_t i = 0; i < ended.size(); ++i) {
      EXPECT_TRUE(ended[i].demand);
      EXPECT_LE(ended[i].begin, ended[i].end);
      if (i > 0) EXPECT_LE(ended[i - 1].end, ended[i].begin) << "one after another on the stream";
    }
    EXPECT_EQ(std::ranges::count_if(ended, [](const Copied& c) { return c.whole; }), kSlots);
  }
};

TEST(CudaChunks, AreEqualPartsThatDelayADemandLittle) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  EXPECT_EQ(CudaSlots::chunk_of(336 * kMiB), 16 * kMiB);
  EXPECT_EQ(CudaSlots::chunk_of(96 * kMiB), 12 * kMiB);
  EXPECT_EQ(CudaSlots::chunk_of(9 * kMiB), 9 * kMiB) << "no short last one";
  for (uint64_t bytes = 1; bytes < 512 * kMiB; bytes = bytes * 5 / 4 + 1) {
    const uint64_t chunk = CudaSlots::chunk_of(bytes);
    EXPECT_GT(chunk, 0u);
    EXPECT_LE(chunk, std::max(bytes / 8, 16 * kMiB) + kMiB) << bytes;
    EXPECT_LE(chunk, 17 * kMiB) << bytes;
  }
  EXPECT_EQ(CudaSlots{.chunk_bytes = 4096}.chunk(kMiB), 4096u);
}

TEST_F(CudaLinkTest, BytesLieInTheirSlots) {
  make();
  EXPECT_EQ(registration_->registered_bytes(), kKeys * kBytes);
  expect_all_arrive();
  EXPECT_EQ(link_->staged_bytes(), 0u);
}

TEST_F(CudaLinkTest, MemoryThatIsNotRegisteredIsStaged) {
  make(ArenaRegistration::kPiece, 0);
  EXPECT_EQ(registration_->registered_bytes(), 0u);
  expect_all_arrive();
  EXPECT_GE(link_->staged_bytes(), kSlots * kBytes);
}

TEST_F(CudaLinkTest, AChunkMayLieInSeveralPiecesAndBehindTheLast) {
  make(3 * 4096 + 4096 * 7, 2 * kBytes + 4096);
  expect_all_arrive();
}

class GatedLinkTest : public GatedLinkFixture {
 protected:
  /// Chunk `index` of a key.
  const std::byte* chunk(tier::Key key, uint64_t index) { return host(key) + index * kChunk; }
  void foresee(tier::Key key) {
    prediction::Forecast forecast(2, 4);
    forecast.row(static_cast<int32_t>(key / 4))[key % 4] = 0.9F;
    {
      const std::lock_guard lock(link_->mutex());
      link_->set_source(key, host(key), kBytes);
      tier_->foresee(clock_.now(), -1, forecast);
    }
    link_->wake();
  }
};

TEST_F(GatedLinkTest, ADemandOvertakesBehindTheTwoThatAreUnderWay) {
  make();
  foresee(4);
  EXPECT_EQ(queued(2).size(), 2u);
  route(0, {1});
  gate_open = true;
  ASSERT_NE(wait_for(1), nullptr);
  EXPECT_THAT(queued(8), ::testing::ElementsAre(chunk(4, 0), chunk(4, 1), chunk(1, 0), chunk(1, 1), chunk(1, 2),
                                                chunk(1, 3), chunk(4, 2), chunk(4, 3)));
  const std::byte* late = wait_for(4);
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(read_back(late), bytes_of(4));
}

TEST_F(GatedLinkTest, WhatIsUnderWayIsNotThereYet) {
  make();
  route(0, {0});
  EXPECT_EQ(queued(2).size(), 2u);
  {
    const std::lock_guard lock(link_->mutex());
    EXPECT_EQ(tier_->counters().moved_bytes, 0u);
    EXPECT_EQ(tier_->slot_of(0), std::nullopt);
    EXPECT_TRUE(link_->is_copying(0));
    EXPECT_FALSE(link_->is_copying(1));
    std::vector<Copied> ended;
    link_->take_ended(ended);
    EXPECT_TRUE(ended.empty());
  }
  gate_open = true;
  EXPECT_NE(wait_for(0), nullptr);
}

TEST_F(GatedLinkTest, TwoExpertsAreUnderWayAndBothAreBeingCopied) {
  device_.chunk_bytes = kBytes;
  make();
  route(0, {2, 3});
  EXPECT_EQ(queued(2).size(), 2u);
  {
    const std::lock_guard lock(link_->mutex());
    EXPECT_TRUE(link_->is_copying(2));
    EXPECT_TRUE(link_->is_copying(3));
  }
  gate_open = true;
  for (const tier::Key key : {2u, 3u}) {
    const std::byte* slot = wait_for(key);
    ASSERT_NE(slot, nullptr);
    // Its host memory is nobody's from here on.
    const auto expected = bytes_of(key);
    std::memset(host(key), 0xff, kBytes);
    EXPECT_EQ(read_back(slot), expected);
  }
  const std::lock_guard lock(link_->mutex());
  EXPECT_FALSE(link_->is_copying(2) || link_->is_copying(3));
}

TEST_F(GatedLinkTest, AWokenLinkQueuesASecondChunkBehindALoneOne) {
  device_.chunk_bytes = kBytes;
  make();
  route(0, {0});
  EXPECT_EQ(queued(1).size(), 1u);
  route(0, {1});
  EXPECT_EQ(queued(2).size(), 2u) << "the first has not come";
  gate_open = true;
  EXPECT_NE(wait_for(1), nullptr);
}

TEST_F(GatedLinkTest, LaunchesLongAgoAreBehindTheOldestThatIsRemembered) {
  gate_open = true;
  make();
  route(0, {0});
  ASSERT_NE(wait_for(0), nullptr);
  void* read = nullptr;
  ASSERT_EQ(cuda().allocate_pinned(kBytes, &read), 0);
  std::byte* slot = wait_for(0);
  EXPECT_EQ(cuda().copy_out(read, slot, kBytes, device_.compute), 0);
  ASSERT_TRUE(link_->launched().is_ok());
  release(0);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(link_->launched().is_ok());
  route(1, {4, 5, 6, 7});  // all slots: that of key 0 too
  for (tier::Key key = 4; key < 8; ++key) ASSERT_NE(wait_for(key), nullptr);
  EXPECT_EQ(cuda().wait_stream(device_.compute), 0);
  EXPECT_EQ(std::memcmp(read, host(0), kBytes), 0);
  EXPECT_EQ(cuda().release_pinned(read), 0);
}

/// KV that is loaded beside an expert of layer 0.
class GatedKvTest : public GatedLinkTest {
 protected:
  GatedKvTest() {
    void* there = nullptr;
    EXPECT_EQ(cuda().allocate(kBytes, &there), 0);
    move_ = {static_cast<std::byte*>(there), home_.data(), kBytes};
  }
  ~GatedKvTest() override {
    end();
    EXPECT_EQ(cuda().release(move_.to), 0);
  }
  const std::byte* piece(uint64_t index) { return home_.data() + index * kChunk; }
  void load_for(int32_t moe_layer) {
    link_->kv()->begin(7, {.lane = lanes::Lane::kHostToDevice, .kind = lanes::TaskKind::kKvLoad, .layer = moe_layer},
                       moe_layer, std::span(&move_, 1));
  }
  void wait_for_load() {
    std::vector<lanes::TaskId> ended;
    for (int i = 0; i < 20 && ended.empty(); ++i) {
      link_->kv()->wait(std::chrono::seconds(1));
      link_->kv()->take_ended(ended);
    }
    EXPECT_THAT(ended, ::testing::ElementsAre(7));
    EXPECT_EQ(read_back(move_.to), home_);
  }

  std::vector<std::byte> home_ = std::vector<std::byte>(kBytes, std::byte{99});
  engine::KvMove move_;
};

TEST_F(GatedKvTest, OfALaterLayerItComesBehindExpertsThatAreWaitedFor) {
  make(ArenaRegistration::kPiece, kKeys * kBytes, 0, true);
  route(0, {1});
  EXPECT_EQ(queued(2).size(), 2u);
  load_for(1);
  std::vector<lanes::TaskId> ended;
  link_->kv()->take_ended(ended);
  EXPECT_EQ(queued(2).size(), 2u);
  gate_open = true;
  ASSERT_NE(wait_for(1), nullptr);
  wait_for_load();
  EXPECT_THAT(queued(8), ::testing::ElementsAre(chunk(1, 0), chunk(1, 1), chunk(1, 2), chunk(1, 3), piece(0), piece(1),
                                                piece(2), piece(3)));
}

/// What layer 0 waits for is still read from the drive.
TEST_F(GatedKvTest, ItDoesNotWaitForExpertsThatNobodyWaitsFor) {
  make(ArenaRegistration::kPiece, kKeys * kBytes, 0, true);
  {
    const std::lock_guard lock(link_->mutex());
    std::vector<tier::DeviceTier::Wanted> wanted{{1}};
    std::vector<tier::Found> found(1);
    tier_->routed(clock_.now(), 0, wanted, found);
    prediction::Forecast forecast(2, 4);
    forecast.row(1)[0] = 0.9F;
    link_->set_source(4, host(4), kBytes);
    tier_->foresee(clock_.now(), 0, forecast);
  }
  link_->wake();
  EXPECT_EQ(queued(2).size(), 2u);
  load_for(1);
  EXPECT_THAT(queued(4), ::testing::ElementsAre(chunk(4, 0), chunk(4, 1), piece(0), piece(1)));
  gate_open = true;
  wait_for_load();
}

TEST_F(GatedKvTest, OfTheSameLayerItSharesTheLink) {
  make(ArenaRegistration::kPiece, kKeys * kBytes, 0, true);
  route(0, {1});
  EXPECT_EQ(queued(2).size(), 2u);
  load_for(0);
  EXPECT_THAT(queued(4), ::testing::ElementsAre(chunk(1, 0), chunk(1, 1), piece(0), piece(1)));
  gate_open = true;
  ASSERT_NE(wait_for(1), nullptr);
  wait_for_load();
}

}  // namespace
}  // namespace moestro::device::testing

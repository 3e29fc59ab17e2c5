// KV on its way between host memory and a CUDA device: what a task has ended for is where it belongs.

#include "services/worker/device/cuda_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/emulator/streams.h"

namespace moestro::device {
namespace {

namespace emulated = kernels::cuda::emulated;
using lanes::Lane;
using lanes::TaskId;
using lanes::TaskKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int64_t kMoveBytes = 50'000;
constexpr size_t kMoves = 4;

class CudaKvTest : public ::testing::Test {
 protected:
  CudaKvTest() {
    device_.functions = &functions_;
    for (size_t i = 0; i < kMoves; ++i) {
      void* host = nullptr;
      EXPECT_EQ(functions_.allocate_pinned(kMoveBytes, &host), 0);
      host_[i] = static_cast<std::byte*>(host);
      void* there = nullptr;
      EXPECT_EQ(functions_.allocate(kMoveBytes, &there), 0);
      there_[i] = static_cast<std::byte*>(there);
      std::fill_n(host_[i], kMoveBytes, static_cast<std::byte>(i + 1));
    }
    make_late(3);
  }
  ~CudaKvTest() override {
    kv_.reset();
    for (std::byte* memory : host_) (void)functions_.release_pinned(memory);
    for (std::byte* memory : there_) (void)functions_.release(memory);
  }
  void make_late(int queries) {
    emulated::make_streams_late(queries);
    kv_ = std::make_unique<CudaKv>(
        device_, clock_,
        CudaKv::Calls{.failed = [this](const Status& failure) { told_.push_back(failure); },
                      .gives_way = [this](int32_t moe_layer) { return moe_layer >= waiting_before_; }});
    EXPECT_TRUE(kv_->make().is_ok());
    emulated::make_streams_late(0);
  }
  /// Of the moves [first, end).
  void begin(TaskId id, Lane lane, size_t first, size_t end, int32_t moe_layer = 0) {
    for (size_t i = first; i < end; ++i)
      moves_[i] = lane == Lane::kHostToDevice ? engine::KvMove{there_[i], host_[i], kMoveBytes}
                                              : engine::KvMove{host_[i], there_[i], kMoveBytes};
    kv_->begin(id,
               {.lane = lane, .kind = lane == Lane::kHostToDevice ? TaskKind::kKvLoad : TaskKind::kKvSave, .layer = 2,
                .micro_batch = 1},
               moe_layer, std::span(moves_).subspan(first, end - first));
  }
  std::vector<TaskId> wait_for(size_t tasks) {
    std::vector<TaskId> ended;
    for (int i = 0; i < 20 && ended.size() < tasks; ++i) {
      kv_->wait(std::chrono::seconds(1));
      kv_->take_ended(ended);
    }
    return ended;
  }
  bool has(size_t i, int value) const {
    return std::all_of(host_[i], host_[i] + kMoveBytes, [&](std::byte b) { return b == std::byte(value); });
  }

  SteadyClock clock_;
  MoestroCudaFunctions functions_ = emulated::functions();
  CudaSlots device_;
  std::array<std::byte*, kMoves> host_{}, there_{};
  std::array<engine::KvMove, kMoves> moves_{};
  std::vector<Status> told_;
  int32_t waiting_before_ = 1;  ///< what tasks of this MoE layer and of later ones bring in gives way
  std::unique_ptr<CudaKv> kv_;
};

TEST_F(CudaKvTest, WhatCameInGoesOutAgainInTheOrderOfEachLane) {
  begin(1, Lane::kHostToDevice, 0, 2);
  begin(2, Lane::kHostToDevice, 2, 4);
  std::vector<TaskId> ended;
  kv_->take_ended(ended);
  EXPECT_TRUE(ended.empty()) << "the streams are late";
  EXPECT_THAT(wait_for(2), ElementsAre(1, 2));
  for (std::byte* memory : host_) std::fill_n(memory, kMoveBytes, std::byte{0});
  begin(3, Lane::kDeviceToHost, 0, 3);
  begin(4, Lane::kDeviceToHost, 3, 4);
  EXPECT_THAT(wait_for(2), ElementsAre(3, 4));
  for (size_t i = 0; i < kMoves; ++i) EXPECT_TRUE(has(i, static_cast<int>(i + 1))) << i;
  std::vector<engine::KvCarried> carried;
  kv_->take_carried(carried);
  ASSERT_EQ(carried.size(), 4U);
  EXPECT_EQ(carried[2].bytes, 3 * kMoveBytes);
  EXPECT_EQ(carried[2].kind, TaskKind::kKvSave);
  EXPECT_EQ(carried[2].layer, 2);
  for (const engine::KvCarried& c : carried) EXPECT_LE(c.begin, c.end);
  EXPECT_LE(carried[0].end, carried[1].begin) << "one after another";
  carried.clear();
  kv_->take_carried(carried);
  EXPECT_TRUE(carried.empty());
}

TEST_F(CudaKvTest, WhatGivesWayIsQueuedWhenItNeedNotAnyMore) {
  waiting_before_ = 2;
  begin(1, Lane::kHostToDevice, 0, 1, 1);
  begin(2, Lane::kHostToDevice, 1, 2, 2);
  begin(3, Lane::kDeviceToHost, 2, 3, 2);
  EXPECT_THAT(wait_for(2), UnorderedElementsAre(1, 3)) << "what goes out meets no experts";
  std::vector<TaskId> ended;
  for (int look = 0; look < 10; ++look) kv_->take_ended(ended);
  EXPECT_TRUE(ended.empty());
  waiting_before_ = 3;
  EXPECT_THAT(wait_for(1), ElementsAre(2));
}

TEST_F(CudaKvTest, WhatEndsElsewhereWakesWhoWaits) {
  std::thread other([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    kv_->end_elsewhere(9);
  });
  EXPECT_THAT(wait_for(1), ElementsAre(9));
  other.join();
  const Nanos begin = clock_.now();
  kv_->wait(std::chrono::milliseconds(5));
  EXPECT_GE(clock_.now() - begin, std::chrono::milliseconds(5)) << "nothing is under way";
}

TEST_F(CudaKvTest, WhatIsAbandonedIsNamedByNobodyAndTouchesNothingAfterwards) {
  begin(1, Lane::kHostToDevice, 0, 4);
  kv_->end_elsewhere(2);
  kv_->abandon();
  std::vector<TaskId> ended;
  kv_->take_ended(ended);
  EXPECT_TRUE(ended.empty());
  begin(3, Lane::kDeviceToHost, 0, 4);
  EXPECT_THAT(wait_for(1), ElementsAre(3)) << "the next step goes on";
  for (size_t i = 0; i < kMoves; ++i) EXPECT_TRUE(has(i, static_cast<int>(i + 1))) << "it had been carried whole";
}

TEST_F(CudaKvTest, ADeviceThatFailsIsToldOnceAndNobodyWaits) {
  functions_.copy_out = [](void*, const void*, uint64_t, MoestroCudaStream) -> MoestroCudaResult { return 999; };
  begin(1, Lane::kDeviceToHost, 0, 2);
  begin(2, Lane::kHostToDevice, 2, 4);
  EXPECT_EQ(kv_->status().code(), Code::kUnavailable);
  EXPECT_THAT(kv_->status().message(), HasSubstr("copy_out"));
  EXPECT_EQ(told_.size(), 1U);
  const Nanos begin_at = clock_.now();
  kv_->wait(std::chrono::seconds(10));
  EXPECT_LT(clock_.now() - begin_at, std::chrono::seconds(5));
  std::vector<TaskId> ended;
  kv_->take_ended(ended);
  EXPECT_TRUE(ended.empty());
}

/// Tasks of many bytes: copies that are longer than a piece, and others that are not a divisor of it.
class CudaKvPieces : public ::testing::Test {
 protected:
  static constexpr int64_t kWords = (3 * CudaKv::kAheadBytes + 4096) / 4;

  CudaKvPieces() {
    functions_.copy_in = [](void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
      queued += static_cast<int64_t>(bytes);
      return emulated::functions().copy_in(to, from, bytes, stream);
    };
    functions_.copy_out = [](void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
      queued += static_cast<int64_t>(bytes);
      return emulated::functions().copy_out(to, from, bytes, stream);
    };
    device_.functions = &functions_;
    host_ = static_cast<uint32_t*>(pinned());
    back_ = static_cast<uint32_t*>(pinned());
    EXPECT_EQ(functions_.allocate(4 * kWords, &there_), 0);
    for (int64_t i = 0; i < kWords; ++i) host_[i] = static_cast<uint32_t>(i);
    emulated::make_streams_late(3);
    kv_ = std::make_unique<CudaKv>(
        device_, clock_, CudaKv::Calls{.failed = [](const Status&) {}, .gives_way = [](int32_t) { return false; }});
    EXPECT_TRUE(kv_->make().is_ok());
    emulated::make_streams_late(0);
    queued = 0;
  }
  ~CudaKvPieces() override {
    kv_.reset();
    (void)functions_.release_pinned(host_);
    (void)functions_.release_pinned(back_);
    (void)functions_.release(there_);
  }
  void* pinned() {
    void* memory = nullptr;
    EXPECT_EQ(functions_.allocate_pinned(4 * kWords, &memory), 0);
    std::memset(memory, 0xff, 4 * kWords);
    return memory;
  }
  /// All of it, or back again, in moves of so many bytes.
  std::vector<engine::KvMove> moves(Lane lane, int64_t each) {
    std::vector<engine::KvMove> all;
    auto* const there = static_cast<std::byte*>(there_);
    const auto* const home = reinterpret_cast<const std::byte*>(host_);
    auto* const back = reinterpret_cast<std::byte*>(back_);
    for (int64_t at = 0; at < 4 * kWords; at += each) {
      const int64_t bytes = std::min(each, 4 * kWords - at);
      all.push_back(lane == Lane::kHostToDevice ? engine::KvMove{there + at, home + at, bytes}
                                                : engine::KvMove{back + at, there + at, bytes});
    }
    return all;
  }
  void begin(TaskId id, Lane lane, std::span<const engine::KvMove> moves) {
    kv_->begin(id, {.lane = lane, .kind = lane == Lane::kHostToDevice ? TaskKind::kKvLoad : TaskKind::kKvSave}, 0,
               moves);
  }
  /// Words that have come back, from the first on.
  int64_t came() const { return std::find(back_, back_ + kWords, UINT32_MAX) - back_; }

  inline static int64_t queued = 0;
  SteadyClock clock_;
  MoestroCudaFunctions functions_ = emulated::functions();
  CudaSlots device_;
  uint32_t *host_ = nullptr, *back_ = nullptr;
  void* there_ = nullptr;
  std::unique_ptr<CudaKv> kv_;
};

/// Nothing else decides for how long an expert, or a router's choice, waits behind KV.
TEST_F(CudaKvPieces, FewBytesAreQueuedAhead) {
  for (const int64_t each : {int64_t{77'776}, CudaKv::kPieceBytes, 4 * kWords}) {
    std::fill_n(back_, kWords, UINT32_MAX);
    queued = 0;
    std::vector<TaskId> ended;
    const auto in = moves(Lane::kHostToDevice, each), out = moves(Lane::kDeviceToHost, each);
    begin(1, Lane::kHostToDevice, in);
    EXPECT_EQ(queued, CudaKv::kAheadBytes);
    for (int looks = 0; ended.empty() && looks < 1000; ++looks) kv_->take_ended(ended);
    EXPECT_THAT(ended, ElementsAre(1));
    EXPECT_EQ(queued, 4 * kWords);

    queued = 0;
    begin(2, Lane::kDeviceToHost, out);
    begin(3, Lane::kDeviceToHost, std::span(out).first(1));
    EXPECT_EQ(queued, CudaKv::kAheadBytes);
    ended.clear();
    for (int looks = 0; ended.size() < 2 && looks < 1000; ++looks) {
      kv_->take_ended(ended);
      if (ended.empty()) EXPECT_LE(queued - 4 * came(), CudaKv::kAheadBytes);
    }
    EXPECT_THAT(ended, ElementsAre(2, 3));
    EXPECT_TRUE(std::equal(host_, host_ + kWords, back_)) << each;
    std::vector<engine::KvCarried> carried;
    kv_->take_carried(carried);
    std::map<TaskKind, int64_t> bytes;
    for (const engine::KvCarried& c : carried) bytes[c.kind] += c.bytes;
    EXPECT_EQ(bytes[TaskKind::kKvLoad], 4 * kWords);
    EXPECT_EQ(bytes[TaskKind::kKvSave], 4 * kWords + out.front().bytes);
  }
}

TEST_F(CudaKvPieces, SmallTasksAreQueuedTogether) {
  const auto all = moves(Lane::kHostToDevice, 4096);
  for (TaskId id = 0; id < 50; ++id) begin(id, Lane::kHostToDevice, std::span(all).subspan(static_cast<size_t>(id), 1));
  EXPECT_EQ(queued, 50 * 4096);
}

TEST_F(CudaKvPieces, WhatIsAbandonedIsQueuedNoFurther) {
  const auto out = moves(Lane::kDeviceToHost, 4 * kWords);
  begin(1, Lane::kDeviceToHost, out);
  kv_->abandon();
  std::fill_n(back_, kWords, UINT32_MAX);
  const std::vector<uint32_t> untouched(back_, back_ + kWords);
  std::vector<TaskId> ended;
  for (int look = 0; look < 20; ++look) kv_->take_ended(ended);
  EXPECT_TRUE(ended.empty());
  EXPECT_EQ(queued, CudaKv::kAheadBytes);
  EXPECT_TRUE(std::equal(untouched.begin(), untouched.end(), back_));
}

}  // namespace
}  // namespace moestro::device

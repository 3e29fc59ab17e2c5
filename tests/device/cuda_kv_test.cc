// KV on its way between host memory and a CUDA device: what a task has ended for is where it belongs.

#include "services/worker/device/cuda_kv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
    kv_ = std::make_unique<CudaKv>(device_, clock_, [this](const Status& failure) { told_.push_back(failure); });
    EXPECT_TRUE(kv_->make().is_ok());
    emulated::make_streams_late(0);
  }
  /// Of the moves [first, end).
  void begin(TaskId id, Lane lane, size_t first, size_t end) {
    for (size_t i = first; i < end; ++i)
      moves_[i] = lane == Lane::kHostToDevice ? engine::KvMove{there_[i], host_[i], kMoveBytes}
                                              : engine::KvMove{host_[i], there_[i], kMoveBytes};
    kv_->begin(id,
               {.lane = lane, .kind = lane == Lane::kHostToDevice ? TaskKind::kKvLoad : TaskKind::kKvSave, .layer = 2,
                .micro_batch = 1},
               0, std::span(moves_).subspan(first, end - first));
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

}  // namespace
}  // namespace moestro::device

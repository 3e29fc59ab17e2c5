// What CudaOps keeps on the device, and what it makes of calls that fail.

#include "kernels/cuda/device_memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cuda/cuda_ops.h"
#include "tests/cuda/cuda_under_test.h"
#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/streams.h"
#endif

namespace moestro::kernels::cuda {
namespace {

using kernels::test::functions_under_test;

class Mirrors : public kernels::test::CudaTest {};
class Workspaces : public kernels::test::CudaTest {};
class CudaOpsErrors : public kernels::test::CudaTest {};

/// The functions under test, counted; each may be made to fail.
struct Counted {
  int copies = 0, allocations = 0, waits = 0;
  MoestroCudaResult copy_result = 0, allocate_result = 0;
};
Counted counted;

MoestroCudaFunctions counting_functions() {
  counted = {};
  MoestroCudaFunctions f = functions_under_test();
  f.copy_in = [](void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
    ++counted.copies;
    return counted.copy_result != 0 ? counted.copy_result : functions_under_test().copy_in(to, from, bytes, stream);
  };
  f.allocate = [](uint64_t bytes, void** memory) {
    ++counted.allocations;
    return counted.allocate_result != 0 ? counted.allocate_result : functions_under_test().allocate(bytes, memory);
  };
  f.wait_event = [](MoestroCudaEvent event) {
    ++counted.waits;
    return functions_under_test().wait_event(event);
  };
  return f;
}

/// A number of the device's, once all before is done.
int32_t number_at(DeviceQueue& queue, const int32_t* device) {
  int32_t number = -1;
  EXPECT_EQ(queue.functions.copy_out(&number, device, sizeof number, queue.stream), 0);
  EXPECT_EQ(queue.functions.wait_stream(queue.stream), 0);
  return number;
}

std::span<const int32_t> numbers(const std::vector<int32_t>& v) { return v; }

TEST_F(Mirrors, SendsWhatIsNewAndNothingTwice) {
  const MoestroCudaFunctions f = counting_functions();
  DeviceQueue queue(f);
  StagingRing staging(queue);
  Mirror mirror(queue, staging);
  const std::vector<int32_t> a{1, 2, 3}, b{1, 2, 4};
  const int32_t* first = mirror.of(numbers(a));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(number_at(queue, first + 2), 3);
  EXPECT_EQ(mirror.of(numbers(a)), first);
  EXPECT_EQ(counted.copies, 1);
  const int32_t* second = mirror.of(numbers(b));
  EXPECT_EQ(second, first) << "written behind what was queued to read the first";
  EXPECT_EQ(number_at(queue, second + 2), 4);
  EXPECT_EQ(counted.copies, 2);
}

/// As many arrays as a step of many micro-batches and experts sends before the device has read the first; then more.
TEST_F(Mirrors, WaitOnlyWhereThereIsNoRoomForAllThatIsUnread) {
  const MoestroCudaFunctions f = counting_functions();
  DeviceQueue queue(f);
#ifndef MOESTRO_CUDA_PLUGIN
  emulated::make_streams_late(1 << 20);
#endif
  ASSERT_EQ(f.make_stream(0, &queue.stream), 0);
#ifndef MOESTRO_CUDA_PLUGIN
  emulated::make_streams_late(0);
#endif
  StagingRing staging(queue);
  Mirror mirrors[]{{queue, staging}, {queue, staging}};
  constexpr int32_t kCount = 16 << 10;
  const auto fit = static_cast<int32_t>(StagingRing::unread_bytes() / (kCount * sizeof(int32_t))), sends = 3 * fit;
  void* pinned = nullptr;
  ASSERT_EQ(f.allocate_pinned(static_cast<uint64_t>(sends) * sizeof(int32_t), &pinned), 0);
  auto* const last = static_cast<int32_t*>(pinned);
  std::vector<int32_t> values(kCount);
  for (Mirror& mirror : mirrors) mirror.of(numbers(values));  // it has its memory on the device
  const auto before = counted;
  for (int32_t i = 0; i < sends; ++i) {
    std::iota(values.begin(), values.end(), i + 1);
    const int32_t* there = mirrors[i % 2].of(numbers(values));
    ASSERT_NE(there, nullptr);
    EXPECT_EQ(f.copy_out(last + i, there + kCount - 1, sizeof(int32_t), queue.stream), 0);
    if (i + 3 == fit) EXPECT_EQ(counted.waits, 0);
  }
  EXPECT_GT(counted.waits, 0);
  EXPECT_EQ(counted.allocations, before.allocations);
  EXPECT_EQ(f.wait_stream(queue.stream), 0);
  for (int32_t i = 0; i < sends; ++i) EXPECT_EQ(last[i], i + kCount) << "nothing is written before it has been read";
  EXPECT_EQ(f.release_pinned(pinned), 0);
}

TEST_F(Mirrors, OfNothingIsNothing) {
  const MoestroCudaFunctions f = counting_functions();
  DeviceQueue queue(f);
  StagingRing staging(queue);
  Mirror mirror(queue, staging);
  EXPECT_EQ(mirror.of(std::span<const int32_t>()), nullptr);
  EXPECT_EQ(counted.copies, 0);
}

TEST_F(Workspaces, GrowsAndStays) {
  const MoestroCudaFunctions f = counting_functions();
  DeviceQueue queue(f);
  Workspace workspace(queue);
  void* small = workspace.at_least(100);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(workspace.at_least(4096), small) << "there is a least size";
  EXPECT_NE(workspace.at_least(1 << 20), nullptr);
  EXPECT_EQ(counted.allocations, 2);
  workspace.at_least(10);
  EXPECT_EQ(counted.allocations, 2);
}

TEST_F(CudaOpsErrors, TheFirstErrorStaysAndIsNamed) {
  const MoestroCudaFunctions f = counting_functions();
  auto ops = CudaOps::create(f, {});
  ASSERT_TRUE(ops.is_ok());
  counted.allocate_result = 2;
  const std::vector<float> table(8, 1.0f);
  std::vector<float> y(4, 5.0f);
  (*ops)->gather_rows({table.data(), DType::kF32, 2, 4}, std::vector<int32_t>{1}, y.data());
  EXPECT_EQ((*ops)->status().code(), Code::kUnavailable);
  EXPECT_EQ((*ops)->status().message(), "CUDA: allocate: out of memory");
  counted.allocate_result = 0;
  (*ops)->gather_rows({table.data(), DType::kF32, 2, 4}, std::vector<int32_t>{1}, y.data());
  EXPECT_EQ((*ops)->wait().message(), "CUDA: allocate: out of memory");
  EXPECT_EQ(y, std::vector<float>(4, 5.0f)) << "after an error nothing is done";
}

TEST_F(CudaOpsErrors, WhatThereIsNoKernelForIsRefused) {
  auto ops = CudaOps::create(functions_under_test(), {});
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 320, .scale = 1.0f};
  std::vector<float> numbers(320), cache(static_cast<size_t>(kv_block_bytes(shape, DType::kF32)) / sizeof(float));
  const std::vector<uint32_t> blocks{0};
  const AttentionSequence sequence{0, 1, 0, blocks};
  (*ops)->attention(shape, {&sequence, 1}, numbers.data(), nullptr, {cache.data(), DType::kF32, 1}, numbers.data());
  EXPECT_EQ((*ops)->status().code(), Code::kUnsupported);
  EXPECT_EQ((*ops)->status().message(), "CUDA: attention: the CUDA plugin has no kernel for this");
}

}  // namespace
}  // namespace moestro::kernels::cuda

// The emulator itself: that kernels run as on a device, and that it finds what it says it finds.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/numbers.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {
namespace {

/// Each thread says where it is.
__global__ void where_kernel(std::vector<unsigned>* seen) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  seen->push_back(block * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x);
}

TEST(Emulator, EveryThreadOfEveryBlockRunsOnceInItsPlace) {
  for (const uint64_t order : {0, 7}) {
    emulated::set_order(order);
    std::vector<unsigned> seen;
    launch(where_kernel, dim3(3, 2, 2), dim3(32, 2), 0, nullptr, &seen);
    std::vector<unsigned> all(3 * 2 * 2 * 64);
    std::iota(all.begin(), all.end(), 0u);
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all);
  }
  emulated::set_order(0);
}

std::vector<unsigned> places_of(uint64_t order, dim3 grid, dim3 block) {
  emulated::set_order(order);
  std::vector<unsigned> seen;
  launch(where_kernel, grid, block, 0, nullptr, &seen);
  emulated::set_order(0);
  return seen;
}

TEST(Emulator, BlocksRunInAnOrderThatIsRandomAndTheSameEachTime) {
  const std::vector<unsigned> seen = places_of(0, dim3(40), dim3(32));
  EXPECT_EQ(seen, places_of(0, dim3(40), dim3(32)));
  EXPECT_NE(seen, places_of(1, dim3(40), dim3(32)));
  std::set<unsigned> blocks, rises;
  for (size_t i = 0; i < seen.size(); i += 32) {
    blocks.insert(seen[i] / 32);
    if (i > 0 && seen[i] > seen[i - 32]) rises.insert(seen[i]);
    for (size_t lane = 1; lane < 32; ++lane) EXPECT_EQ(seen[i + lane], seen[i] + lane) << "lanes in their own order";
  }
  EXPECT_EQ(blocks.size(), 40u);
  EXPECT_GT(rises.size(), 5u);
  EXPECT_LT(rises.size(), 35u);
}

/// Each block adds to what the block before it has written, as if blocks ran in order.
__global__ void chained_kernel(int* sums) {
  if (threadIdx.x == 0) sums[blockIdx.x + 1] = sums[blockIdx.x] + 1;
}

TEST(Emulator, ShowsAKernelWhoseBlocksDependOnEarlierOnes) {
  std::vector<int> sums(17, 0), in_order(17);
  std::iota(in_order.begin(), in_order.end(), 0);
  launch(chained_kernel, dim3(16), dim3(32), 0, nullptr, sums.data());
  EXPECT_NE(sums, in_order);
}

/// Sums of a block's numbers, and what the lanes vote.
__global__ void sums_kernel(const float* from, float* sums, uint32_t* votes) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  const float mine = from[threadIdx.x], sum = block_sum(mine, room);
  const uint32_t vote = __ballot_sync(kWholeWarp, mine > 50.0f);
  sums[threadIdx.x] = sum + warp_sum<8>(mine) / 1024.0f;
  if (lane_id() == 0) votes[warp_id()] = vote;
}

TEST(Emulator, SumsAndVotesOfWarpsAreThoseOfTheirLanes) {
  std::vector<float> from(128), sums(128);
  std::vector<uint32_t> votes(4);
  std::iota(from.begin(), from.end(), 0.0f);
  for (uint64_t order = 0; order < 20; ++order) {
    emulated::set_order(order);
    launch(sums_kernel, dim3(1), dim3(128), 4 * sizeof(float), nullptr, from.data(), sums.data(), votes.data());
    for (size_t i = 0; i < 128; ++i) {
      const auto first = static_cast<float>(i / 8 * 8);
      ASSERT_EQ(sums[i], 8128.0f + (8 * first + 28) / 1024.0f) << i;
    }
    EXPECT_EQ(votes, (std::vector<uint32_t>{0u, 0xffffffffu << 19, 0xffffffffu, 0xffffffffu}));
  }
  emulated::set_order(0);
}

/// Reads what a neighbour writes, with a barrier between or without.
__global__ void neighbour_kernel(int* out, bool with_barrier) {
  auto* room = reinterpret_cast<int*>(shared_memory());
  room[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = room[(threadIdx.x + 1) % blockDim.x];
}

/// How many different results 20 orders give.
size_t results_of(bool with_barrier) {
  std::set<std::vector<int>> results;
  for (uint64_t order = 0; order < 20; ++order) {
    emulated::set_order(order);
    std::vector<int> out(64);
    launch(neighbour_kernel, dim3(1), dim3(64), 64 * sizeof(int), nullptr, out.data(), with_barrier);
    results.insert(out);
  }
  emulated::set_order(0);
  return results.size();
}

TEST(Emulator, OtherOrdersShowAMissingBarrier) {
  EXPECT_EQ(results_of(true), 1u);
  EXPECT_GT(results_of(false), 10u);
}

__global__ void unwritten_kernel(float* out) {
  float& mine = reinterpret_cast<float*>(shared_memory())[threadIdx.x];
  out[blockIdx.x * blockDim.x + threadIdx.x] = mine;
  mine = 1.0f;
}

TEST(Emulator, SharedMemoryBeginsAsNaNInEveryBlock) {
  std::vector<float> out(3 * 32, 0.0f);
  launch(unwritten_kernel, dim3(3), dim3(32), 32 * sizeof(float), nullptr, out.data());
  for (const float f : out) EXPECT_TRUE(std::isnan(f));
}

__global__ void add_kernel(const int* from, int by, int* to) { to[threadIdx.x] = from[threadIdx.x] + by; }

/// Device memory with a number in it.
class EmulatedMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(f.allocate(kBytes, &memory), 0);
    number = static_cast<int*>(memory);
    ASSERT_EQ(f.fill(memory, 1, kBytes, nullptr), 0);
  }
  void TearDown() override { EXPECT_EQ(f.release(memory), 0); }
  static constexpr uint64_t kBytes = 32 * sizeof(int);
  static constexpr int kFilled = 0x01010101;
  const MoestroCudaFunctions& f = emulated::functions();
  void* memory = nullptr;
  int* number = nullptr;
};
class EmulatedMemoryDeathTest : public EmulatedMemory {};

TEST_F(EmulatedMemoryDeathTest, CannotBeTouchedByTheHost) {
  const char* const words = "device memory was touched outside kernels and copies";
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile int*>(number)), words);
  EXPECT_DEATH(*const_cast<volatile int*>(number) = 3, words);
  launch(add_kernel, dim3(1), dim3(32), 0, nullptr, number, 1, number);
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile int*>(number)), words) << "nor after a kernel";
  EXPECT_DEATH(static_cast<void>(const_cast<volatile int*>(number)[1 << 20]), words) << "nor what is not allocated";
  EXPECT_DEATH(*static_cast<volatile int*>(nullptr) = 3, "") << "another fault is what it was";
}

TEST_F(EmulatedMemory, IsForKernelsAndCopies) {
  int host[32] = {};
  launch(add_kernel, dim3(1), dim3(32), 0, nullptr, number, 1, number);
  EXPECT_EQ(f.copy_out(host, memory, kBytes, nullptr), 0);
  EXPECT_EQ(host[31], kFilled + 1);
  host[31] = 7;
  EXPECT_EQ(f.copy_in(memory, host, kBytes, nullptr), 0);
  EXPECT_EQ(f.copy_within(memory, number + 31, sizeof(int), nullptr), 0);
  EXPECT_EQ(f.copy_out(host, memory, sizeof(int), nullptr), 0);
  EXPECT_EQ(host[0], 7);
}

TEST_F(EmulatedMemory, IsNaNWhenItIsNewAndAgainWhenItIsFree) {
  float fresh[32] = {};
  for (const uint64_t bytes : {sizeof fresh, sizeof fresh + (3u << 20)}) {
    void* again = nullptr;
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(f.allocate(bytes, &again), 0);
      ASSERT_EQ(f.copy_out(fresh, again, sizeof fresh, nullptr), 0);
      EXPECT_TRUE(std::isnan(fresh[0]) && std::isnan(fresh[31])) << i;
      ASSERT_EQ(f.fill(again, 0, bytes, nullptr), 0);
      ASSERT_EQ(f.release(again), 0);
    }
  }
  EXPECT_EQ(f.release(nullptr), 0);
}

/// The link's thread copies while the engine's computes: neither finds what the other has not finished.
TEST_F(EmulatedMemory, IsWholeForEachOfSeveralThreads) {
  const auto work = [&](int mine) {
    for (int i = 0; i < 300; ++i) {
      int host[32], back[32] = {};
      std::fill_n(host, 32, mine + i);
      void* at = nullptr;
      ASSERT_EQ(f.allocate(kBytes, &at), 0);
      ASSERT_EQ(f.copy_in(at, host, kBytes, nullptr), 0);
      launch(add_kernel, dim3(1), dim3(32), 0, nullptr, static_cast<int*>(at), 1, static_cast<int*>(at));
      ASSERT_EQ(f.copy_out(back, at, kBytes, nullptr), 0);
      ASSERT_EQ(f.release(at), 0);
      ASSERT_EQ(std::ranges::count(back, mine + i + 1), 32) << i;
    }
  };
  std::thread other([&] { work(1000); });
  work(5000);
  other.join();
}

/// What is released in any order can be allocated again in one piece.
TEST_F(EmulatedMemory, IsNotLostInPieces) {
  std::vector<void*> pieces(30);
  for (void*& piece : pieces) ASSERT_EQ(f.allocate(1000, &piece), 0);
  for (size_t i = 0; i < pieces.size(); ++i) ASSERT_EQ(f.release(pieces[i * 7 % 30]), 0);
  void* whole = nullptr;
  ASSERT_EQ(f.allocate(30 * 1000, &whole), 0);
  EXPECT_LE(whole, *std::ranges::min_element(pieces));
  EXPECT_EQ(f.release(whole), 0);
}

__global__ void overrun_memory_kernel(int* to, int by) { to[threadIdx.x + by] = 0; }
__global__ void load_kernel(const char* from) { (void)load_as<Bytes16>(from); }
__global__ void store_kernel(char* to) { store_as(to, Bytes8{}); }

TEST_F(EmulatedMemoryDeathTest, IsNotWrittenBehindItsEnd) {
  int host[32] = {};
  EXPECT_DEATH(
      {
        launch(overrun_memory_kernel, dim3(1), dim3(32), 0, nullptr, number, 1);
        (void)f.release(memory);
        launch(add_kernel, dim3(1), dim3(32), 0, nullptr, &host[0], 1, &host[0]);
      },
      "behind its device memory|use-after-poison");
  EXPECT_DEATH((void)f.release(number + 1), "was not allocated");
}

TEST_F(EmulatedMemoryDeathTest, IsLoadedAndStoredAtAlignedAddresses) {
  auto* at = static_cast<char*>(memory);
  launch(load_kernel, dim3(1), dim3(32), 0, nullptr, at + 16);
  launch(store_kernel, dim3(1), dim3(32), 0, nullptr, at + 8);
  EXPECT_DEATH(launch(load_kernel, dim3(1), dim3(32), 0, nullptr, at + 8), "unaligned");
  EXPECT_DEATH(launch(store_kernel, dim3(1), dim3(32), 0, nullptr, at + 4), "unaligned");
}

/// A stream of a device, as CUDA sees threads and devices.
TEST(EmulatedDevices, TakeLaunchesOfThreadsThatUseThem) {
  const MoestroCudaFunctions& f = emulated::functions();
  MoestroCudaStream stream = nullptr;
  MoestroCudaEvent event = nullptr, other = nullptr;
  MoestroCudaGraph graph = nullptr;
  int one = 1, sum[32] = {};
  const auto add = [&] { return launch(add_kernel, dim3(1), dim3(32), 0, stream, &sum[0], one, &sum[0]); };
  std::thread([&] {
    ASSERT_EQ(f.use_device(1), 0);
    ASSERT_EQ(f.make_stream(0, &stream), 0);
    ASSERT_EQ(f.make_event(0, &event), 0);
    ASSERT_EQ(f.begin_capture(stream), 0);
    ASSERT_EQ(f.end_capture(stream, &graph), 0);
    EXPECT_EQ(add(), 0);
    EXPECT_EQ(f.launch_graph(graph, stream), 0);
    ASSERT_EQ(f.use_device(0), 0);
    ASSERT_EQ(f.make_event(0, &other), 0);
    EXPECT_EQ(add(), emulated::kErrorOtherDevice);
    ASSERT_EQ(f.use_device(1), 0);
    EXPECT_EQ(add(), 0);
  }).join();
  EXPECT_EQ(add(), emulated::kErrorOtherDevice) << "this thread has chosen none";
  EXPECT_EQ(f.launch_graph(graph, stream), emulated::kErrorOtherDevice);
  EXPECT_EQ(f.record_event(other, stream), emulated::kErrorOtherDevice);
  EXPECT_EQ(f.record_event(event, stream), 0) << "of whichever thread";
  EXPECT_EQ(f.wait_stream(stream), 0);
  EXPECT_EQ(sum[0], 2);
  EXPECT_STREQ(f.error_text(emulated::kErrorOtherDevice), "invalid resource handle");
  EXPECT_STREQ(f.error_text(f.use_device(-1)), "invalid device ordinal");
  (void)f.end_graph(graph), (void)f.end_event(event), (void)f.end_event(other), (void)f.end_stream(stream);
}

/// A stream, and what graphs are made of.
class EmulatedGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(f.make_stream(0, &stream), 0);
    ASSERT_EQ(f.make_event(0, &event), 0);
    ASSERT_EQ(f.allocate_pinned(sizeof(int) * 32, &pinned), 0);
  }
  void TearDown() override {
    (void)f.release_pinned(pinned), (void)f.end_event(event), (void)f.end_stream(stream);
  }
  const MoestroCudaFunctions& f = emulated::functions();
  MoestroCudaStream stream = nullptr;
  MoestroCudaEvent event = nullptr;
  MoestroCudaGraph graph = nullptr;
  void* pinned = nullptr;
};

TEST_F(EmulatedGraphs, HaveArgumentsAsTheyWereAndMemoryAsItIs) {
  std::vector<int> from(32, 1), to(32, 0), beside(32, 0);
  int by = 10;
  const uint64_t before = emulated::launches();
  ASSERT_EQ(f.begin_capture(stream), 0);
  launch(add_kernel, dim3(1), dim3(32), 0, stream, from.data(), by, to.data());
  ASSERT_EQ(f.copy_out(pinned, to.data(), sizeof(int) * 32, stream), 0);
  by = 20;
  launch(add_kernel, dim3(1), dim3(32), 0, nullptr, from.data(), by, beside.data());
  EXPECT_EQ(beside[0], 21) << "another stream's work runs";
  EXPECT_EQ(to[0], 0) << "nothing of this one's does";
  ASSERT_EQ(f.end_capture(stream, &graph), 0);
  EXPECT_EQ(emulated::launches() - before, 1u);
  for (const int now : {5, 6}) {
    from.assign(32, now);
    ASSERT_EQ(f.launch_graph(graph, stream), 0);
    EXPECT_EQ(to, std::vector<int>(32, now + 10));
    EXPECT_EQ(static_cast<int*>(pinned)[31], now + 10);
  }
  EXPECT_EQ(emulated::launches() - before, 3u);
  EXPECT_EQ(f.end_graph(graph), 0);
}

TEST_F(EmulatedGraphs, RefuseWhatCudaRefusesAndAreVoidThen) {
  char unpinned[4] = {};
  void* memory = nullptr;
  void* scratch = nullptr;
  ASSERT_EQ(f.allocate(4, &scratch), 0);
  const std::vector<std::function<MoestroCudaResult()>> calls = {
      [&] { return f.allocate(4, &memory); },
      [&] { return f.allocate_pinned(4, &memory); },
      [&] { return f.release(scratch); },
      [&] { return f.release_pinned(pinned); },
      [&] { return f.wait_stream(stream); },
      [&] { return f.wait_event(event); },
      [&] { return f.query_event(event); },
      [&] { return f.record_event(event, stream); },
      [&] { return f.stream_waits(stream, event); },
      [&] { return f.copy_in(scratch, unpinned, 4, stream); },
      [&] { return f.copy_out(unpinned, scratch, 4, stream); },
      [&] { return f.begin_capture(stream); },
      [&] { return f.register_host(unpinned, 4, 0); }};
  for (size_t i = 0; i < calls.size(); ++i) {
    ASSERT_EQ(f.begin_capture(stream), 0);
    EXPECT_EQ(calls[i](), emulated::kErrorWhileCapturing) << i;
    EXPECT_EQ(f.end_capture(stream, &graph), emulated::kErrorCaptureIsVoid) << i;
    EXPECT_EQ(f.wait_stream(stream), 0) << "the capture has ended";
  }
  EXPECT_NE(f.end_capture(stream, &graph), 0) << "nothing is captured";
  EXPECT_EQ(f.release(scratch), 0);
}

/// Copies a row of 16 bytes a thread in two groups, and looks at the places in between.
__global__ void copies_kernel(const float* from, float* seen) {
  auto* room = reinterpret_cast<float*>(shared_memory());
  const unsigned i = threadIdx.x, n = blockDim.x;
  float* first = room + i * 4;
  float* second = room + (n + i) * 4;
  first[0] = second[0] = 1.0f;
  copy_async16(first, from + i * 4);
  commit_copies();
  copy_async16(second, from + i * 4, 8);
  commit_copies();
  seen[i * 6] = first[0];
  wait_copies<1>();
  seen[i * 6 + 1] = first[3];
  seen[i * 6 + 2] = second[0];
  wait_copies<0>();
  seen[i * 6 + 3] = second[1];
  seen[i * 6 + 4] = second[2];
  __syncthreads();
  seen[i * 6 + 5] = room[(i + 1) % n * 4];
}

TEST(Emulator, CopiesAreThereAfterTheirWaitAndNotBefore) {
  std::vector<float> from(64 * 4), seen(64 * 6);
  std::iota(from.begin(), from.end(), 1.0f);
  for (uint64_t order = 0; order < 5; ++order) {
    emulated::set_order(order);
    launch(copies_kernel, dim3(1), dim3(64), 2 * 64 * 16, nullptr, from.data(), seen.data());
    for (size_t i = 0; i < 64; ++i) {
      const float* s = &seen[i * 6];
      EXPECT_TRUE(std::isnan(s[0]) && std::isnan(s[2])) << "on its way";
      EXPECT_EQ(s[1], from[i * 4 + 3]);
      EXPECT_EQ(s[3], from[i * 4 + 1]);
      EXPECT_EQ(s[4], 0.0f) << "behind 8 bytes";
      EXPECT_EQ(s[5], from[(i + 1) % 64 * 4]);
    }
  }
  emulated::set_order(0);
}

/// Element e of row r of matrix m is m * 64 + r * 8 + e; rows lie 32 bytes apart.
__global__ void matrices_kernel(bool turned, uint32_t* out) {
  auto* room = reinterpret_cast<uint16_t*>(shared_memory());
  uint16_t* row = room + lane_id() * 16;
  for (int e = 0; e < 8; ++e) row[e] = static_cast<uint16_t>(lane_id() * 8 + e);
  __syncwarp();
  uint32_t words[4];
  if (turned) load_matrices_turned(words, row);
  else load_matrices(words, row);
  for (int e = 0; e < 8; ++e) row[e] = 0;  // another lane's words must be those from before
  for (int m = 0; m < 4; ++m) out[lane_id() * 4 + m] = words[m];
}

TEST(Emulator, MatricesAreLoadedAsTheManualLaysThemOut) {
  for (const uint64_t order : {0, 3}) {
    emulated::set_order(order);
    for (const bool turned : {false, true}) {
      std::vector<uint32_t> out(32 * 4);
      launch(matrices_kernel, dim3(1), dim3(32), 32 * 32, nullptr, turned, out.data());
      for (uint32_t lane = 0; lane < 32; ++lane) {
        for (uint32_t m = 0; m < 4; ++m) {
          const uint32_t row = lane / 4, column = lane % 4 * 2;
          const uint32_t first = m * 64 + (turned ? column * 8 + row : row * 8 + column),
                         second = first + (turned ? 8 : 1);
          EXPECT_EQ(out[lane * 4 + m], first | second << 16) << "lane " << lane << " matrix " << m;
        }
      }
    }
  }
  emulated::set_order(0);
}

__global__ void half_a_barrier_kernel() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void half_a_warp_kernel() {
  if (threadIdx.x < 16) __syncwarp();
}
__global__ void two_exchanges_kernel() {
  if (threadIdx.x < 16) __syncwarp();
  else __ballot_sync(kWholeWarp, true);
}
__global__ void unlike_lanes_kernel(int from, bool meet) {
  if (uniform(static_cast<int>(threadIdx.x) >= from) && meet) __syncwarp();
}
__global__ void unwaited_copy_kernel(const char* from) { copy_async16(shared_memory() + threadIdx.x * 16, from); }
__global__ void odd_matrix_kernel() {
  uint32_t words[4];
  load_matrices(words, shared_memory() + lane_id() * 16 + 8);
}
__global__ void overrun_kernel() { shared_memory()[threadIdx.x] = 0; }

TEST(EmulatorDeathTest, WhatCudaLeavesUndefinedEndsTheTest) {
  EXPECT_DEATH(launch(half_a_barrier_kernel, dim3(1), dim3(64), 0, nullptr), "barrier|wait for others");
  EXPECT_DEATH(launch(half_a_warp_kernel, dim3(1), dim3(32), 0, nullptr), "wait for others");
  EXPECT_DEATH(launch(two_exchanges_kernel, dim3(1), dim3(32), 0, nullptr), "exchange different things");
  launch(unlike_lanes_kernel, dim3(1), dim3(64), 0, nullptr, 32, true);
  EXPECT_DEATH(launch(unlike_lanes_kernel, dim3(1), dim3(64), 0, nullptr, 33, true), "wait for others");
  EXPECT_DEATH(launch(unlike_lanes_kernel, dim3(1), dim3(64), 0, nullptr, 33, false), "different values");
  alignas(16) static const char bytes[32] = {};
  const char* from = bytes;
  EXPECT_DEATH(launch(unwaited_copy_kernel, dim3(1), dim3(32), 512, nullptr, from), "ended before its copies");
  EXPECT_DEATH(launch(unwaited_copy_kernel, dim3(1), dim3(32), 512, nullptr, from + 4), "source of a copy is aligned");
  EXPECT_DEATH(launch(unwaited_copy_kernel, dim3(1), dim3(32), 8, nullptr, from), "in the block's shared memory");
  EXPECT_DEATH(launch(odd_matrix_kernel, dim3(1), dim3(32), 1024, nullptr), "an aligned address");
  EXPECT_DEATH(launch(overrun_kernel, dim3(1), dim3(32), 31, nullptr), "behind its shared memory");
  EXPECT_DEATH(launch(overrun_kernel, dim3(1), dim3(33), 33, nullptr), "whole warps");
}

}  // namespace
}  // namespace moestro::kernels::cuda

// The emulator itself: that kernels run as on a device, and that it finds what it says it finds.

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

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
    EXPECT_EQ(seen == all, order == 0) << "in the order of their numbers unless another is asked for";
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, all);
  }
  emulated::set_order(0);
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

__global__ void unwritten_kernel(float* out) { out[threadIdx.x] = reinterpret_cast<float*>(shared_memory())[threadIdx.x]; }

TEST(Emulator, SharedMemoryBeginsAsNaNInEveryBlock) {
  std::vector<float> out(32, 0.0f);
  launch(unwritten_kernel, dim3(2), dim3(32), 32 * sizeof(float), nullptr, out.data());
  for (const float f : out) EXPECT_TRUE(std::isnan(f));
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
__global__ void overrun_kernel() { shared_memory()[threadIdx.x] = 0; }

TEST(EmulatorDeathTest, WhatCudaLeavesUndefinedEndsTheTest) {
  EXPECT_DEATH(launch(half_a_barrier_kernel, dim3(1), dim3(64), 0, nullptr), "barrier|wait for others");
  EXPECT_DEATH(launch(half_a_warp_kernel, dim3(1), dim3(32), 0, nullptr), "wait for others");
  EXPECT_DEATH(launch(two_exchanges_kernel, dim3(1), dim3(32), 0, nullptr), "exchange different things");
  EXPECT_DEATH(launch(overrun_kernel, dim3(1), dim3(32), 31, nullptr), "behind its shared memory");
  EXPECT_DEATH(launch(overrun_kernel, dim3(1), dim3(33), 33, nullptr), "whole warps");
}

}  // namespace
}  // namespace moestro::kernels::cuda

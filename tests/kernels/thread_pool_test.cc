#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <memory>

namespace moestro::kernels::cpu {
namespace {

TEST(ThreadPoolTest, RunsEveryChunkOnceInEveryLoop) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int loop = 0; loop < 3000; ++loop) {
      const int64_t chunks = loop % 37;
      std::atomic<int> runs[37] = {};
      std::atomic<bool> known{true};
      pool.run(chunks, [&](int64_t i, int thread) {
        runs[i].fetch_add(1);
        if (thread < 0 || thread >= threads) known = false;
      });
      for (int64_t i = 0; i < 37; ++i)
        ASSERT_EQ(runs[i].load(), i < chunks ? 1 : 0) << "loop " << loop << " chunk " << i;
      ASSERT_TRUE(known);
    }
  }
}

TEST(ThreadPoolTest, WhatChunksWroteIsSeenAfterTheLoopAndInTheNext) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);  // plain memory: the pool alone orders it
  for (int64_t loop = 0; loop < 2000; ++loop) {
    pool.run(64, [&](int64_t i, int) { values[static_cast<size_t>(i)] += i; });
    for (int64_t i = 0; i < 64; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i * (loop + 1));
  }
}

TEST(ThreadPoolTest, WakesAThreadThatSleeps) {
  ThreadPool pool(2);
  // Two chunks that wait for each other end only if both threads come; the second round finds the worker
  // asleep.
  for (int round = 0; round < 2; ++round) {
    std::atomic<int> here{0};
    pool.run(2, [&](int64_t, int) {
      here.fetch_add(1);
      while (here.load() < 2) std::this_thread::yield();
    });
    EXPECT_EQ(here.load(), 2);
    std::this_thread::sleep_for(20 * ThreadPool::kSpin);
  }
}

TEST(ThreadPoolTest, EndsWhetherItsThreadsSpinOrSleep) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  auto pool = std::make_unique<ThreadPool>(2);
  std::this_thread::sleep_for(20 * ThreadPool::kSpin);
  pool.reset();
}

}  // namespace
}  // namespace moestro::kernels::cpu

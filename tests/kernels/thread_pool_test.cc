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

/// Even chunks are of node 4, odd ones of node 1; those that 7 divides, of a node where no thread is.
int node_of_chunk(int64_t chunk) {
  return chunk % 7 == 0 ? 9 : chunk % 2 == 0 ? 4 : 1;
}

TEST(ThreadPoolTest, ChunksOfNodesRunOnceEachWhicheverThreadsThereAre) {
  for (const std::vector<int>& nodes :
       {std::vector<int>{}, {4}, {1, 1}, {1, 4}, {4, 1, 4}, {1, 4, 1, 4, 9}, {0, 0, 2}}) {
    ThreadPool pool(nodes.empty() ? 2 : static_cast<int>(nodes.size()), {}, nodes);
    for (int loop = 0; loop < 1000; ++loop) {
      const int64_t chunks = loop % 37;
      std::atomic<int> runs[37] = {};
      pool.run_at(chunks, node_of_chunk, [&](int64_t i, int) { runs[i].fetch_add(1); });
      for (int64_t i = 0; i < 37; ++i)
        ASSERT_EQ(runs[i].load(), i < chunks ? 1 : 0) << "loop " << loop << " chunk " << i;
      pool.run(chunks, [&](int64_t i, int) { runs[i].fetch_add(1); });
      for (int64_t i = 0; i < 37; ++i) ASSERT_EQ(runs[i].load(), i < chunks ? 2 : 0) << "a plain loop after it";
    }
  }
}

TEST(ThreadPoolTest, AChunkIsRunOnItsNodeWhileThatHasThreadsWithTime) {
  const std::vector<int> nodes{4, 1, 4, 1};
  ThreadPool pool(4, {}, nodes);
  EXPECT_TRUE(pool.of_several_nodes());
  for (int round = 0; round < 200; ++round) {
    // Nobody ends its first chunk before each thread has one, so nobody is out of chunks of its own before.
    std::atomic<int> here{0};
    std::atomic<bool> first[4] = {true, true, true, true};
    std::atomic<int> elsewhere{0};
    pool.run_at(40, [](int64_t chunk) { return chunk % 2 == 0 ? 4 : 1; }, [&](int64_t chunk, int thread) {
      if (!first[thread].exchange(false)) return;
      if (nodes[static_cast<size_t>(thread)] != (chunk % 2 == 0 ? 4 : 1)) elsewhere.fetch_add(1);
      here.fetch_add(1);
      while (here.load() < 4) std::this_thread::yield();
    });
    ASSERT_EQ(elsewhere.load(), 0) << "round " << round;
  }
  EXPECT_EQ(pool.chunks_on_their_node() + pool.chunks_elsewhere(), 200U * 40U);
  EXPECT_GE(pool.chunks_on_their_node(), 200U * 4U);
}

TEST(ThreadPoolTest, WhoHasNoChunksOfItsNodeTakesOthers) {
  const std::vector<int> nodes{0, 1};
  ThreadPool pool(2, {}, nodes);
  // All are of node 0, whose one thread stands in the first until the other has done the rest.
  std::atomic<int> done{0};
  std::atomic<bool> begun{false};
  pool.run_at(10, [](int64_t) { return 0; }, [&](int64_t, int thread) {
    if (thread == 0) begun = true;
    while (thread == 0 ? done.load() < 9 : !begun.load()) std::this_thread::yield();
    done.fetch_add(1);
  });
  EXPECT_EQ(done.load(), 10);
  EXPECT_EQ(pool.chunks_on_their_node(), 1U);
  EXPECT_EQ(pool.chunks_elsewhere(), 9U);
}

TEST(ThreadPoolTest, EndsWhetherItsThreadsSpinOrSleep) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  auto pool = std::make_unique<ThreadPool>(2);
  std::this_thread::sleep_for(20 * ThreadPool::kSpin);
  pool.reset();
}

}  // namespace
}  // namespace moestro::kernels::cpu

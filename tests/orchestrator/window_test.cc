// Where queries see a window, a sequence is held by what it sees: it runs on beyond the KV cache.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "orchestrator/scheduler/kv_window.h"
#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

/// 12 blocks of 4.
WorkerLimits windowed(uint32_t sinks, uint32_t window, uint32_t blocks = 12) {
  return {.kv_blocks = blocks,
          .kv_block_tokens = 4,
          .context_max = 2000,
          .step_tokens_max = 40,
          .step_sequences_max = 5,
          .kv_sinks = sinks,
          .kv_window = window};
}

TEST(KvWindow, WhatIsSeen) {
  const KvWindow all(
      {.kv_blocks = 12, .kv_block_tokens = 4, .context_max = 2000, .step_tokens_max = 40, .step_sequences_max = 5});
  EXPECT_TRUE(all.sees(0, 1999));
  EXPECT_EQ(all.length_max(), 48);
  EXPECT_EQ(all.chunk_max(40), 8);
  EXPECT_EQ(all.blocks_at_most(41, 7), 11);
  const KvWindow some(windowed(5, 10));
  EXPECT_EQ(some.length_max(), 2000);
  EXPECT_TRUE(some.sees(1, 100)) << "sinks are the positions 0 to 4";
  EXPECT_FALSE(some.sees(2, 100));
  EXPECT_FALSE(some.sees(22, 101)) << "positions 88 to 91, of which 92 is the first seen";
  EXPECT_TRUE(some.sees(22, 100));
  EXPECT_TRUE(some.sees(2, 12));
  const KvWindow too_wide(windowed(0, 60));
  EXPECT_EQ(too_wide.length_max(), 48) << "the cache does not hold what one query sees";
}

/// By counting: the most blocks that a step of `chunk` tokens needs is what blocks_at_most says, and no less than some
/// step does need.
TEST(KvWindow, BlocksAtMostIsEnoughAndNotTooMuch) {
  for (const int64_t window : {1, 2, 4, 9, 16})
    for (const int64_t sinks : {0, 1, 5})
      for (int64_t chunk = 1; chunk <= 10; ++chunk) {
        const KvWindow w(windowed(static_cast<uint32_t>(sinks), static_cast<uint32_t>(window)));
        if (chunk > w.chunk_max(1000)) continue;
        int64_t most = 0;
        for (int64_t p = 60; p < 64; ++p) {
          int64_t blocks = 0;
          for (int64_t b = 0; b * 4 < p + chunk; ++b) blocks += w.sees(b, p);
          most = std::max(most, blocks);
        }
        EXPECT_LE(most, w.blocks_at_most(200, chunk)) << window << " " << sinks << " " << chunk;
        EXPECT_GE(most + 1, w.blocks_at_most(200, chunk)) << window << " " << sinks << " " << chunk;
        EXPECT_LE(w.blocks_at_most(200, chunk), 12);
      }
}

TEST(Window, ASequenceRunsOnBeyondTheCache) {
  for (const bool prefix_cache : {true, false}) {
    Simulation sim(1, 24, prefix_cache);
    sim.join(windowed(3, 10));
    sim.submit(request(1, 8, 20 * 48));
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.heard()[1].sampled.size(), 960u);
    EXPECT_EQ(sim.heard()[1].finished, FinishReason::kLength);
    EXPECT_EQ(sim.computed_tokens(), 8u + 959u) << "nothing was computed twice";
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
  }
}

TEST(Window, APromptLongerThanTheCacheIsReadInChunksThatFit) {
  Simulation sim(1, /*step_tokens=*/40);
  sim.join(windowed(3, 10));
  sim.submit(request(1, 500, 5));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.computed_tokens(), 500u + 4u);
}

TEST(Window, ALongPromptFindsWhatItsLastTokensSee) {
  Simulation sim(1, /*step_tokens=*/40);
  sim.join(windowed(3, 10, 40));
  SequenceRequest r = request(1, 1, 1);
  for (TokenId t = 0; t < 300; ++t) r.prompt.push_back(1 + t % 90);
  sim.submit(r);
  sim.finish_all();
  r.id = SequenceId{2};
  sim.submit(r);
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[2].cached, 300) << "75 blocks, of which 40 at most are there";
}

/// A second sequence takes more and more of the first one's blocks; the third begins behind what is left, if that is
/// all that is seen.
TEST(Window, WhatIsThereButNotAllThatIsSeenIsOfNoUse) {
  for (const uint32_t sinks : {0u, 3u}) {
    std::set<int64_t> found;
    for (size_t taken = 4; taken <= 120; taken += 4) {
      Simulation sim(1, /*step_tokens=*/8);
      sim.join(windowed(sinks, 10, 20));
      SequenceRequest r = request(1, 1, 1);
      for (TokenId t = 0; t < 300; ++t) r.prompt.push_back(1 + t % 90);
      sim.submit(r);
      sim.finish_all();
      sim.submit(request(2, taken, 1));
      sim.finish_all();
      r.id = SequenceId{3};
      sim.submit(r);
      sim.finish_all();
      sim.expect_right_answers();
      found.insert(sim.heard()[3].cached);
    }
    EXPECT_TRUE(found.contains(0));
    EXPECT_TRUE(found.contains(300));
  }
}

TEST(Window, AWindowThatTheCacheDoesNotHoldEndsWhereTheCacheDoes) {
  Simulation sim(1);
  sim.join(windowed(0, 60));
  SequenceRequest r = request(1, 8, 500);
  r.open_ended = true;
  sim.submit(std::move(r));
  sim.finish_all();
  EXPECT_EQ(sim.heard()[1].finished, FinishReason::kLength);
  EXPECT_EQ(sim.heard()[1].sampled.size(), 40u);
  sim.submit(request(2, 8, 500));
  EXPECT_TRUE(sim.heard()[2].failed.has_value());
}

TEST(Window, NobodyReadsWhatIsNotHisOwn) {
  uint64_t reused = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, true, /*steps_in_flight=*/1 + seed % 2);
    sim.let_results_be_late();
    const auto roll = [&](uint32_t least, uint64_t sides) { return least + static_cast<uint32_t>(sim.roll(sides)); };
    const auto limits = windowed(roll(0, 10), roll(2, 18), roll(9, 20));
    sim.join(limits);
    uint64_t next = 1;
    for (int i = 0; i < 500; ++i) {
      const uint64_t what = sim.roll(100);
      if (what < 10 && next <= 40) {
        SequenceRequest r = sim.related_request(next++);
        if (sim.roll(4) == 0 && r.pooling == Pooling::kNone) r.tokens_max += static_cast<int64_t>(sim.roll(100));
        sim.submit(std::move(r));
      } else if (what < 12 && next > 1) {
        const uint64_t id = 1 + sim.roll(next - 1);
        if (!sim.heard()[id].finished) sim.cancel(id);
      } else if (what < 13 && sim.has_plans()) {
        sim.break_one();
      } else if (what == 13 && i == 250) {
        sim.kill_one();
        sim.join(limits);
      } else if (sim.has_plans()) {
        sim.compute_one();
      }
      if (::testing::Test::HasFailure()) return;
    }
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.scheduler().waiting() + sim.scheduler().running(), 0u);
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
    reused += sim.scheduler().kv().reused_tokens;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(reused, 1000u);
}

}  // namespace
}  // namespace moestro::orchestrator

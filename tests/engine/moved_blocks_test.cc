// KV blocks that are moved to host memory and back on the engine: contents, what of them was written, what their tokens
// chose.

#include <gtest/gtest.h>

#include "tests/engine/moved_blocks.h"

namespace moestro::engine::testing {
namespace {

using ::testing::Test;

BenchOptions with_host_blocks(int64_t blocks, DType kv = DType::kF32) {
  return {.engine = {.model = "m",
                     .kv_tokens = 512,
                     .kv_host_tokens = blocks * kernels::kKvBlockTokens,
                     .kv_dtype = kv,
                     .poison_kv = true}};
}

TEST(MovedBlocks, ChangeNoBit) {
  for (const Fixture& fixture : fixtures())
    for (const DType kv : {DType::kF32, DType::kInt8}) {
      Bench still(fixture, with_host_blocks(0, kv));
      if (still.engine().limits().visible.window > 0) continue;  // refused beside a window
      const auto want = decode_with_moves(still, fixture, 0);
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        Bench moved(fixture, with_host_blocks(kHostBlocksOfMoves, kv));
        EXPECT_EQ(decode_with_moves(moved, fixture, seed), want)
            << fixture.name << ", " << dtype_name(kv) << ", seed " << seed;
      }
    }
}

class OneSequence : public Test {
 protected:
  OneSequence() : bench_(any_fixture(), with_host_blocks(2)), ids_(any_fixture().prompts("f32").at(2).ids) {
    bench_.add(1, ids_);
    EXPECT_TRUE(bench_.run()->sequences[0].status.is_ok());
  }
  /// What the next step says is wrong.
  Status next() {
    bench_.add(1, {1});
    const auto outcome = bench_.run();
    return outcome.is_ok() ? outcome->sequences[0].status : outcome.status();
  }
  Bench bench_;
  std::vector<TokenId> ids_;
};

TEST_F(OneSequence, IsMovedWhateverBecomesOfThePlan) {
  const uint32_t block = bench_.table(1)[0];
  bench_.move_out(1, 0, 1);
  bench_.plan().model = "another";
  bench_.add(2, {1});
  EXPECT_FALSE(bench_.run().is_ok());
  bench_.plan().model = "m";
  bench_.bring_back(1, 0, 1, 5);
  EXPECT_NE(bench_.table(1)[0], block);
  EXPECT_TRUE(next().is_ok());
}

TEST_F(OneSequence, WhatWasNotWrittenIsNotThereAfterAMove) {
  bench_.bring_back(1, 0, 0, 0);  // nobody has moved anything to it
  EXPECT_NE(next().message().find("positions that this cache does not hold"), std::string::npos);
}

TEST_F(OneSequence, AfterACopyThatCannotBeMadeNothingIsBelieved) {
  const auto blocks = static_cast<uint32_t>(bench_.engine().limits().kv_blocks);
  bench_.plan().kv_copies = {{0, blocks + 2}};
  EXPECT_NE(next().message().find("to " + std::to_string(blocks + 2) + ", of " + std::to_string(blocks) +
                                  " and 2 in host memory"),
            std::string::npos);
  EXPECT_NE(next().message().find("prefill the sequence again"), std::string::npos);
}

TEST_F(OneSequence, NothingIsCopiedWithinHostMemory) {
  const auto blocks = static_cast<uint32_t>(bench_.engine().limits().kv_blocks);
  bench_.plan().kv_copies = {{blocks, blocks + 1}};
  EXPECT_FALSE(next().is_ok());
}

TEST(HostBlocks, AreRefusedBesideAWindow) {
  auto source = store::ResidentSource::open(packed(any_fixture(), DType::kF32, DType::kF32));
  ASSERT_TRUE(source.is_ok());
  const auto ops = kernels::make_cpu_ops({.threads = 1, .deterministic = true, .isa = kernels::best_isa()});
  const SteadyClock clock;
  EngineOptions options = with_host_blocks(4).engine;
  options.visible = {.sinks = 4, .window = 32};
  const auto engine = Engine::create(options, **source, *ops, clock);
  ASSERT_FALSE(engine.is_ok());
  EXPECT_NE(engine.status().message().find("--kv-host-tokens"), std::string::npos) << engine.status().message();
  options.visible = {};
  options.kv_host_tokens = int64_t{1} << 40;
  EXPECT_NE(Engine::create(options, **source, *ops, clock).status().message().find("--kv-host-tokens"),
            std::string::npos);
}

}  // namespace
}  // namespace moestro::engine::testing

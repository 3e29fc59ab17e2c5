// Equal prefixes are computed once, and nobody reads what is not his own.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

std::vector<TokenId> counting(size_t n, TokenId from = 1) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

SequenceRequest request_of(uint64_t id, std::vector<TokenId> prompt, int64_t tokens = 1) {
  SequenceRequest r = request(id, 1, tokens);
  r.prompt = std::move(prompt);
  return r;
}

WorkerLimits worker(uint32_t blocks, uint32_t host_blocks = 0) {
  return {.kv_blocks = blocks,
          .kv_block_tokens = 4,
          .context_max = 110,
          .step_tokens_max = 64,
          .step_sequences_max = 8,
          .kv_host_blocks = host_blocks};
}

/// What may happen to a cluster, as the seed wills.
void live(Simulation& sim, uint32_t blocks_max, uint32_t host_blocks, uint32_t state_slots = 0) {
  uint64_t next = 1, deaths = 0;
  const auto join = [&] {
    WorkerLimits limits = worker(static_cast<uint32_t>(28 + sim.roll(blocks_max - 27)), host_blocks);
    limits.state_slots = state_slots;
    limits.state_interval = state_slots > 0 ? static_cast<uint32_t>(4 + 4 * sim.roll(8)) : 0;
    sim.join(limits);
  };
  for (int i = 0; i < 500; ++i) {
    const uint64_t what = sim.roll(1000);
    if (what < 150 && next <= 60) {
      sim.submit(sim.related_request(next++));
    } else if (what < 180 && sim.workers() < 3) {
      join();
    } else if (what < 190 && sim.workers() > 0 && deaths < 2) {
      sim.kill_one();
      ++deaths;
    } else if (what < 200 && sim.has_plans()) {
      sim.break_one();
    } else if (what < 220 && next > 1) {
      const uint64_t id = 1 + sim.roll(next - 1);
      if (!sim.heard()[id].finished) sim.cancel(id);
    } else if (sim.has_plans()) {
      sim.compute_one();
    }
    if (::testing::Test::HasFailure()) return;
  }
  if (sim.workers() == 0) join();
  sim.finish_all();
}

TEST(PrefixReuse, NobodyReadsWhatIsNotHisOwn) {
  constexpr uint32_t kHostBlocks[] = {0, 200, 7};  // none, for all that was ever there, for less than a sequence
  uint64_t reused = 0, computed = 0, moved_out = 0, moved_in = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, true, /*steps_in_flight=*/1 + seed / 2 % 2);
    sim.let_results_be_late();
    live(sim, 28 + 40 * (seed % 2),
         kHostBlocks[seed % 3]);  // every other one with hardly more room than one sequence needs
    sim.expect_right_answers();
    EXPECT_EQ(sim.scheduler().waiting() + sim.scheduler().running(), 0u);
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
    reused += sim.scheduler().kv().reused_tokens;
    moved_out += sim.scheduler().kv().moved_out_tokens;
    moved_in += sim.scheduler().kv().moved_in_tokens;
    computed += sim.computed_tokens();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(reused, computed / 4) << "hardly anything was shared: the simulation shows nothing";
  EXPECT_GT(moved_in, moved_out / 20)
      << "hardly anything came back from host memory: the simulation shows nothing of it";
  EXPECT_GT(moved_out, reused / 10);
}

WorkerLimits with_states(uint32_t blocks, uint32_t slots, uint32_t interval = 16) {
  WorkerLimits limits = worker(blocks);
  limits.state_slots = slots;
  limits.state_interval = interval;
  return limits;
}

TEST(PrefixReuse, NobodyGoesOnFromAnotherState) {
  uint64_t reused = 0, computed = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed, 24, true, /*steps_in_flight=*/1 + seed / 4 % 2);
    sim.let_results_be_late();
    // From one slot, which nobody can share, to as many as there are prefixes.
    constexpr uint32_t kSlots[] = {1, 3, 12, 200};
    live(sim, 28 + 40 * (seed / 8 % 2), seed % 3 == 0 ? 200 : 0, kSlots[seed % 4]);
    sim.expect_right_answers();
    EXPECT_EQ(sim.scheduler().waiting() + sim.scheduler().running(), 0u);
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
    reused += sim.scheduler().kv().reused_tokens;
    computed += sim.computed_tokens();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(reused, computed / 15) << "of prompts alone: hardly anything was shared: the simulation shows nothing";
}

TEST(PrefixReuse, AConversationGoesOnFromTheLastBlocksState) {
  Simulation sim(1, /*step_tokens=*/16);
  sim.join(with_states(60, 4, 64));
  sim.submit(request_of(1, counting(42), 12));
  sim.finish_all();
  std::vector<TokenId> next = counting(42);
  const auto& answer = sim.heard()[1].sampled;
  next.insert(next.end(), answer.begin(), answer.end());
  next.insert(next.end(), 5, 7);
  sim.submit(request_of(2, next));
  sim.finish_all();
  sim.expect_right_answers();
  const auto computed = static_cast<int64_t>(42 + answer.size()) - 1;
  EXPECT_EQ(sim.heard()[2].cached, computed / 4 * 4) << "the last token that was sampled was not computed";
  sim.submit(request_of(3, counting(42)));
  sim.finish_all();
  EXPECT_EQ(sim.heard()[3].cached, 40) << "the prompt's own last block";
}

TEST(PrefixReuse, ALongerAnswerToTheSamePromptLeavesTheStateThatAnotherKept) {
  Simulation sim(1, /*step_tokens=*/16);
  sim.join(with_states(80, 8, 64));
  sim.submit(request_of(1, counting(42), 12));
  sim.finish_all();
  sim.submit(request_of(2, counting(42), 24));
  sim.finish_all();
  std::vector<TokenId> next = counting(42);
  const auto& answer = sim.heard()[1].sampled;
  const auto& longer = sim.heard()[2].sampled;
  ASSERT_EQ(answer.size(), 12u);
  ASSERT_TRUE(std::ranges::equal(answer, std::span(longer).first(12))) << "the second goes on where the first ended";
  next.insert(next.end(), answer.begin(), answer.end());
  next.insert(next.end(), 5, 7);
  sim.submit(request_of(3, next));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[3].cached, 52) << "53 were computed: the last that was sampled was not";
}

TEST(PrefixReuse, StatesOfALongPromptAreKeptAtItsIntervals) {
  Simulation sim(1, /*step_tokens=*/64);
  sim.join(with_states(100, 20, 12));
  sim.submit(request_of(1, counting(50)));
  sim.finish_all();
  EXPECT_EQ(sim.scheduler().kv().state_slots, 20u);
  EXPECT_EQ(sim.scheduler().kv().states_held, 0u);
  EXPECT_EQ(sim.scheduler().kv().states_cached, 4u) << "after 12, 24, 36 and 48 tokens";
  EXPECT_EQ(sim.scheduler().kv().states_kept, 4u);
  EXPECT_EQ(sim.scheduler().kv().states_restored, 0u);
  std::vector<TokenId> other = counting(50);
  for (size_t i = 31; i < 50; ++i) other[i] = 90;
  sim.submit(request_of(2, other));
  sim.finish_all();
  EXPECT_EQ(sim.heard()[2].cached, 24) << "28 tokens have blocks, 24 a state";
  for (size_t i = 29; i < 50; ++i) other[i] = 91;
  sim.submit(request_of(3, other));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[3].cached, 28) << "the second kept the state where it branched off";
  EXPECT_EQ(sim.scheduler().kv().states_restored, 2u);
}

TEST(PrefixReuse, RunningSequencesNeedASlotEach) {
  Simulation sim(1);
  sim.join(with_states(100, 2));
  for (uint64_t id = 1; id <= 5; ++id) sim.submit(request_of(id, counting(3, static_cast<TokenId>(3 * id)), 4));
  EXPECT_EQ(sim.scheduler().places(), 2u);
  EXPECT_EQ(sim.scheduler().running(), 2u);
  EXPECT_EQ(sim.scheduler().waiting(), 3u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(PrefixReuse, TheSecondOfTwoEqualPromptsComputesItsLastTokensOnly) {
  Simulation sim(1, /*step_tokens=*/64);
  sim.join(worker(60));
  for (uint64_t id = 1; id <= 4; ++id) sim.submit(request_of(id, counting(41), 3));
  sim.finish_all();
  sim.expect_right_answers();
  // 41 tokens once, the last of them by each; two of the three sampled ones are computed on.
  EXPECT_EQ(sim.computed_tokens(), 41u + 3 * 1 + 4 * 2);
  EXPECT_EQ(sim.heard()[1].cached, 0);
  for (uint64_t id = 2; id <= 4; ++id) EXPECT_EQ(sim.heard()[id].cached, 40);
}

TEST(PrefixReuse, TheLastTokenOfAPromptIsAlwaysComputed) {
  Simulation sim(1);
  sim.join(worker(60));
  sim.submit(request_of(1, counting(40)));
  sim.finish_all();
  sim.submit(request_of(2, counting(40)));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[2].cached, 36) << "the tenth block has the last token";
}

TEST(PrefixReuse, AConversationGoesOnBehindItsAnswer) {
  Simulation sim(1);
  sim.join(worker(60));
  sim.submit(request_of(1, counting(10), 20));
  sim.finish_all();
  std::vector<TokenId> next = counting(10);
  const auto& answer = sim.heard()[1].sampled;
  next.insert(next.end(), answer.begin(), answer.end());
  next.push_back(7);
  sim.submit(request_of(2, next));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[2].cached, 28) << "29 were computed: the last that was sampled was not";
}

TEST(PrefixReuse, ASequenceThatWasSentBackFindsItsOwnBlocks) {
  Simulation sim(1, /*step_tokens=*/64);
  sim.join(worker(18));
  sim.submit(request_of(1, counting(20), 36));
  sim.submit(request_of(2, counting(20, 50), 36));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_GT(sim.scheduler().preemptions(), 0u) << "both do not fit: the second was sent back";
  EXPECT_EQ(sim.heard()[2].cached, 0) << "what it had computed itself is not reported as found";
  EXPECT_EQ(sim.scheduler().kv().reused_tokens, 0u) << "nor counted for all requests";
}

TEST(PrefixReuse, ScoredPromptsAreComputedAndLeaveTheirBlocks) {
  Simulation sim(1);
  sim.join(worker(60));
  for (uint64_t id = 1; id <= 3; ++id) {
    SequenceRequest r = request_of(id, counting(21));
    r.score_top = id < 3 ? 0 : -1;
    sim.submit(std::move(r));
    sim.finish_all();
  }
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[2].cached, 0);
  EXPECT_EQ(sim.heard()[3].cached, 20);
}

TEST(PrefixReuse, DomainsShareNothing) {
  Simulation sim(1);
  sim.join(worker(60));
  for (uint64_t id = 1; id <= 3; ++id) {
    SequenceRequest r = request_of(id, counting(21));
    r.prefix_domain = id == 2 ? "other" : "one";
    sim.submit(std::move(r));
    sim.finish_all();
  }
  EXPECT_EQ(sim.heard()[2].cached, 0);
  EXPECT_EQ(sim.heard()[3].cached, 20);
}

TEST(PrefixReuse, CanBeTurnedOff) {
  Simulation sim(1, 24, /*prefix_cache=*/false);
  sim.join(worker(60));
  for (uint64_t id = 1; id <= 2; ++id) {
    sim.submit(request_of(id, counting(21)));
    sim.finish_all();
  }
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[2].cached, 0);
  EXPECT_EQ(sim.scheduler().kv().cached, 0u);
}

TEST(PrefixReuse, ADeadWorkersBlocksAreGone) {
  Simulation sim(1);
  sim.join(worker(60));
  sim.submit(request_of(1, counting(21)));
  sim.finish_all();
  EXPECT_EQ(sim.scheduler().kv().cached, 5u);
  sim.kill_one();
  EXPECT_EQ(sim.scheduler().kv().cached, 0u);
  sim.join(worker(60));
  sim.submit(request_of(2, counting(21)));
  sim.finish_all();
  EXPECT_EQ(sim.heard()[2].cached, 0);
  sim.expect_right_answers();
}

/// Where a prompt of 40 tokens that the first worker has, and one more, goes when that one has `more` tokens to
/// compute; the other is idle.
WorkerId worker_beside_a_load_of(size_t more) {
  Simulation sim(1, /*step_tokens=*/8);
  sim.join(worker(60));
  sim.submit(request_of(1, counting(41)));
  sim.finish_all();
  sim.join(worker(60));
  std::vector<TokenId> longer = counting(40);
  for (const TokenId t : counting(more, 50)) longer.push_back(t);
  sim.submit(request_of(2, longer));
  EXPECT_EQ(sim.plans().at(0).worker, WorkerId{1}) << "both are idle: where its prefix is";
  sim.submit(request_of(3, counting(41)));
  const WorkerId chosen{sim.plans().size() == 2 ? 2u : 1u};
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[3].cached, chosen == WorkerId{1} ? 40 : 0);
  return chosen;
}

TEST(PrefixReuse, ASequenceGoesWhereItsPrefixIsUnlessThatWorkerIsBehindByMore) {
  EXPECT_EQ(worker_beside_a_load_of(30), WorkerId{1});
  EXPECT_EQ(worker_beside_a_load_of(50), WorkerId{2});
}

TEST(PrefixReuse, TheEndOfAChainIsTakenBeforeItsBegin) {
  Simulation sim(1, /*step_tokens=*/64);
  sim.join(worker(12));
  sim.submit(request_of(1, counting(33)));  // 8 blocks stay
  sim.finish_all();
  sim.submit(request_of(2, counting(27, 50)));  // 7 blocks: 4 are free, 3 are taken; 6 stay
  sim.finish_all();
  sim.submit(request_of(3, counting(33)));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.heard()[3].cached, 20) << "the first 5 blocks of 8";
}

TEST(PrefixReuse, WhatMadeRoomComesBackFromHostMemory) {
  for (const uint32_t host_blocks : {0u, 20u}) {
    Simulation sim(1, /*step_tokens=*/64);
    sim.join(worker(12, host_blocks));
    sim.submit(request_of(1, counting(33)));
    sim.finish_all();
    sim.submit(request_of(2, counting(33, 50)));
    sim.finish_all();
    const KvFigures before = sim.scheduler().kv();
    EXPECT_EQ(before.moved_out_tokens, host_blocks > 0 ? 20u : 0u) << "9 blocks of 12 were wanted, 4 were free";
    EXPECT_EQ(before.moved_in_tokens, 0u);
    sim.submit(request_of(3, counting(33)));
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.heard()[3].cached, host_blocks > 0 ? 32 : 12) << "3 of its 8 blocks were still on the device";
    EXPECT_EQ(sim.scheduler().kv().moved_in_tokens, host_blocks > 0 ? 20u : 0u);
    EXPECT_EQ(sim.scheduler().kv().host_blocks, host_blocks);
  }
}

TEST(PrefixReuse, ACopyStaysInHostMemoryAndIsNotMadeAgain) {
  Simulation sim(1, /*step_tokens=*/64);
  sim.join(worker(9, 40));
  for (uint64_t id = 1; id <= 6; ++id) {  // two texts in turn, of which the device holds one
    sim.submit(request_of(id, counting(33, id % 2 == 0 ? 50 : 1)));
    sim.finish_all();
    if (id > 2) EXPECT_EQ(sim.heard()[id].cached, 32);
  }
  sim.expect_right_answers();
  EXPECT_EQ(sim.scheduler().kv().moved_out_tokens, 64u) << "each text once";
  EXPECT_EQ(sim.scheduler().kv().moved_in_tokens, 128u);
  EXPECT_EQ(sim.scheduler().kv().host_used, 16u);
}

TEST(PrefixReuse, WhoWasSentBackGoesOnFromHostMemory) {
  uint64_t computed[2];
  for (const uint32_t host : {0u, 1u}) {
    Simulation sim(1, /*step_tokens=*/64);
    sim.join(worker(18, 60 * host));
    sim.submit(request_of(1, counting(20), 50));
    sim.submit(request_of(2, counting(20, 50), 50));
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_GT(sim.scheduler().preemptions(), 0u);
    computed[host] = sim.computed_tokens();
  }
  EXPECT_LT(computed[1], 2 * 69 + 8)
      << "but for the ends of the blocks that were not full, every token was computed once";
  EXPECT_GT(computed[0], computed[1] + 10);
}

TEST(PrefixKey, DependsOnTheSecretTheDomainAndAllTokens) {
  const PrefixSecret secret = random_prefix_secret(), other = random_prefix_secret();
  EXPECT_NE(secret, other);
  PrefixHasher hasher(secret), stranger(other);
  const std::vector<TokenId> a{1, 2, 3, 4}, b{1, 2, 3, 5};
  const PrefixKey root = hasher.root("");
  EXPECT_EQ(hasher.next(root, a), hasher.next(root, a));
  EXPECT_FALSE(hasher.next(root, a) == stranger.next(root, a)) << "keys mean nothing to another process";
  EXPECT_FALSE(root == hasher.root("x"));
  EXPECT_FALSE(hasher.next(root, a) == hasher.next(root, b));
  EXPECT_FALSE(hasher.next(hasher.next(root, a), b) == hasher.next(hasher.next(root, b), b));
}

TEST(KvBlocks, TwoContentsOfOneKeyAreToldApart) {
  KvBlocks blocks(4, 2);
  const std::vector<TokenId> one{1, 2}, other{3, 4};
  const PrefixLink link{{1, 1}, {0, 0}, one};
  const uint32_t a = *blocks.take(), b = *blocks.take();
  blocks.publish(a, link);
  EXPECT_EQ(blocks.find(link), a);
  EXPECT_EQ(blocks.find({{1, 1}, {0, 0}, other}), std::nullopt);
  EXPECT_EQ(blocks.find({{1, 1}, {9, 0}, one}), std::nullopt) << "behind another prefix";
  blocks.publish(b, {{1, 1}, {0, 0}, other});  // stays private
  EXPECT_TRUE(blocks.writable(b));
  EXPECT_FALSE(blocks.writable(a));
  blocks.give_back(b);
  blocks.give_back(a);
  EXPECT_EQ(blocks.cached(), 1u);
  EXPECT_TRUE(blocks.consistent());
}

TEST(KvBlocks, WhatWasGivenBackLongestAgoIsTakenFirst) {
  KvBlocks blocks(3, 1);
  const std::vector<TokenId> tokens{1, 2, 3};
  const auto link = [&](uint64_t i) { return PrefixLink{{i, 0}, {}, std::span(tokens).subspan(i, 1)}; };
  for (uint64_t i = 0; i < 3; ++i) {
    const uint32_t b = *blocks.take();
    blocks.publish(b, link(i));
    blocks.give_back(b);
  }
  const uint32_t first = *blocks.find(link(0));
  blocks.share(first);  // used again: now the youngest
  blocks.give_back(first);
  ASSERT_TRUE(blocks.take().has_value());
  EXPECT_FALSE(blocks.find(link(1)).has_value());
  EXPECT_TRUE(blocks.find(link(0)).has_value());
  ASSERT_TRUE(blocks.take().has_value());
  EXPECT_FALSE(blocks.find(link(2)).has_value());
  ASSERT_TRUE(blocks.take().has_value());
  EXPECT_FALSE(blocks.take().has_value()) << "all are held";
  EXPECT_TRUE(blocks.consistent());
}

TEST(KvBlocks, WhatIsHeldInHostMemoryDoesNotMakeRoom) {
  KvBlocks blocks(2, 1, 2);
  const std::vector<TokenId> tokens{0, 1, 2, 3};
  const auto link = [&](uint64_t i) { return PrefixLink{{i, 0}, {}, std::span(tokens).subspan(i, 1)}; };
  for (uint64_t i = 0; i < 4; ++i) {
    const uint32_t b = *blocks.take();
    blocks.publish(b, link(i));
    blocks.give_back(b);
  }
  EXPECT_EQ(blocks.take_copies(), (std::vector<KvCopy>{{0, 2}, {1, 3}}));
  const uint32_t first = *blocks.find_on_host(link(0)), second = *blocks.find_on_host(link(1));
  blocks.hold_on_host(first);
  blocks.hold_on_host(second);
  const uint32_t a = *blocks.take();
  EXPECT_TRUE(blocks.take_copies().empty()) << "there is no room for what went";
  blocks.bring_in(first, a, link(0));
  const uint32_t b = *blocks.take();
  EXPECT_FALSE(blocks.find_on_host(link(0)).has_value()) << "it was let go of, and used before what goes now";
  blocks.bring_in(second, b, link(1));
  EXPECT_EQ(blocks.take_copies(), (std::vector<KvCopy>{{2, 0}, {1, 2}, {3, 1}}));
  EXPECT_EQ(blocks.find(link(0)), a);
  EXPECT_EQ(blocks.find(link(1)), b);
  EXPECT_TRUE(blocks.find_on_host(link(3)).has_value());
  EXPECT_FALSE(blocks.writable(a));
  EXPECT_TRUE(blocks.consistent());
}

}  // namespace
}  // namespace moestro::orchestrator

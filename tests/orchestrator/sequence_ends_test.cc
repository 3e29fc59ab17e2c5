// Tokens that end a sequence, and rules that are known a step ahead.

#include <gtest/gtest.h>

#include <map>

#include "orchestrator/scheduler/token_rules.h"
#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

constexpr WorkerLimits kRoomy{
    .kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 8};

/// A request whose third token, and none before, is a stop token.
SequenceRequest stops_at_third(uint64_t id) {
  SequenceRequest r = request(id, 3, 30);
  const std::vector<TokenId> said = expected_output(r);
  EXPECT_TRUE(said[2] != said[0] && said[2] != said[1]);
  r.stop_ids = {1000, said[2]};
  return r;
}

TEST(SequenceEnds, AStopTokenEndsItLikeTheEndToken) {
  for (const size_t steps : {1, 2}) {
    Simulation sim(1, 24, /*prefix_cache=*/true, steps);
    sim.join(kRoomy);
    const SequenceRequest r = stops_at_third(1);
    sim.submit(r);
    sim.finish_all();
    const std::vector<TokenId> all = expected_output(r);
    EXPECT_EQ(sim.heard()[1].sampled, std::vector<TokenId>(all.begin(), all.begin() + 3));
    EXPECT_EQ(sim.heard()[1].finished, FinishReason::kStop);
    EXPECT_EQ(sim.scheduler().kv().held, 0u);
  }
}

TEST(SequenceEnds, TheWorkerKnowsThemWhereItIsAhead) {
  for (const bool ignore_eos : {true, false}) {
    Simulation sim(1, 24, /*prefix_cache=*/true, /*steps_in_flight=*/2);
    sim.join(kRoomy);
    SequenceRequest r = stops_at_third(1);
    r.ignore_eos = ignore_eos;
    sim.submit(r);
    ASSERT_EQ(sim.plans().size(), 2u);
    std::vector<TokenId> ends = r.stop_ids;
    if (!ignore_eos) ends.push_back(kEos);
    EXPECT_EQ(sim.plans()[1].plan.sequences.at(0).ends, ends);
    sim.finish_all();
  }
}

std::shared_ptr<TokenConstraint> rules(int64_t min_tokens, std::vector<std::vector<TokenId>> bad_words = {}) {
  TokenRulesOptions options{.vocab = 97, .ends = {kEos}, .min_tokens = min_tokens, .bad_words = std::move(bad_words)};
  return std::make_shared<RuledConstraint>(std::make_shared<const TokenRules>(options), nullptr);
}

bool may_end(const PlannedSequence& s) { return !s.allowed || ((*s.allowed)[0] & 1u << kEos) != 0; }

TEST(SequenceEnds, TheLeastNumberOfTokensIsKeptAheadToo) {
  Simulation sim(1, 24, /*prefix_cache=*/true, /*steps_in_flight=*/2);
  sim.join(kRoomy);
  SequenceRequest r = request(1, 3, 9);
  r.constraint = rules(4);
  sim.submit(r);
  ASSERT_EQ(sim.plans().size(), 2u) << "the rules hang on no token: two steps are in flight";
  std::map<int64_t, bool> ends;  // by the token that a plan samples
  while (sim.has_plans()) {
    for (const SendPlan& p : sim.plans()) {
      const PlannedSequence& s = p.plan.sequences.at(0);
      ends[s.first_position + static_cast<int64_t>(s.tokens.size()) - 3] = may_end(s);
    }
    sim.compute_one();
  }
  ASSERT_EQ(ends.size(), 9u);
  for (const auto& [token, may] : ends) EXPECT_EQ(may, token >= 4) << token;
  sim.expect_right_answers();
}

TEST(SequenceEnds, RulesOutliveWorkersAndPlansThatFail) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Simulation sim(seed, 24, /*prefix_cache=*/true, /*steps_in_flight=*/2);
    sim.join(small_worker());
    for (uint64_t id = 1; id <= 6; ++id) {
      SequenceRequest r = request(id, 3 + id, 12);
      r.constraint = rules(5);
      sim.submit(r);
    }
    for (int i = 0; i < 8 && sim.has_plans(); ++i) sim.roll(4) == 0 ? sim.break_one() : sim.compute_one();
    sim.kill_one();
    sim.join(small_worker());
    while (sim.has_plans()) {
      for (const SendPlan& p : sim.plans())
        for (const PlannedSequence& s : p.plan.sequences) {
          const int64_t prompt = 3 + static_cast<int64_t>(s.id.value);
          const int64_t token = s.first_position + static_cast<int64_t>(s.tokens.size()) - prompt;
          EXPECT_TRUE(!s.sample || may_end(s) == (token >= 5)) << "sequence " << s.id.value << ", token " << token;
        }
      sim.compute_one();
    }
    sim.expect_right_answers();
  }
}

TEST(SequenceEnds, WordsOfSeveralTokensWaitForTheTokenBefore) {
  Simulation sim(1, 24, /*prefix_cache=*/true, /*steps_in_flight=*/2);
  sim.join(kRoomy);
  SequenceRequest r = request(1, 3, 4);
  r.constraint = rules(0, {{90, 91}});
  sim.submit(r);
  EXPECT_EQ(sim.plans().size(), 1u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(SequenceEnds, PriorityOrdersWhatWaitsOfOneFlow) {
  Simulation sim(1, /*step_tokens=*/40, /*prefix_cache=*/true, /*steps_in_flight=*/1);
  sim.join({.kv_blocks = 30, .kv_block_tokens = 4, .context_max = 110, .step_tokens_max = 40, .step_sequences_max = 1});
  sim.submit(request(1, 3, 3));  // runs
  for (const auto& [id, priority] : {std::pair(2, 5), {3, 0}, {4, -1}, {5, 0}}) {
    SequenceRequest r = request(static_cast<uint64_t>(id), 3, 1);
    r.priority = priority;
    sim.submit(r);
  }
  std::vector<uint64_t> order;
  while (sim.has_plans()) {
    const uint64_t id = sim.plans().at(0).plan.sequences.at(0).id.value;
    if (order.empty() || order.back() != id) order.push_back(id);
    sim.compute_one();
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 4, 3, 5, 2}));
}

}  // namespace
}  // namespace moestro::orchestrator

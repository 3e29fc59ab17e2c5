// The next plan is sent before the result of the one before it, and nobody can tell from the answers.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/orchestrator/scheduler_simulation.h"

namespace moestro::orchestrator {
namespace {

constexpr WorkerLimits kRoomyAhead{
    .kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 8};

Simulation ahead(uint64_t seed = 1, int64_t step_tokens = 24) {
  return Simulation(seed, step_tokens, /*prefix_cache=*/true, /*steps_in_flight=*/2);
}

/// Whose second sampled token ends it.
SequenceRequest ends_soon(uint64_t id, int64_t tokens) {
  SequenceRequest r = request(id, 1, tokens);
  r.ignore_eos = false;
  for (TokenId a = 1; a < 2000; ++a) {
    r.prompt = {a};
    if (expected_output(r).size() == 2) return r;
  }
  ADD_FAILURE() << "no text ends so soon";
  return r;
}

TEST(StepsInFlight, TheNextPlanIsSentBeforeTheResult) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  sim.submit(request(1, 3, 5));
  ASSERT_EQ(sim.plans().size(), 2u);
  const Plan& first = sim.plans()[0].plan;
  const Plan& second = sim.plans()[1].plan;
  EXPECT_EQ(first.parent, PlanId());
  EXPECT_EQ(second.parent, first.id);
  ASSERT_EQ(second.sequences.size(), 1u);
  EXPECT_EQ(second.sequences[0].tokens, std::vector<TokenId>{kSampledByParent});
  EXPECT_EQ(second.sequences[0].first_position, 3);
  EXPECT_TRUE(second.sequences[0].sample);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(StepsInFlight, APromptGoesOnBehindItsChunk) {
  Simulation sim = ahead(1, /*step_tokens=*/10);
  sim.join(kRoomyAhead);
  sim.submit(request(1, 24, 2));
  ASSERT_EQ(sim.plans().size(), 2u);
  EXPECT_EQ(sim.plans()[1].plan.sequences.at(0).first_position, 10);
  EXPECT_EQ(sim.plans()[1].plan.sequences[0].tokens.size(), 10u);
  EXPECT_FALSE(sim.plans()[1].plan.sequences[0].sample);
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.computed_tokens(), 25u);
}

TEST(StepsInFlight, NothingIsComputedBeyondAnEndThatIsKnown) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  sim.submit(request(1, 3, 2));
  sim.submit(request(2, 3, 1));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_EQ(sim.computed_tokens(), 3u + 1 + 3);
  SequenceRequest scored = request(3, 5, 0);
  scored.score_top = 0;
  sim.submit(scored);
  EXPECT_EQ(sim.plans().size(), 1u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(StepsInFlight, WhatWasSentBehindAnEndIsDropped) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  sim.submit(ends_soon(1, 30));
  sim.compute_one();
  while (!sim.heard()[1].finished) sim.compute_one();
  EXPECT_EQ(sim.heard()[1].sampled.size(), 2u);
  EXPECT_EQ(sim.scheduler().kv().held, 0u) << "its blocks are free while its overshoot is under way";
  ASSERT_EQ(sim.plans().size(), 1u);
  EXPECT_EQ(sim.plans()[0].plan.sequences.at(0).ends, std::vector<TokenId>{kEos})
      << "so that the worker need not compute it";
  const auto counted = [&](uint64_t id) {
    PlanOutcome outcome;
    outcome.plan = sim.plans()[0].plan.id;
    outcome.sequences.push_back({SequenceId{id}, {}, {}, Status::ok(), {{MoeLayerId{0}, ExpertId{1}, 1}}});
    sim.scheduler().leave_out_dropped(WorkerId{1}, outcome);
    return outcome.sequences[0].activations.size();
  };
  EXPECT_EQ(counted(1), 0u) << "what it counted is nobody's";
  sim.submit(request(2, 9, 3));  // takes the same blocks
  sim.compute_one();
  EXPECT_EQ(counted(2), 1u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(StepsInFlight, ACancelledSequenceGivesItsBlocksBackAtOnce) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  sim.submit(request(1, 30, 20));
  EXPECT_EQ(sim.plans().size(), 2u);
  sim.cancel(1);
  EXPECT_EQ(sim.scheduler().kv().held, 0u);
  sim.submit(request(2, 30, 4));
  sim.finish_all();
  sim.expect_right_answers();
  EXPECT_TRUE(sim.heard()[1].sampled.empty());
}

TEST(StepsInFlight, AWorkerHearsHowMuchOfASequenceStands) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  sim.submit(request(1, 3, 50));
  for (int i = 0; i < 6; ++i) sim.compute_one();
  EXPECT_EQ(sim.heard()[1].sampled.size(), 6u);
  sim.heard()[1].cancelled = true;
  const auto actions =
      sim.scheduler().step(Cancelled{SequenceId{1}, /*sampled=*/4});  // the text of four tokens ended it
  EXPECT_TRUE(actions.empty()) << "two plans are under way";
  EXPECT_FALSE(sim.all_is_released());
  sim.submit(request(2, 3, 2));
  sim.compute_one();
  ASSERT_EQ(sim.plans().size(), 2u);
  EXPECT_EQ(sim.plans()[1].plan.released, (std::vector<ReleasedSequence>{{SequenceId{1}, 3 + 4 - 1}}));
  sim.finish_all();
  EXPECT_TRUE(sim.all_is_released()) << "the last without a plan";
}

/// Lets a sequence say what is in it, once.
class Script final : public TokenConstraint {
 public:
  explicit Script(std::vector<TokenId> tokens) : tokens_(std::move(tokens)) {}
  Result<std::optional<Mask>> allowed_within(int64_t&) override {
    auto mask = std::make_shared<TokenMask>(4, 0u);
    const auto id = static_cast<size_t>(tokens_.at(said_));
    (*mask)[id / 32] |= 1u << (id % 32);
    return std::optional<Mask>(std::move(mask));
  }
  bool accept(TokenId token) override { return said_ < tokens_.size() && tokens_[said_++] == token; }
  bool complete() const override { return said_ == tokens_.size(); }

 private:
  std::vector<TokenId> tokens_;
  size_t said_ = 0;
};

TEST(StepsInFlight, AGrammarsNextMaskIsWaitedForAndOthersGoOn) {
  Simulation sim = ahead(1, /*step_tokens=*/8);
  sim.join(kRoomyAhead);
  SequenceRequest r = request(1, 12, 6);
  r.ignore_eos = false;
  r.constraint = std::make_shared<Script>(expected_output(r));
  sim.submit(r);
  ASSERT_EQ(sim.plans().size(), 2u) << "chunks of its prompt are sent ahead";
  EXPECT_TRUE(sim.plans()[1].plan.sequences.at(0).allowed);
  sim.submit(request(2, 3, 6));
  while (sim.has_plans()) {
    for (const SendPlan& p : sim.plans())
      for (const PlannedSequence& s : p.plan.sequences)
        if (s.id.value == 1) EXPECT_NE(s.tokens.front(), kSampledByParent);
    sim.compute_one();
  }
  sim.expect_right_answers();
}

/// Lets a sequence say anything, after so much work for each token.
class Slow final : public TokenConstraint {
 public:
  explicit Slow(int64_t work) : work_(work), left_(work) {}
  Result<std::optional<Mask>> allowed_within(int64_t& work) override {
    const int64_t done = std::min(work, left_);
    work -= done, left_ -= done;
    if (left_ > 0) return std::optional<Mask>();
    return std::optional<Mask>(std::make_shared<TokenMask>(4, ~0u));
  }
  bool accept(TokenId) override { return left_ = work_, true; }
  bool complete() const override { return false; }

 private:
  const int64_t work_;
  int64_t left_;
};

TEST(StepsInFlight, AMaskThatIsMuchWorkIsMadeInPiecesAndNobodyWaitsForIt) {
  Simulation sim = ahead(1, /*step_tokens=*/8);
  sim.join(kRoomyAhead);
  SequenceRequest slow = request(1, 3, 4);
  slow.constraint = std::make_shared<Slow>(SchedulerOptions().mask_work * 5 / 2);
  sim.submit(slow);
  EXPECT_TRUE(sim.plans().empty());
  EXPECT_TRUE(sim.scheduler().masks_wait());
  sim.submit(request(2, 3, 2));
  ASSERT_FALSE(sim.plans().empty()) << "others go on";
  EXPECT_EQ(sim.plans()[0].plan.sequences.at(0).id.value, 2u);
  sim.finish_all();
  for (int ticks = 0; ticks < 100 && !sim.heard()[1].finished; ++ticks) {
    sim.feed(Tick{Nanos(ticks)});
    sim.finish_all();
  }
  EXPECT_FALSE(sim.scheduler().masks_wait());
  sim.expect_right_answers();
}

TEST(StepsInFlight, PenaltiesSeeWhatTheParentSampled) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  SequenceRequest r = request(1, 3, 5);
  r.sampling.presence_penalty = 1;
  sim.submit(r);
  ASSERT_EQ(sim.plans().size(), 2u);
  EXPECT_EQ(sim.plans()[1].plan.sequences.at(0).history, std::vector<TokenId>{kSampledByParent});
  EXPECT_EQ(sim.plans()[1].plan.sequences[0].history_first, 3u);
  sim.finish_all();  // the worker compares its history with the text
  sim.expect_right_answers();
}

TEST(StepsInFlight, ADeadWorkersTwoPlansAreComputedAgain) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(request(id, 5 * id, 12));
  for (int i = 0; i < 4; ++i) sim.compute_one();
  EXPECT_EQ(sim.plans().size(), 2u);
  sim.kill_one();
  EXPECT_EQ(sim.scheduler().kv().held, 0u);
  sim.join(kRoomyAhead);
  sim.finish_all();
  sim.expect_right_answers();
}

PlanOutcome failure(PlanId plan) {
  PlanOutcome outcome;
  outcome.plan = plan;
  outcome.error = corrupt("expert 3 of layer 1 is bad");
  return outcome;
}

TEST(StepsInFlight, APlanThatFailsTakesTheOneBehindItAlongWithoutBlame) {
  Simulation sim = ahead(1, /*step_tokens=*/8);
  sim.join(kRoomyAhead);
  sim.submit(request(1, 8, 4));   // alone in the first plan
  sim.submit(request(2, 2, 4));   // joins in a later one
  ASSERT_EQ(sim.plans().size(), 2u);
  const PlanId first = sim.plans()[0].plan.id, second = sim.plans()[1].plan.id;
  sim.plans().clear();
  sim.feed(PlanDone{WorkerId{1}, failure(first)});
  EXPECT_TRUE(sim.heard()[1].failed.has_value()) << "nobody else can be at fault";
  EXPECT_TRUE(sim.plans().empty()) << "nothing is sent behind a plan that will fail";
  sim.feed(PlanDone{WorkerId{1}, failure(second)});
  EXPECT_FALSE(sim.heard()[2].failed.has_value());
  ASSERT_FALSE(sim.plans().empty());
  EXPECT_EQ(sim.plans()[0].plan.parent, PlanId());
  sim.heard()[1].cancelled = true;  // what became of it was seen
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(StepsInFlight, WhoRunsAloneDoesSoWithNothingBesideIt) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(request(id, 4, 6));
  for (int i = 0; i < 2; ++i) sim.compute_one();
  ASSERT_EQ(sim.plans().size(), 2u);
  const PlanId first = sim.plans()[0].plan.id, second = sim.plans()[1].plan.id;
  ASSERT_GT(sim.plans()[0].plan.sequences.size(), 1u);
  sim.plans().clear();
  sim.feed(PlanDone{WorkerId{1}, failure(first)});
  sim.feed(PlanDone{WorkerId{1}, failure(second)});
  int tried = 0;  // each by itself, and in between those that were
  for (; sim.plans().size() == 1; ++tried) {
    EXPECT_LE(sim.plans()[0].plan.sequences.size(), 2u);
    sim.compute_one();
  }
  EXPECT_EQ(sim.plans().size(), 2u) << "all were found innocent";
  EXPECT_GE(tried, 3);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(StepsInFlight, AnswersOutOfOrderAreNotTaken) {
  Simulation sim = ahead();
  sim.join(kRoomyAhead);
  for (uint64_t id = 1; id <= 2; ++id) sim.submit(request(id, 4, 6));
  sim.compute_one();
  ASSERT_EQ(sim.plans().size(), 2u);
  PlanOutcome early;
  early.plan = sim.plans()[1].plan.id;
  const auto& plan = sim.plans()[1].plan;
  for (const PlannedSequence& s : plan.sequences)
    early.sequences.push_back({s.id, {{7, {}}}, {}, Status::ok()});
  sim.plans().pop_back();
  sim.feed(PlanDone{WorkerId{1}, early});
  sim.feed(PlanDone{WorkerId{1}, early});  // and once more
  sim.finish_all();
  sim.expect_right_answers();
}

/// The same requests in both ways, with what may happen to a cluster; then every answer is what it must be, and they
/// are the same.
TEST(StepsInFlight, TokensAreTheSameWithAndWithout) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::map<uint64_t, std::vector<TokenId>> said[2];
    for (const size_t steps : {1, 2}) {
      Simulation sim(seed, 24, seed % 2 == 0, steps);
      sim.let_results_be_late();
      std::mt19937_64 random(seed);
      sim.join(small_worker());
      for (uint64_t id = 1; id <= 20; ++id) {
        SequenceRequest r = request(id, 1 + random() % 40, static_cast<int64_t>(random() % 30));
        r.prompt.back() = static_cast<TokenId>(1 + random() % 90);
        r.ignore_eos = random() % 2 == 0;
        if (random() % 3 == 0) r.sampling.frequency_penalty = 1;
        if (const bool constrained = random() % 4 == 0; constrained && r.tokens_max > 0) {
          r.ignore_eos = false;
          r.constraint = std::make_shared<Script>(expected_output(r));
        }
        if (random() % 4 == 0) r.background = true;
        if (r.tokens_max == 0) r.score_top = 0;
        sim.submit(r);
        for (auto n = random() % 4; n > 0 && sim.has_plans(); --n) sim.compute_one();
        if (id == 7 || id == 14) {
          sim.kill_one();
          sim.join(small_worker());
        }
      }
      sim.finish_all();
      sim.expect_right_answers();
      EXPECT_EQ(sim.scheduler().kv().held, 0u);
      EXPECT_TRUE(sim.all_is_released());
      for (const auto& [id, heard] : sim.heard()) said[steps - 1][id] = heard.sampled;
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(said[0], said[1]);
  }
}

}  // namespace
}  // namespace moestro::orchestrator

#include "orchestrator/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace moestro::orchestrator {
namespace {

constexpr TokenId kEos = 0;

/// What the simulated model says after `tokens`: a function of nothing else, as greedy decoding is.
TokenId next_token(const std::vector<TokenId>& tokens) {
  uint64_t h = 1469598103934665603ull;
  for (TokenId t : tokens) h = (h ^ static_cast<uint64_t>(t)) * 1099511628211ull;
  return static_cast<TokenId>((h >> 20) % 97);  // 0, the end token, now and then
}
float score_of(TokenId target, int64_t position) { return -0.01f * static_cast<float>(target) - static_cast<float>(position); }

std::vector<TokenId> expected_output(const SequenceRequest& r) {
  std::vector<TokenId> tokens = r.prompt;
  while (static_cast<int64_t>(tokens.size() - r.prompt.size()) < r.tokens_max) {
    tokens.push_back(next_token(tokens));
    if (tokens.back() == kEos && !r.ignore_eos) break;
  }
  return {tokens.begin() + static_cast<int64_t>(r.prompt.size()), tokens.end()};
}

/// A worker that keeps what a real one keeps: block tables and, per block, the tokens written to it.
class SimulatedWorker {
 public:
  SimulatedWorker(WorkerLimits limits) : limits_(limits), cache_(limits.kv_blocks * limits.kv_block_tokens, -1) {}

  /// Computes a plan and checks that it is one this worker can compute.
  PlanOutcome compute(const Plan& plan) {
    PlanOutcome outcome;
    outcome.plan = plan.id;
    for (SequenceId id : plan.released) tables_.erase(id.value);
    size_t tokens = 0;
    for (const PlannedSequence& s : plan.sequences) {
      auto& table = tables_[s.id.value];
      EXPECT_EQ(table.size() < s.blocks_first, false) << "a hole in the block table";
      table.resize(s.blocks_first);
      table.insert(table.end(), s.blocks.begin(), s.blocks.end());
      for (uint32_t b : s.blocks) EXPECT_LT(b, limits_.kv_blocks);
      tokens += s.tokens.size();
    }
    check_disjoint(plan);
    EXPECT_LE(tokens, limits_.step_tokens_max);
    EXPECT_LE(plan.sequences.size(), limits_.step_sequences_max);
    for (const PlannedSequence& s : plan.sequences) outcome.sequences.push_back(compute(s));
    return outcome;
  }

 private:
  void check_disjoint(const Plan& plan) {
    std::set<uint32_t> seen;
    for (const PlannedSequence& s : plan.sequences)
      for (uint32_t b : tables_[s.id.value]) EXPECT_TRUE(seen.insert(b).second) << "block " << b << " has two owners";
  }

  SequenceOutcome compute(const PlannedSequence& s) {
    SequenceOutcome out;
    out.id = s.id;
    const auto& table = tables_[s.id.value];
    const auto slot = [&](int64_t position) -> TokenId& {
      const auto block = static_cast<size_t>(position / limits_.kv_block_tokens);
      EXPECT_LT(block, table.size()) << "position " << position << " has no block";
      return cache_[table.at(block) * limits_.kv_block_tokens + static_cast<size_t>(position % limits_.kv_block_tokens)];
    };
    int64_t position = s.first_position;
    for (size_t i = 0; i < s.tokens.size(); ++i, ++position) {
      slot(position) = s.tokens[i];
      if (!s.score_targets.empty()) out.scores.push_back({score_of(s.score_targets[i], position), {}});
    }
    if (s.sample) {
      std::vector<TokenId> context;  // from the cache, so that a stale block shows
      for (int64_t p = 0; p < position; ++p) context.push_back(slot(p));
      out.sampled.push_back({next_token(context), {}});
    }
    return out;
  }

  WorkerLimits limits_;
  std::vector<TokenId> cache_;
  std::map<uint64_t, std::vector<uint32_t>> tables_;
};

struct Heard {
  SequenceRequest request;
  std::vector<TokenId> sampled;
  std::vector<float> scores;
  std::optional<FinishReason> finished;
  std::optional<Status> failed;
  bool cancelled = false;
};

/// Runs a scheduler against simulated workers with a seeded choice of what happens next.
class Simulation {
 public:
  explicit Simulation(uint64_t seed, int64_t step_tokens = 24) : random_(seed), scheduler_({step_tokens, {kEos}, 3}) {}

  uint64_t roll(uint64_t sides) { return random_() % sides; }

  void submit(SequenceRequest r) {
    heard_[r.id.value].request = r;
    feed(Submitted{std::move(r)});
  }
  SequenceRequest random_request(uint64_t id) {
    SequenceRequest r;
    r.id = SequenceId{id};
    for (uint64_t n = 1 + roll(60); n > 0; --n) r.prompt.push_back(static_cast<TokenId>(1 + roll(96)));
    r.tokens_max = static_cast<int64_t>(roll(40));
    r.score_top = r.tokens_max == 0 || roll(3) == 0 ? 0 : -1;
    r.ignore_eos = roll(2) == 0;
    return r;
  }
  void join(WorkerLimits limits) {
    const WorkerId id{next_worker_++};
    workers_.emplace(id, std::make_unique<SimulatedWorker>(limits));
    feed(WorkerJoined{id, limits});
  }
  void kill_one() {
    auto it = std::next(workers_.begin(), static_cast<int64_t>(roll(workers_.size())));
    const WorkerId id = it->first;
    workers_.erase(it);
    std::erase_if(plans_, [&](const SendPlan& p) { return p.worker == id; });
    feed(WorkerLost{id});
  }
  void cancel(uint64_t id) {
    heard_[id].cancelled = true;
    feed(Cancelled{SequenceId{id}});
  }
  /// Computes one of the plans that are out.
  void compute_one() {
    const size_t i = roll(plans_.size());
    SendPlan p = std::move(plans_[i]);
    plans_.erase(plans_.begin() + static_cast<int64_t>(i));
    feed(PlanDone{p.worker, workers_.at(p.worker)->compute(p.plan)});
  }
  void finish_all() {
    while (!plans_.empty()) compute_one();
  }
  bool has_plans() const { return !plans_.empty(); }
  size_t workers() const { return workers_.size(); }
  std::map<uint64_t, Heard>& heard() { return heard_; }
  Scheduler& scheduler() { return scheduler_; }
  std::vector<SendPlan>& plans() { return plans_; }

  void feed(Event event) {
    for (Action& action : scheduler_.step(std::move(event))) {
      if (auto* send = std::get_if<SendPlan>(&action)) {
        for (const SendPlan& p : plans_) EXPECT_NE(p.worker, send->worker) << "two plans in flight";
        plans_.push_back(std::move(*send));
      } else if (auto* progress = std::get_if<Progress>(&action)) {
        Heard& h = heard_[progress->id.value];
        EXPECT_FALSE(h.finished || h.failed || h.cancelled);
        for (const SampledToken& t : progress->sampled) h.sampled.push_back(t.id);
        for (const TokenScore& s : progress->prompt_scores) h.scores.push_back(s.logprob);
      } else if (auto* finished = std::get_if<Finished>(&action)) {
        heard_[finished->id.value].finished = finished->reason;
      } else if (auto* failed = std::get_if<Failed>(&action)) {
        heard_[failed->id.value].failed = failed->error;
      }
    }
  }

  void expect_right_answers() {
    for (auto& [id, h] : heard_) {
      if (h.cancelled) continue;
      if (h.failed) {
        ADD_FAILURE() << id << ": " << h.failed->message();
        continue;
      }
      ASSERT_TRUE(h.finished.has_value()) << "sequence " << id << " never ended";
      EXPECT_EQ(h.sampled, expected_output(h.request)) << "sequence " << id;
      std::vector<float> scores;
      if (h.request.score_top >= 0)
        for (size_t p = 0; p + 1 < h.request.prompt.size(); ++p)
          scores.push_back(score_of(h.request.prompt[p + 1], static_cast<int64_t>(p)));
      EXPECT_EQ(h.scores, scores) << "sequence " << id;
    }
  }

 private:
  std::mt19937_64 random_;
  Scheduler scheduler_;
  std::map<WorkerId, std::unique_ptr<SimulatedWorker>> workers_;
  std::vector<SendPlan> plans_;
  std::map<uint64_t, Heard> heard_;
  uint32_t next_worker_ = 1;
};

WorkerLimits small_worker() { return {.kv_blocks = 30, .kv_block_tokens = 4, .context_max = 110, .step_tokens_max = 40, .step_sequences_max = 5}; }

TEST(Scheduler, AnswersAreRightWhateverDies) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation sim(seed);
    uint64_t next = 1, deaths = 0;
    for (int i = 0; i < 400; ++i) {
      const uint64_t what = sim.roll(100);
      if (what < 12 && next <= 40) {
        sim.submit(sim.random_request(next++));
      } else if (what < 16 && sim.workers() < 3) {
        sim.join(small_worker());
      } else if (what < 17 && sim.workers() > 0 && deaths < 2) {  // two: below the number at which a sequence is given up
        sim.kill_one();
        ++deaths;
      } else if (what < 19 && next > 1) {
        const uint64_t id = 1 + sim.roll(next - 1);
        if (!sim.heard()[id].finished) sim.cancel(id);
      } else if (sim.has_plans()) {
        sim.compute_one();
      }
    }
    if (sim.workers() == 0) sim.join(small_worker());
    sim.finish_all();
    sim.expect_right_answers();
    EXPECT_EQ(sim.scheduler().waiting() + sim.scheduler().running(), 0u);
    EXPECT_EQ(sim.scheduler().kv_blocks().first, 0u) << "KV blocks leaked";
    if (::testing::Test::HasFailure()) return;
  }
}

SequenceRequest request(uint64_t id, size_t prompt, int64_t tokens) {
  SequenceRequest r;
  r.id = SequenceId{id};
  r.prompt.assign(prompt, 5);
  r.tokens_max = tokens;
  r.ignore_eos = true;
  return r;
}

TEST(Scheduler, ALongPromptIsCutAndDecodesGoOnBesideIt) {
  Simulation sim(1, /*step_tokens=*/10);
  sim.join({.kv_blocks = 100, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 512, .step_sequences_max = 8});
  sim.submit(request(1, 3, 20));
  sim.compute_one();
  sim.submit(request(2, 50, 2));
  sim.compute_one();
  for (int step = 0; step < 5; ++step) {
    ASSERT_EQ(sim.plans().size(), 1u);
    const Plan& plan = sim.plans()[0].plan;
    ASSERT_EQ(plan.sequences.size(), 2u);
    EXPECT_EQ(plan.sequences[0].id.value, 1u) << "the decode comes first";
    EXPECT_EQ(plan.sequences[0].tokens.size(), 1u);
    EXPECT_EQ(plan.sequences[1].tokens.size(), 9u);
    EXPECT_FALSE(plan.sequences[1].sample);
    sim.compute_one();
  }
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, LoadIsSpreadOverWorkers) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.join(small_worker());
  for (uint64_t id = 1; id <= 4; ++id) sim.submit(request(id, 8, 4));
  sim.compute_one();
  sim.compute_one();
  ASSERT_EQ(sim.plans().size(), 2u);
  EXPECT_EQ(sim.plans()[0].plan.sequences.size(), 2u);
  EXPECT_EQ(sim.plans()[1].plan.sequences.size(), 2u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, WhatCanNeverFitIsRefusedAndDoesNotBlockOthers) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.submit(request(1, 100, 100));
  sim.submit(request(2, 8, 4));
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kInvalidArgument) << "trying again would not help";
  EXPECT_NE(sim.heard()[1].failed->message().find("--kv-tokens"), std::string::npos);
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[2].finished.has_value());
}

TEST(Scheduler, ASequenceGoesToAWorkerThatHoldsAllOfIt) {
  Simulation sim(1);
  sim.join({.kv_blocks = 8, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 40, .step_sequences_max = 5});
  sim.join({.kv_blocks = 40, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 40, .step_sequences_max = 5});
  sim.submit(request(1, 20, 40));
  ASSERT_EQ(sim.plans().size(), 1u);
  EXPECT_EQ(sim.plans()[0].worker, WorkerId{2}) << "the first is as idle, but too small";
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, OpenEndedSequencesEndWhereTheirWorkerIsFull) {
  Simulation sim(1);
  sim.join({.kv_blocks = 5, .kv_block_tokens = 4, .context_max = 200, .step_tokens_max = 40, .step_sequences_max = 5});
  for (uint64_t id = 1; id <= 2; ++id) {  // together they do not fit: one is sent back again and again
    SequenceRequest r = request(id, 6, 150);
    r.open_ended = true;
    sim.submit(std::move(r));
  }
  sim.finish_all();
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_EQ(sim.heard()[id].finished, FinishReason::kLength);
    EXPECT_EQ(sim.heard()[id].sampled.size(), 14u);
  }
  SequenceRequest whole = request(3, 20, 150);
  whole.open_ended = true;
  sim.submit(std::move(whole));
  EXPECT_TRUE(sim.heard()[3].failed.has_value()) << "no room for a single token more";
}

TEST(Scheduler, ASequenceThatKillsItsWorkersIsGivenUp) {
  Simulation sim(1);
  sim.submit(request(1, 8, 4));
  for (int death = 0; death < 3; ++death) {
    EXPECT_FALSE(sim.heard()[1].failed.has_value());
    sim.join(small_worker());
    sim.kill_one();
  }
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  sim.join(small_worker());
  sim.submit(request(2, 8, 4));
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[2].finished.has_value());
}

constexpr Nanos operator""_seconds(unsigned long long n) { return std::chrono::seconds(n); }

TEST(Scheduler, WhoWaitsForAWorkerThatNeverComesFails) {
  Simulation sim(1);  // waits 60 s
  sim.feed(Tick{100_seconds});
  sim.submit(request(1, 8, 4));
  sim.feed(Tick{130_seconds});
  sim.submit(request(2, 8, 4));
  sim.feed(Tick{160_seconds - Nanos(1)});
  EXPECT_FALSE(sim.heard()[1].failed.has_value());
  sim.feed(Tick{160_seconds});
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  EXPECT_EQ(sim.heard()[1].failed->code(), Code::kUnavailable);
  EXPECT_NE(sim.heard()[1].failed->message().find("no worker has been there for 60 s"), std::string::npos);
  EXPECT_FALSE(sim.heard()[2].failed.has_value()) << "it came later";
  sim.join(small_worker());
  sim.finish_all();
  EXPECT_TRUE(sim.heard()[2].finished.has_value());
  EXPECT_EQ(sim.scheduler().waiting(), 0u);
}

TEST(Scheduler, AWorkerThatDiesLetsItsSequencesWaitAnew) {
  Simulation sim(1);
  sim.submit(request(1, 8, 4));
  sim.feed(Tick{59_seconds});
  sim.join(small_worker());
  sim.feed(Tick{100_seconds});
  sim.kill_one();
  sim.feed(Tick{159_seconds});
  EXPECT_FALSE(sim.heard()[1].failed.has_value()) << "the worker went at 100 s";
  sim.feed(Tick{160_seconds});
  EXPECT_TRUE(sim.heard()[1].failed.has_value());
}

TEST(Scheduler, WhoWaitsForRoomIsNotGivenUp) {
  Simulation sim(1);
  sim.join({.kv_blocks = 4, .kv_block_tokens = 4, .context_max = 16, .step_tokens_max = 16, .step_sequences_max = 1});
  sim.submit(request(1, 4, 4));
  sim.submit(request(2, 4, 4));
  sim.feed(Tick{10000_seconds});
  EXPECT_EQ(sim.scheduler().waiting(), 1u);
  sim.finish_all();
  sim.expect_right_answers();
}

TEST(Scheduler, AFailedPlanIsTriedOneByOneSoThatOnlyTheCulpritFails) {
  Simulation sim(1);
  sim.join(small_worker());
  for (uint64_t id = 1; id <= 3; ++id) sim.submit(request(id, 4, 3));
  while (sim.has_plans()) {
    SendPlan p = std::move(sim.plans().front());
    sim.plans().clear();
    const bool poisoned = std::any_of(p.plan.sequences.begin(), p.plan.sequences.end(), [](const auto& s) { return s.id.value == 2; });
    if (!poisoned) {
      sim.plans().push_back(std::move(p));
      sim.compute_one();
      continue;
    }
    PlanOutcome outcome;
    outcome.plan = p.plan.id;
    outcome.error = corrupt("expert 3 of layer 1 is bad");
    sim.feed(PlanDone{p.worker, std::move(outcome)});
  }
  EXPECT_EQ(sim.heard()[2].failed->message(), "expert 3 of layer 1 is bad");
  for (uint64_t id : {1, 3}) {
    EXPECT_TRUE(sim.heard()[id].finished.has_value());
    EXPECT_EQ(sim.heard()[id].sampled, expected_output(sim.heard()[id].request));
  }
}

TEST(Scheduler, AnAnswerThatDoesNotMatchItsPlanFailsTheSequenceOnly) {
  Simulation sim(1);
  sim.join(small_worker());
  sim.submit(request(1, 4, 3));
  PlanOutcome outcome;
  outcome.plan = sim.plans()[0].plan.id;
  sim.plans().clear();
  sim.feed(PlanDone{WorkerId{1}, outcome});  // says nothing of sequence 1
  ASSERT_TRUE(sim.heard()[1].failed.has_value());
  sim.feed(PlanDone{WorkerId{1}, outcome});  // and once more: stale
  sim.feed(PlanDone{WorkerId{9}, outcome});  // from nobody
  EXPECT_EQ(sim.scheduler().kv_blocks().first, 0u);
}

}  // namespace
}  // namespace moestro::orchestrator

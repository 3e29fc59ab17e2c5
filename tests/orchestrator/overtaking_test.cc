// Interactive requests beside a batch whose steps are longer than the target for the time per output token.

#include <gtest/gtest.h>

#include <cstdio>

#include "tests/orchestrator/virtual_cluster.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::milliseconds;

constexpr WorkerLimits kWorker{.kv_blocks = 4000,
                               .kv_block_tokens = 16,
                               .context_max = 1000,
                               .step_tokens_max = 2048,
                               .step_sequences_max = 1024,
                               .overtaking_tokens_max = 128};
constexpr Nanos kTarget = milliseconds(80);
/// The prompts of 400 lines take 6.5 s, a single token 64 ms.
constexpr StepCost kSlow{.step = milliseconds(60), .token = milliseconds(4)};

SchedulerOptions options(Nanos target = kTarget) {
  SchedulerOptions o;
  o.step_tokens = 2048;
  o.eos_ids = {kEos};
  o.prefix_cache = false;
  o.tpot_target = target;
  return o;
}

SequenceRequest line(uint64_t id) {
  SequenceRequest r = request(id, 4, 6);
  r.background = true;
  r.flow = "batch";
  return r;
}

struct Times {
  Nanos first_token{0}, gap_max{0}, all{0};
  size_t overtaken = 0;
};

/// 400 lines, and an interactive request of `prompt` tokens that comes amid one of their long steps.
Times beside_a_batch(const SchedulerOptions& o, size_t prompt, WorkerLimits worker = kWorker, StepCost cost = kSlow) {
  VirtualCluster cluster(o, cost);
  cluster.join(worker);
  for (uint64_t id = 1; id <= 400; ++id) cluster.submit(line(id));
  cluster.at(milliseconds(1000), [&] { cluster.submit(request(1000, prompt, 12)); });
  cluster.run();
  cluster.expect_right_answers();
  const Told& told = cluster.told()[1000];
  return {*told.first_token - told.came, told.gap_max, cluster.now(), cluster.overtaken};
}

TEST(Overtaking, ARequestAmidALongStepWaitsForALayerOnly) {
  const Times waits = beside_a_batch([] {
    SchedulerOptions o = options();
    o.overtaking = false;
    return o;
  }(), 8);
  const Times overtakes = beside_a_batch(options(), 8);
  EXPECT_EQ(waits.overtaken, 0u);
  EXPECT_GE(overtakes.overtaken, 2u);
  const Nanos step = kSlow.of(1600);  // the prompts of all lines
  EXPECT_GT(waits.first_token, step - milliseconds(1200));
  EXPECT_LT(overtakes.first_token, step / VirtualCluster::kLayers + 2 * kSlow.of(8));
  EXPECT_LT(overtakes.gap_max, step / VirtualCluster::kLayers + 2 * kSlow.of(8));
  EXPECT_LT(overtakes.all, waits.all + waits.all / 20) << "the batch takes hardly longer";
  const auto ms = [](Nanos t) { return static_cast<double>(t.count()) * 1e-6; };
  std::printf("amid a step of %.0f ms: first token after %.0f ms instead of %.0f, longest gap %.0f ms instead of %.0f, "
              "all lines after %.0f ms instead of %.0f\n", ms(step), ms(overtakes.first_token), ms(waits.first_token),
              ms(overtakes.gap_max), ms(waits.gap_max), ms(overtakes.all), ms(waits.all));
}

TEST(Overtaking, APromptLongerThanSuchAPlanIsReadInParts) {
  const Times waits = beside_a_batch([] {
    SchedulerOptions o = options();
    o.overtaking = false;
    return o;
  }(), 300);
  const Times overtakes = beside_a_batch(options(), 300);
  EXPECT_GE(overtakes.overtaken, 3u);
  EXPECT_LT(overtakes.first_token, waits.first_token);
}

TEST(Overtaking, NotWithoutATargetAndNotWhereStepsAreShorterAndNotWhereWorkersCannot) {
  EXPECT_EQ(beside_a_batch(options(Nanos(0)), 8).overtaken, 0u);
  EXPECT_EQ(beside_a_batch(options(std::chrono::seconds(60)), 8, kWorker,
                           {.step = milliseconds(2), .token = std::chrono::microseconds(1)}).overtaken, 0u);
  WorkerLimits cannot = kWorker;
  cannot.overtaking_tokens_max = 0;
  EXPECT_EQ(beside_a_batch(options(), 8, cannot).overtaken, 0u);
  WorkerLimits keeps_states = kWorker;
  keeps_states.state_slots = 1024, keeps_states.state_interval = 64;
  EXPECT_EQ(beside_a_batch(options(), 8, keeps_states).overtaken, 0u);
}

/// However many interactive requests come, a step of a batch goes on by a layer between two of their plans.
TEST(Overtaking, AnOvertakenStepComesToItsEnd) {
  VirtualCluster cluster(options(), kSlow, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  for (uint64_t id = 1; id <= 400; ++id) cluster.submit(line(id));
  for (uint64_t id = 1000; id < 1200; ++id)
    cluster.at(milliseconds(1000) + milliseconds(20) * static_cast<int>(id - 1000),
               [&cluster, id] { cluster.submit(request(id, 100, 20)); });
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_GE(cluster.overtaken, 6u);
  EXPECT_LE(cluster.longest_stretch, kSlow.of(1600) + VirtualCluster::kLayers * kSlow.of(128));
}

/// Cancelled lines leave blocks to which the step at hand still writes. With a cache that is full, these are what is
/// free.
TEST(Overtaking, BlocksThatTheStepAtHandWritesToAreNotWrittenByThosePlans) {
  size_t overtaken = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SchedulerOptions o = options(milliseconds(5));
    o.prefix_cache = seed % 2 == 0;
    VirtualCluster cluster(o, {.step = milliseconds(2), .token = milliseconds(1)});
    WorkerLimits small = kWorker;
    small.kv_blocks = 60, small.kv_block_tokens = 4;
    cluster.join(small);
    std::mt19937_64 random(seed);
    for (uint64_t id = 1; id <= 40; ++id) {
      SequenceRequest r = line(id);
      r.prompt.assign(1 + random() % 20, static_cast<TokenId>(1 + random() % 3));
      r.tokens_max = static_cast<int64_t>(1 + random() % 20);
      cluster.submit(r);
    }
    for (uint64_t id = 1000; id < 1012; ++id) {
      cluster.at(milliseconds(random() % 300), [&cluster, id, prompt = 1 + random() % 30] {
        SequenceRequest r = request(id, prompt, 8);
        r.prompt.back() = static_cast<TokenId>(id);
        cluster.submit(r);
      });
      cluster.at(milliseconds(random() % 300), [&cluster, which = 1 + random() % 40] { cluster.cancel(which); });
    }
    cluster.run();
    cluster.expect_right_answers();
    overtaken += cluster.overtaken;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(overtaken, 100u);
}

/// A scheduler whose worker has sent no result yet, beside 40 lines.
class OnePlan {
 public:
  OnePlan() : scheduler_(options(milliseconds(5))) {
    feed(WorkerJoined{WorkerId{1}, kWorker});
    for (uint64_t id = 1; id <= 40; ++id) feed(Submitted{line(id)});
    // All steps until now were of fewer lines: the last of them has all.
    while (plans.front().sequences.size() < 40) answer(0);
  }
  void feed(Event event) {
    for (Action& action : scheduler_.step(std::move(event))) {
      if (auto* send = std::get_if<SendPlan>(&action)) plans.push_back(std::move(send->plan));
      if (const auto* f = std::get_if<Failed>(&action)) failed.push_back(f->id.value);
      if (const auto* p = std::get_if<Progress>(&action)) progress.push_back(p->id.value);
    }
    EXPECT_EQ(scheduler_.inconsistency(), "");
  }
  void answer(size_t index, Status error = Status::ok()) {
    PlanOutcome outcome{plans[index].id, {}, error};
    int64_t tokens = 0;
    for (const PlannedSequence& s : plans[index].sequences) {
      SequenceOutcome& o = outcome.sequences.emplace_back();
      o.id = s.id;
      if (s.sample) o.sampled.push_back({7, {}});
      tokens += std::ssize(s.tokens);
    }
    plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(index));
    feed(PlanDone{WorkerId{1}, std::move(outcome), milliseconds(tokens)});
  }
  Scheduler& scheduler() { return scheduler_; }
  std::vector<Plan> plans;  ///< not answered
  std::vector<uint64_t> failed, progress;

 private:
  Scheduler scheduler_;
};

TEST(Overtaking, OnePlanAtATimeWithoutParentReleasesOrSequencesOfTheOther) {
  OnePlan one;
  ASSERT_EQ(one.plans.size(), 1u);
  EXPECT_FALSE(one.plans[0].overtakes);
  one.feed(Cancelled{SequenceId{3}});  // the worker hears of it with a later plan
  one.feed(Submitted{request(1000, 5, 4)});
  one.feed(Submitted{request(1001, 5, 4)});
  ASSERT_EQ(one.plans.size(), 2u) << "the second request waits for the result of the first one's plan";
  EXPECT_TRUE(one.plans[1].overtakes);
  EXPECT_EQ(one.plans[1].parent.value, 0u);
  EXPECT_TRUE(one.plans[1].released.empty());
  one.answer(1);
  ASSERT_EQ(one.plans.size(), 2u);
  EXPECT_EQ(one.plans[1].sequences.size(), 2u) << "a decode and a prompt";
  one.answer(0);
  EXPECT_EQ(one.plans.size(), 1u) << "what overtakes is short: the next plan waits for it";
  one.answer(0);
  ASSERT_EQ(one.plans.size(), 1u);
  EXPECT_FALSE(one.plans[0].overtakes) << "readers and lines share steps again";
  EXPECT_EQ(one.plans[0].released.size(), 1u);
  EXPECT_TRUE(one.failed.empty());
}

TEST(Overtaking, EitherPlanMayFailWithoutTheOther) {
  OnePlan one;
  one.feed(Submitted{request(1000, 5, 4)});
  ASSERT_EQ(one.plans.size(), 2u);
  one.answer(1, internal_error("it broke"));
  EXPECT_EQ(one.failed, std::vector<uint64_t>{1000}) << "alone in its plan";
  one.feed(Submitted{request(1001, 5, 4)});
  ASSERT_EQ(one.plans.size(), 2u);
  one.answer(0, internal_error("it broke"));
  EXPECT_EQ(one.failed.size(), 1u) << "lines of a plan that failed are tried one by one";
  one.progress.clear();
  one.answer(0);
  EXPECT_EQ(one.progress, std::vector<uint64_t>{1001});
}

TEST(Overtaking, AWorkerThatDiesMeanwhileLosesBoth) {
  OnePlan one;
  one.feed(Submitted{request(1000, 5, 4)});
  ASSERT_EQ(one.plans.size(), 2u);
  one.feed(WorkerLost{WorkerId{1}});
  EXPECT_EQ(one.scheduler().waiting(), 41u);
  EXPECT_TRUE(one.failed.empty());
}

TEST(KvBlocksStillWritten, ComeLastAndAreFreeAgainWhenTheyAreWritten) {
  KvBlocks kv(3, 4);
  const uint32_t a = *kv.take(), b = *kv.take();
  kv.leave_written(a);
  kv.give_back(a);
  EXPECT_TRUE(kv.is_still_written(a));
  EXPECT_EQ(kv.available(), 2u);
  EXPECT_NE(*kv.take(), a);
  EXPECT_EQ(*kv.take(), a) << "the last there is";
  EXPECT_FALSE(kv.take().has_value());
  EXPECT_TRUE(kv.is_still_written(a));
  kv.give_back(a);
  kv.written(a);
  EXPECT_FALSE(kv.is_still_written(a));
  EXPECT_TRUE(kv.consistent());
  kv.give_back(b);
  EXPECT_EQ(kv.available(), 2u);
  EXPECT_TRUE(kv.consistent());
}

}  // namespace
}  // namespace moestro::orchestrator

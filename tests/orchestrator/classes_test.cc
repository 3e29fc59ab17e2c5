// Interactive requests and batches, API keys, and the target for the time per output token, on a virtual clock.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "tests/orchestrator/virtual_cluster.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr WorkerLimits kWorker{
    .kv_blocks = 1000, .kv_block_tokens = 16, .context_max = 4000, .step_tokens_max = 512, .step_sequences_max = 32};
constexpr int64_t kStepTokens = 128;

SchedulerOptions options() {
  SchedulerOptions o;
  o.step_tokens = kStepTokens;
  o.eos_ids = {kEos};
  o.prefix_cache = false;  // every prompt is to be computed
  return o;
}

SequenceRequest interactive(uint64_t id, size_t prompt, int64_t tokens, const std::string& key = "") {
  SequenceRequest r = request(id, prompt, tokens);
  r.flow = key;
  return r;
}

SequenceRequest of_batch(uint64_t id, size_t prompt, int64_t tokens, const std::string& batch = "batch_1") {
  SequenceRequest r = interactive(id, prompt, tokens, batch);
  r.background = true;
  return r;
}

/// A batch job that always has `lines` sequences with the scheduler.
class BatchJobLoad {
 public:
  BatchJobLoad(VirtualCluster& cluster, size_t lines, uint64_t seed) : cluster_(cluster), random_(seed) {
    cluster.on_end = [this](const Told& told) {
      if (told.request.background && more) next();
    };
    for (size_t i = 0; i < lines; ++i) next();
  }
  bool more = true;

 private:
  void next() {
    cluster_.submit(of_batch(next_id_++, 20 + random_() % 300, static_cast<int64_t>(10 + random_() % 100)));
  }
  VirtualCluster& cluster_;
  std::mt19937_64 random_;
  uint64_t next_id_ = 1'000'000;
};

TEST(Classes, AnInteractiveRequestBesideASaturatingBatchWaitsForTheStepUnderWay) {
  double worst = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    VirtualCluster cluster(options(), {milliseconds(20)},
                           VirtualCluster::Model::kPlain);  // long steps: nothing is sent ahead
    cluster.join(kWorker);
    BatchJobLoad job(cluster, 64, seed);
    std::mt19937_64 random(seed);
    uint64_t next = 1;
    std::vector<uint64_t> arrived;
    std::function<void()> arrive = [&] {
      arrived.push_back(next);
      cluster.submit(interactive(next++, 1 + random() % 500, static_cast<int64_t>(1 + random() % 30)));
      if (next <= 60) cluster.after(milliseconds(400 + random() % 300), arrive);  // one is read before the next comes
      else job.more = false;
    };
    cluster.after(seconds(1), arrive);
    cluster.run();
    cluster.expect_right_answers();
    // Its own prefill goes on beside up to 31 decodes of others, which it takes what is left of.
    const Nanos step = cluster.cost().of(kStepTokens);
    std::vector<int64_t> waited;  // beyond its own prefill
    for (const uint64_t id : arrived) {
      const Told& told = cluster.told()[id];
      const auto own = static_cast<int64_t>((told.request.prompt.size() + kStepTokens - 32) / (kStepTokens - 31));
      waited.push_back(((*told.first_token - told.came) - step * own).count());
    }
    std::sort(waited.begin(), waited.end());
    EXPECT_LE(waited[waited.size() * 99 / 100], step.count()) << "the step under way; seed " << seed;
    worst = std::max(worst, static_cast<double>(waited[waited.size() * 99 / 100]) / static_cast<double>(step.count()));
  }
  std::printf("first tokens beside a saturating batch: p99 %.2f steps and their own prefill\n", worst);
}

TEST(Classes, BatchesKeepTheirShareBesideSaturatingInteractiveRequests) {
  SchedulerOptions o = options();
  o.interactive_weight = 7;
  o.batch_aging = std::chrono::hours(1);
  VirtualCluster cluster(o, {}, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  uint64_t next = 1;
  const auto more = [&](bool background) {
    cluster.submit(background ? of_batch(next, 100, 20) : interactive(next, 100, 20));
    ++next;
  };
  cluster.on_end = [&](const Told& told) {
    if (cluster.now() < seconds(20)) more(told.request.background);
  };
  for (int i = 0; i < 100; ++i) more(i % 2 == 0);
  cluster.run(seconds(20));
  const double batch = static_cast<double>(cluster.computed[{true, "batch_1"}]),
               others = static_cast<double>(cluster.computed[{false, ""}]);
  EXPECT_GT(batch / (batch + others), 0.6 / 8);
  EXPECT_LT(batch / (batch + others), 1.6 / 8) << "others come first";
  cluster.run();
  cluster.expect_right_answers();
}

TEST(Classes, WhoOfABatchHasWaitedLongEnoughGoesWithTheOthers) {
  SchedulerOptions o = options();
  o.batch_aging = seconds(5);
  VirtualCluster cluster(o, {}, VirtualCluster::Model::kPlain);
  WorkerLimits narrow = kWorker;
  narrow.step_sequences_max = 8;  // fewer places than the weight: none is a batch's in any case
  cluster.join(narrow);
  uint64_t next = 100;
  for (int i = 0; i < 20; ++i) cluster.submit(interactive(next++, 100, 20));
  cluster.on_end = [&](const Told& told) {
    if (!told.request.background && cluster.now() < seconds(30)) cluster.submit(interactive(next++, 100, 20));
  };
  for (uint64_t id = 1; id <= 10; ++id) cluster.submit(of_batch(id, 100, 20));
  cluster.run();
  cluster.expect_right_answers();
  for (uint64_t id = 1; id <= 10; ++id) {
    EXPECT_GT(*cluster.told()[id].ended, seconds(5)) << "others were always there";
    EXPECT_LT(*cluster.told()[id].ended, seconds(10))
        << "it is not sent back any more, and waits no longer than they do";
  }
}

TEST(Classes, KeysShareWhatIsServed) {
  VirtualCluster cluster(options(), {}, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  uint64_t next = 1;
  const auto more = [&](const std::string& key) {
    cluster.submit(interactive(next++, key == "long" ? 400 : 40, key == "long" ? 80 : 20, key));
  };
  cluster.on_end = [&](const Told& told) {
    if (cluster.now() < seconds(30)) more(told.request.flow);
  };
  for (int i = 0; i < 200; ++i) more("long");
  for (int i = 0; i < 40; ++i) more("short");
  std::map<std::string, int64_t> before;
  cluster.run(seconds(2));
  for (const char* key : {"long", "short"}) before[key] = cluster.computed[{false, key}];
  for (int second = 3; second <= 30; ++second) {
    cluster.run(seconds(second));
    const int64_t longs = cluster.computed[{false, "long"}] - before["long"],
                  shorts = cluster.computed[{false, "short"}] - before["short"];
    // What either may have under way at once: 32 sequences, prompts and answers.
    EXPECT_LE(std::abs(longs - shorts), 32 * 480) << "after " << second << " s";
  }
  const double longs = static_cast<double>(cluster.computed[{false, "long"}]),
               shorts = static_cast<double>(cluster.computed[{false, "short"}]);
  EXPECT_NEAR(longs / shorts, 1.0, 0.25);
  cluster.run();
  cluster.expect_right_answers();
}

TEST(Classes, AKeyThatFloodsDoesNotHoldUpAnother) {
  VirtualCluster cluster(options(), {}, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  for (uint64_t id = 1; id <= 500; ++id) cluster.submit(interactive(id, 100, 20, "flood"));
  cluster.at(seconds(1), [&] { cluster.submit(interactive(1000, 100, 5, "other")); });
  cluster.run();
  cluster.expect_right_answers();
  const Told& other = cluster.told()[1000];
  EXPECT_LT(*other.first_token - other.came, milliseconds(200)) << "the next place is its own";
  EXPECT_GT(cluster.now(), seconds(4)) << "the queue was long";
}

/// Long prompts come while others decode; the longest that these wait for a token.
Nanos longest_gap(Nanos target, Nanos* prompts_done) {
  SchedulerOptions o = options();
  o.step_tokens = 512;
  o.tpot_target = target;
  VirtualCluster cluster(o, {}, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  for (uint64_t id = 1; id <= 10; ++id) cluster.submit(interactive(id, 20, 1500));
  cluster.at(seconds(1), [&] {
    for (uint64_t id = 11; id <= 13; ++id) cluster.submit(interactive(id, 3000, 1));
  });
  cluster.run();
  cluster.expect_right_answers();
  Nanos gap{0};
  for (uint64_t id = 1; id <= 10; ++id) gap = std::max(gap, cluster.told()[id].gap_max);
  *prompts_done = *cluster.told()[13].ended;
  return gap;
}

TEST(TpotTarget, DecodesNeverWaitMuchLongerThanIt) {
  Nanos without{0}, with{0};
  EXPECT_GT(longest_gap(Nanos(0), &without), milliseconds(50)) << "a step of 512 tokens takes 53 ms";
  EXPECT_LT(longest_gap(milliseconds(20), &with), milliseconds(24));
  EXPECT_LT(with, 2 * without) << "and prompts are read all the same";
}

TEST(TpotTarget, TheBatchGrowsUntilItIsAtRisk) {
  SchedulerOptions o = options();
  o.tpot_target = milliseconds(10);
  StepCost cost;
  cost.token = std::chrono::microseconds(500);
  VirtualCluster cluster(o, cost, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  for (uint64_t id = 1; id <= 200; ++id) cluster.submit(interactive(id, 10, 100));
  size_t most = 0, least = 100;
  for (int tick = 100; tick < 600; ++tick) {
    cluster.run(milliseconds(10) * tick);
    most = std::max(most, cluster.scheduler().running());
    if (cluster.scheduler().waiting() > 0) least = std::min(least, cluster.scheduler().running());
  }
  EXPECT_LE(most, 20u) << "2 ms + 0.5 ms * 16 = 10 ms";
  EXPECT_GE(least, 12u);
  cluster.run();
  cluster.expect_right_answers();
}

TEST(TpotTarget, OneThatCannotBeKeptStopsNobody) {
  SchedulerOptions o = options();
  o.tpot_target = milliseconds(1);  // below the time of any step
  VirtualCluster cluster(o, {}, VirtualCluster::Model::kPlain);
  cluster.join(kWorker);
  for (uint64_t id = 1; id <= 8; ++id) cluster.submit(interactive(id, 300, 20));
  cluster.run();
  cluster.expect_right_answers();
}

}  // namespace
}  // namespace moestro::orchestrator

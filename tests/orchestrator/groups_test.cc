// Groups of a batch's lines: how many run at once, that nothing is computed twice, and what readers notice.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "orchestrator/scheduler/answer_lengths.h"
#include "tests/orchestrator/virtual_cluster.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kBlock = 16;

WorkerLimits group_worker(uint32_t kv_tokens) {
  return {.kv_blocks = kv_tokens / kBlock, .kv_block_tokens = kBlock, .context_max = 4000, .step_tokens_max = 512,
          .step_sequences_max = 256};
}

SchedulerOptions group_options(Nanos target) {
  SchedulerOptions o;
  o.step_tokens = 512;
  o.eos_ids = {kEos};
  o.prefix_cache = false;
  o.tpot_target = target;
  return o;
}

SequenceRequest line(uint64_t id, size_t prompt, int64_t tokens) {
  SequenceRequest r = request(id, prompt, tokens);
  r.flow = "batch_1";
  r.background = true;
  return r;
}

struct Lengths {
  size_t prompt_min = 64, prompt_max = 512;
  int64_t answer_min = 32, answer_max = 128;
};

/// Always as many lines with the scheduler as the runner gives out.
class Lines {
 public:
  Lines(VirtualCluster& cluster, size_t in_flight, const Lengths& lengths = {}) : cluster_(cluster), lengths_(lengths) {
    cluster.on_end = [this](const Told& told) {
      if (told.request.background && more) next();
    };
    for (size_t i = 0; i < in_flight; ++i) next();
  }
  bool more = true;
  int64_t needed = 0;  ///< tokens of lines that have been given out, each computed once

 private:
  void next() {
    const auto between = [this](auto least, auto most) {
      return least + static_cast<decltype(least)>(random_() % static_cast<uint64_t>(most - least));
    };
    const size_t prompt = between(lengths_.prompt_min, lengths_.prompt_max);
    SequenceRequest r = line(next_id_++, prompt, between(lengths_.answer_min, lengths_.answer_max));
    needed += static_cast<int64_t>(r.prompt.size()) + r.tokens_max - 1;
    cluster_.submit(std::move(r));
  }
  VirtualCluster& cluster_;
  const Lengths lengths_;
  std::mt19937_64 random_{7};
  uint64_t next_id_ = 1'000'000;
};

/// The mean number of running sequences from `from` to `to`.
double mean_running(VirtualCluster& cluster, Nanos from, Nanos to) {
  double sum = 0;
  int looks = 0;
  for (Nanos at = from; at < to; at += milliseconds(50), ++looks) {
    cluster.run(at);
    sum += static_cast<double>(cluster.scheduler().running());
  }
  return sum / looks;
}

TEST(Groups, FillTheCacheAndComputeNothingTwice) {
  constexpr uint32_t kTokens = 32'000;
  VirtualCluster cluster(group_options(Nanos(0)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(kTokens));
  Lines lines(cluster, 320);
  const double running = mean_running(cluster, seconds(5), seconds(60));
  lines.more = false;
  cluster.run();
  cluster.expect_right_answers();
  // A line has 288 tokens of a prompt on average, and 40 of its answer while it runs; at its end it has 368.
  EXPECT_GT(running, 0.9 * kTokens / 368) << "places are not empty";
  EXPECT_LT(running, 1.1 * kTokens / 328);
  const double computed = static_cast<double>(cluster.computed[{true, "batch_1"}]);
  EXPECT_LT(computed, 1.01 * static_cast<double>(lines.needed)) << "lines that were sent back are computed again";
  std::printf("%.0f lines at once, %.2f %% of the tokens computed again, %llu sent back\n", running,
              100 * (computed / static_cast<double>(lines.needed) - 1),
              static_cast<unsigned long long>(cluster.scheduler().preemptions()));
}

/// Prompts fit long before the answers do. Lines that were admitted for their prompts alone would be sent back.
TEST(Groups, LongAnswersAreForeseen) {
  VirtualCluster cluster(group_options(Nanos(0)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(16'000));
  Lines lines(cluster, 320, {16, 64, 200, 600});
  const double running = mean_running(cluster, seconds(5), seconds(60));
  lines.more = false;
  cluster.run();
  cluster.expect_right_answers();
  const double again = static_cast<double>(cluster.computed[{true, "batch_1"}]) / static_cast<double>(lines.needed) - 1;
  std::printf("long answers: %.0f lines at once, %.2f %% of the tokens computed again, %llu sent back\n", running,
              100 * again, static_cast<unsigned long long>(cluster.scheduler().preemptions()));
  EXPECT_LT(again, 0.03);
  EXPECT_GT(running, 50) << "a line has 240 tokens on average while it runs: not all are at their end at once";
}

TEST(Groups, AsManyAsAStepHoldsRunWhereTheCacheHasRoom) {
  VirtualCluster cluster(group_options(milliseconds(20)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(200'000));
  Lines lines(cluster, 320);
  // A step of 256 decodes takes 28 ms. Nobody reads along, so no target counts.
  EXPECT_GT(mean_running(cluster, seconds(5), seconds(20)), 255) << "who ends is replaced in the next step";
  lines.more = false;
  cluster.run();
  cluster.expect_right_answers();
}

TEST(Groups, AReaderBesideASaturatingGroupHasItsTokensInTime) {
  constexpr Nanos kTarget = milliseconds(20);
  VirtualCluster cluster(group_options(kTarget), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(200'000));
  Lines lines(cluster, 320);
  std::mt19937_64 random(3);
  uint64_t next = 1;
  std::function<void()> arrive = [&] {
    cluster.submit(request(next++, 1 + random() % 400, static_cast<int64_t>(20 + random() % 40)));
    if (next <= 100) cluster.after(milliseconds(200 + random() % 1500), arrive);
    else lines.more = false;
  };
  cluster.after(seconds(5), arrive);
  cluster.run();
  cluster.expect_right_answers();
  std::vector<Nanos> gaps, waits;
  Nanos longest{0};
  for (const auto& [id, told] : cluster.told()) {
    if (told.request.background) {
      longest = std::max(longest, told.gap_max);
      continue;
    }
    gaps.push_back(told.gap_max);
    // Beyond its own prompt, of which the target leaves about 160 tokens to a step.
    const auto own = 1 + static_cast<int64_t>(told.request.prompt.size()) / 160;
    waits.push_back(*told.first_token - told.came - kTarget * own);
  }
  std::ranges::sort(gaps), std::ranges::sort(waits);
  const auto p99 = [](const std::vector<Nanos>& all) { return all[all.size() * 99 / 100]; };
  const auto ms = [](Nanos n) { return std::chrono::duration<double, std::milli>(n).count(); };
  std::printf("the longest gap between two tokens of a reader: p99 %.1f ms; of a line: %.0f ms\n", ms(p99(gaps)),
              ms(longest));
  EXPECT_LE(p99(gaps), kTarget * 11 / 10);
  EXPECT_LE(p99(waits), milliseconds(54)) << "the step that was under way, of 512 tokens";
  EXPECT_LT(longest, seconds(1)) << "lines take turns beside readers";
}

TEST(Groups, LinesGoOnBesideReadersThatNeverEnd) {
  VirtualCluster cluster(group_options(milliseconds(10)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(200'000));
  for (uint64_t id = 1; id <= 60; ++id) {
    SequenceRequest r = request(id, 10, 3000);
    cluster.submit(std::move(r));
  }
  cluster.run(seconds(1));
  for (uint64_t id = 1001; id <= 1020; ++id) cluster.submit(line(id, 100, 20));
  cluster.run();
  cluster.expect_right_answers();
  Nanos last{0};
  for (uint64_t id = 1001; id <= 1020; ++id) last = std::max(last, *cluster.told()[id].ended);
  EXPECT_LT(last, *cluster.told()[1].ended) << "of each step a share is theirs";
}

TEST(Groups, ChatsWithoutALimitLeaveLinesTheCacheThatTheyDoNotHold) {
  VirtualCluster cluster(group_options(Nanos(0)), {}, VirtualCluster::Model::kPlain);
  WorkerLimits limits = group_worker(8192);
  limits.context_max = 8192;
  cluster.join(limits);
  uint64_t chat = 0;
  for (const size_t prompt : {100, 300}) {
    SequenceRequest r = request(++chat, prompt, 8192 - static_cast<int64_t>(prompt));
    r.open_ended = true;
    cluster.submit(std::move(r));
  }
  for (uint64_t id = 1001; id <= 1020; ++id) cluster.submit(line(id, 64, 100));
  cluster.run(seconds(4));
  EXPECT_FALSE(cluster.told()[1].ended || cluster.told()[2].ended) << "the chats go on";
  for (uint64_t id = 1001; id <= 1020; ++id) EXPECT_TRUE(cluster.told()[id].ended.has_value()) << id;
}

TEST(Groups, LinesHaveThePlacesThatTheyAreLeftInAnyCase) {
  SchedulerOptions options = group_options(Nanos(0));
  options.interactive_weight = 2;
  VirtualCluster cluster(options, {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(8192));
  for (const uint64_t id : {1, 2}) cluster.submit(request(id, 3800, 100));
  for (const uint64_t id : {1001, 1002}) cluster.submit(line(id, 64, 3000));
  // 36 blocks are free. A line has room to begin, and not for the 36 blocks and one for each reader that are foreseen.
  EXPECT_EQ(cluster.scheduler().running(), 3u) << "one in three is theirs";
  cluster.run();
  cluster.expect_right_answers();
}

TEST(Groups, LinesWithoutALimitBeginBeforeAnyHasEnded) {
  VirtualCluster cluster(group_options(Nanos(0)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(16'000));
  Lines lines(cluster, 100, {16, 32, 3900, 3901});
  cluster.run(seconds(1));
  EXPECT_GT(cluster.scheduler().running(), 20u);
}

TEST(Groups, AnswersThatAStopStringEndsAreLearned) {
  VirtualCluster cluster(group_options(Nanos(0)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(16'000));
  Lines lines(cluster, 200, {16, 32, 2000, 2001});
  std::function<void()> stop = [&] {
    std::vector<uint64_t> said_all;
    for (const auto& [id, told] : cluster.told())
      if (!told.ended && told.sampled.size() >= 40) said_all.push_back(id);
    for (const uint64_t id : said_all) cluster.cancel(id, 40);
    cluster.after(milliseconds(2), stop);
  };
  stop();
  EXPECT_GT(mean_running(cluster, seconds(5), seconds(8)), 100) << "a line has 72 tokens at its end";
}

/// A line waits for a second worker, as the first has one that will grow. Spreading does not put it there after all.
TEST(Groups, LinesAreSpreadOnlyToWhereTheyCanEnd) {
  VirtualCluster cluster(group_options(Nanos(0)), {}, VirtualCluster::Model::kPlain);
  cluster.join(group_worker(1600));
  cluster.submit(line(1, 1000, 500));
  cluster.run(milliseconds(200));
  for (const uint64_t id : {2, 3}) cluster.submit(line(id, 160, 500));
  EXPECT_EQ(cluster.scheduler().waiting(), 2u);
  cluster.join(group_worker(1600));
  EXPECT_EQ(cluster.scheduler().waiting(), 0u);
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_EQ(cluster.scheduler().preemptions(), 0u);
}

TEST(AnswerLengths, AnOrdinaryLengthCountsUntilThereIsExperience) {
  AnswerLengths lengths;
  EXPECT_EQ(lengths.expected(0, 500), 500);
  EXPECT_EQ(lengths.expected(0, 8000), 512) << "a limit may be the rest of the context";
  EXPECT_EQ(lengths.expected(600, 8000), 601);
  for (int i = 0; i < 200; ++i) lengths.ended(i % 2 == 0 ? 40 : 60);
  const int64_t usual = lengths.expected(0, 500);
  EXPECT_GE(usual, 50);
  EXPECT_LE(usual, 65);
  EXPECT_EQ(lengths.expected(0, 30), 30) << "no longer than it may be";
  EXPECT_GT(lengths.expected(80, 500), 80) << "one that is longer than usual goes on";
  EXPECT_LT(lengths.expected(80, 500), 110);
  for (int i = 0; i < 200; ++i) lengths.ended(400);
  EXPECT_GT(lengths.expected(0, 500), 350) << "what has changed is learned";
}

}  // namespace
}  // namespace moestro::orchestrator

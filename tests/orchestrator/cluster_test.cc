// Whole clusters under random load, cancellations and deaths; and more load than there is room for.

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "orchestrator/control/retry_after.h"
#include "tests/orchestrator/virtual_cluster.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RandomLoad {
 public:
  /// `source_max`: of an encoder-decoder model, the longest source; 0: it has no encoder.
  RandomLoad(VirtualCluster& cluster, uint64_t seed, int64_t source_max = 0)
      : cluster_(cluster), random_(seed), source_max_(static_cast<uint64_t>(source_max)) {}
  uint64_t roll(uint64_t sides) { return random_() % sides; }

  void submit_one() {
    SequenceRequest r = request(next_, 1 + roll(80), static_cast<int64_t>(roll(40)));
    for (TokenId& t : r.prompt) t = static_cast<TokenId>(1 + roll(roll(2) == 0 ? 2 : 90));  // some begin alike
    r.prompt.back() = static_cast<TokenId>(1000 + next_);  // nobody asks the same
    r.ignore_eos = roll(2) == 0;
    r.background = roll(3) == 0;
    r.flow = std::string(r.background ? "batch_" : "key_") + static_cast<char>('a' + roll(3));
    if (source_max_ > 0) r.source = source();
    if (roll(60) == 0) cluster_.deadly.insert(next_);
    if (roll(12) == 0) cluster_.after(milliseconds(roll(200)), [this, id = next_] { cluster_.cancel(id); });
    ++next_;
    cluster_.submit(std::move(r));
  }
  void arrive() {
    source_ = nullptr;
    for (uint64_t n = roll(5); n > 0; --n) submit_one();
    if (next_ < 120) cluster_.after(milliseconds(roll(40)), [this] { arrive(); });
  }

 private:
  /// Now and then that of one that comes with it, as choices have it.
  Source source() {
    if (source_ != nullptr && roll(2) == 0) return source_;
    std::vector<TokenId> tokens(1 + roll(source_max_));
    for (TokenId& t : tokens) t = static_cast<TokenId>(1 + roll(90));
    source_ = std::make_shared<const std::vector<TokenId>>(std::move(tokens));
    if (roll(40) == 0) cluster_.deadly_sources.insert(source_);
    return source_;
  }

  VirtualCluster& cluster_;
  std::mt19937_64 random_;
  uint64_t source_max_;
  Source source_;
  uint64_t next_ = 1;
};

SchedulerOptions random_options(uint64_t seed) {
  std::mt19937_64 random(seed * 77);
  SchedulerOptions o;
  o.step_tokens = static_cast<int64_t>(8 + random() % 60);
  o.eos_ids = {kEos};
  o.prefix_cache = random() % 3 != 0;
  o.interactive_weight = static_cast<int64_t>(1 + random() % 16);
  o.batch_aging = milliseconds(random() % 2000);
  o.tpot_target = random() % 2 == 0 ? Nanos(0) : Nanos(milliseconds(1 + random() % 10));
  return o;
}

TEST(Cluster, NothingIsLostOrRepeatedWhateverHappens) {
  size_t deaths = 0, preemptions = 0, quarantined = 0, overtaken = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SchedulerOptions o = random_options(seed);
    if (seed % 4 == 0) o.steps_in_flight = 1;
    VirtualCluster cluster(o);
    const bool encodes = seed % 3 == 0;
    RandomLoad load(cluster, seed, encodes ? std::min<int64_t>(o.step_tokens, 40) : 0);
    cluster.back_after = milliseconds(load.roll(300));
    for (uint64_t w = 1 + load.roll(3); w > 0; --w)
      cluster.join({.kv_blocks = static_cast<uint32_t>(40 + load.roll(60)),
                    .kv_block_tokens = 4,
                    .context_max = 150,
                    .step_tokens_max = 64,
                    .step_sequences_max = 8,
                    .overtaking_tokens_max = !encodes && seed % 2 == 0 ? 16U : 0U});
    cluster.after(Nanos(0), [&] { load.arrive(); });
    cluster.run();
    cluster.expect_right_answers();
    EXPECT_LE(cluster.deaths, 2 * (cluster.deadly.size() + cluster.deadly_sources.size()))
        << "a request takes two workers at most";
    deaths += cluster.deaths;
    preemptions += cluster.scheduler().preemptions();
    quarantined += cluster.scheduler().quarantined();
    overtaken += cluster.overtaken;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(deaths, 100u);
  EXPECT_GT(preemptions, 100u);
  EXPECT_GT(quarantined, 50u);
  EXPECT_GT(overtaken, 100u);
}

/// What is served of arrivals at `times` what there is room for; clients that are refused come back when they are told
/// to.
struct Served {
  double tokens_per_s = 0;
  size_t refused = 0, queued_most = 0;
};
Served overload(double times, uint64_t seed) {
  constexpr size_t kQueueMax = 64;
  SchedulerOptions o;
  o.step_tokens = 64;
  o.eos_ids = {kEos};
  o.prefix_cache = false;
  VirtualCluster cluster(o, {}, VirtualCluster::Model::kPlain);
  cluster.join(
      {.kv_blocks = 200, .kv_block_tokens = 16, .context_max = 1000, .step_tokens_max = 512, .step_sequences_max = 16});
  RetryAfter retry_after;
  Served served;
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> pause(0.068 * times);  // per ms; 68 requests a second are about what it can do
  uint64_t next = 1;
  size_t queued = 0;
  cluster.on_end = [&](const Told&) {
    --queued;
    retry_after.ended(cluster.now());
  };
  std::function<void(SequenceRequest)> send = [&](SequenceRequest r) {
    if (queued >= kQueueMax) {
      ++served.refused;
      return cluster.after(retry_after.refused(cluster.now(), queued), [&, r] { send(r); });
    }
    if (queued++ == 0) retry_after.began(cluster.now());
    served.queued_most = std::max(served.queued_most, cluster.scheduler().waiting() + cluster.scheduler().running());
    cluster.submit(r);
  };
  std::function<void()> arrive = [&] {
    send(request(next++, 8 + random() % 120, static_cast<int64_t>(1 + random() % 60)));
    if (cluster.now() < seconds(60))
      cluster.after(std::chrono::microseconds(static_cast<int64_t>(1000 * pause(random))), arrive);
  };
  cluster.after(Nanos(0), arrive);
  cluster.run(seconds(10));
  const int64_t before = cluster.computed[{false, ""}];
  cluster.run(seconds(60));
  served.tokens_per_s = static_cast<double>(cluster.computed[{false, ""}] - before) / 50;
  return served;
}

TEST(Cluster, ThroughputAboveCapacityStaysWhereItsPeakIs) {
  double peak = 0;
  for (const double times : {0.8, 1.0, 1.2, 1.5, 2.0}) peak = std::max(peak, overload(times, 1).tokens_per_s);
  for (const double times : {3.0, 5.0, 10.0}) {
    const Served served = overload(times, 2);
    EXPECT_GE(served.tokens_per_s, 0.95 * peak) << times << " times what it can do";
    std::printf("%4.1f times what there is room for: %.3f of the peak, %zu refused, %zu queued at most\n", times,
                served.tokens_per_s / peak, served.refused, served.queued_most);
    EXPECT_LE(served.queued_most, 64u);
    EXPECT_GT(served.refused, 500u);
  }
}

/// 256 requests at once for a worker whose KV cache holds so many blocks; steps cost what a model of 1.5 B parameters
/// takes on two cores.
struct Filled {
  double requests_per_s = 0;
  uint64_t preemptions = 0;
  double computed = 0;  ///< tokens, of those that there are
};
Filled fill(uint32_t kv_blocks) {
  SchedulerOptions o;
  o.step_tokens = 512;
  o.eos_ids = {kEos};
  o.prefix_cache = false;
  VirtualCluster cluster(o, {.step = milliseconds(70), .token = std::chrono::microseconds(1400)},
                         VirtualCluster::Model::kPlain);
  cluster.join({.kv_blocks = kv_blocks,
                .kv_block_tokens = 16,
                .context_max = 1000,
                .step_tokens_max = 512,
                .step_sequences_max = 256});
  std::mt19937_64 random(1);
  int64_t tokens = 0;
  cluster.on_end = [](const Told&) {};
  for (uint64_t id = 1; id <= 256; ++id) {
    SequenceRequest r = request(id, 8 + random() % 120, static_cast<int64_t>(1 + random() % 128));
    r.ignore_eos = true;
    tokens += static_cast<int64_t>(r.prompt.size()) + r.tokens_max;
    cluster.after(Nanos(0), [&cluster, r] { cluster.submit(r); });
  }
  cluster.run();
  int64_t computed = 0;
  for (const auto& [of, n] : cluster.computed) computed += n;
  return {256 / std::chrono::duration<double>(cluster.now()).count(), cluster.scheduler().preemptions(),
          static_cast<double>(computed) / static_cast<double>(tokens)};
}

TEST(Cluster, ACacheThatIsFullCostsLittle) {
  const Filled ample = fill(256 * 16);
  EXPECT_EQ(ample.preemptions, 0u);
  for (const uint32_t blocks : {128u, 256u, 512u, 1024u}) {
    const Filled full = fill(blocks);
    std::printf("%5u blocks: %.3f of what an ample cache gives, %llu preemptions, %.3f of the tokens computed\n",
                blocks, full.requests_per_s / ample.requests_per_s, static_cast<unsigned long long>(full.preemptions),
                full.computed);
    EXPECT_LT(full.preemptions, 30u) << "without a reserve for those who run it were 140";
    EXPECT_LT(full.computed, 1.05);
  }
  EXPECT_GT(fill(512).requests_per_s, 0.78 * ample.requests_per_s) << "without a reserve it was 0.758";
}

TEST(RetryAfterTest, TellsWhenPlacesComeFree) {
  RetryAfter r;
  r.began(seconds(0));
  for (int i = 1; i <= 20; ++i) r.ended(milliseconds(500) * i);  // two a second
  EXPECT_EQ(r.refused(seconds(10), 100), seconds(1));
  EXPECT_EQ(r.refused(seconds(10), 100), seconds(1)) << "the second place is free after a second";
  for (int i = 3; i <= 10; ++i)
    EXPECT_EQ(r.refused(seconds(10), 100), seconds((i + 1) / 2))
        << "the " << i << "th has to wait for the " << i << "th place";
  for (int i = 0; i < 1000; ++i)
    EXPECT_LE(r.refused(seconds(10), 100), seconds(50)) << "by then all 100 that are queued have ended";
  EXPECT_LE(r.refused(seconds(100), 4), seconds(20))
      << "nothing has ended for long: it takes longer than it did, and nobody knows how long";
}

TEST(RetryAfterTest, WhatWasBeforeAPauseSaysNothing) {
  RetryAfter r;
  r.began(seconds(0));
  r.ended(seconds(1));
  r.began(seconds(5000));
  r.ended(seconds(5001));
  EXPECT_EQ(r.refused(seconds(5001), 10), seconds(1));
  RetryAfter never;
  never.began(seconds(0));
  EXPECT_EQ(never.refused(seconds(0), 10), seconds(1));
  EXPECT_EQ(never.refused(std::chrono::hours(10), 10), seconds(600)) << "never longer";
}

}  // namespace
}  // namespace moestro::orchestrator

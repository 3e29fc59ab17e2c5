// Requests that workers die of: they fail, nobody else does.

#include <gtest/gtest.h>

#include "tests/orchestrator/virtual_cluster.h"

namespace moestro::orchestrator {
namespace {

constexpr WorkerLimits kSuspect{
    .kv_blocks = 1000, .kv_block_tokens = 4, .context_max = 400, .step_tokens_max = 64, .step_sequences_max = 16};

SchedulerOptions quarantining() {
  SchedulerOptions o;
  o.step_tokens = 48;
  o.eos_ids = {kEos};
  return o;
}

/// With a prompt that no other has.
SequenceRequest own_request(uint64_t id, size_t prompt, int64_t tokens) {
  SequenceRequest r = request(id, prompt, tokens);
  r.prompt.front() = static_cast<TokenId>(10 + id);
  return r;
}

TEST(Quarantine, ADeadlyRequestTakesTwoWorkersAndNobodyElse) {
  VirtualCluster cluster(quarantining());
  for (int w = 0; w < 3; ++w) cluster.join(kSuspect);
  cluster.deadly = {7};
  for (uint64_t id = 1; id <= 30; ++id) cluster.submit(own_request(id, 20, 30));
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_EQ(cluster.deaths, 2u);
  ASSERT_TRUE(cluster.told()[7].failed);
  EXPECT_EQ(cluster.told()[7].failed->error.code(), Code::kInternal);
  EXPECT_NE(cluster.told()[7].failed->error.message().find("quarantined: 2 workers died"), std::string::npos);
  EXPECT_EQ(cluster.scheduler().quarantined(), 1u);
}

TEST(Quarantine, AmidAStreamToo) {
  VirtualCluster cluster(quarantining());
  cluster.join(kSuspect);
  for (uint64_t id = 1; id <= 12; ++id) cluster.submit(own_request(id, 20, 60));
  cluster.run(std::chrono::milliseconds(60));
  ASSERT_GT(cluster.told()[5].sampled.size(), 3u) << "it has run well so far";
  cluster.deadly = {5};
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_EQ(cluster.deaths, 2u);
}

TEST(Quarantine, TwoDeadlyOnesInOneBatchTakeThreeAtMost) {
  VirtualCluster cluster(quarantining());
  cluster.join(kSuspect);
  cluster.deadly = {3, 8};
  for (uint64_t id = 1; id <= 12; ++id) cluster.submit(own_request(id, 5, 10));
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_EQ(cluster.deaths, 3u) << "one for both, one for each";
}

TEST(Quarantine, TheOtherChoicesOfARequestGoWithIt) {
  VirtualCluster cluster(quarantining());
  cluster.join(kSuspect);
  for (uint64_t id = 1; id <= 4; ++id) {
    SequenceRequest r = own_request(1, 20, 10);
    r.id = SequenceId{id};
    r.sampling.choice = static_cast<uint32_t>(id);
    cluster.deadly.insert(id);
    cluster.submit(std::move(r));
  }
  cluster.submit(own_request(9, 20, 10));
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_EQ(cluster.deaths, 2u) << "one request";
  EXPECT_EQ(cluster.scheduler().quarantined(), 4u);
}

/// Choices 1 to n of one source.
void submit_choices(VirtualCluster& cluster, uint64_t n, const Source& source) {
  SequenceRequest choice = own_request(1, 1, 10);
  choice.source = source;
  for (uint64_t id = 1; id <= n; ++id) {
    choice.id = SequenceId{id};
    choice.sampling.choice = static_cast<uint32_t>(id);
    cluster.submit(choice);
  }
}

Source source_of(size_t tokens) { return std::make_shared<const std::vector<TokenId>>(tokens, TokenId{5}); }

TEST(Quarantine, ADeadlySourceOfSeveralChoicesTakesTwoWorkers) {
  for (const uint64_t choices : {2, 3, 6, 30}) {
    for (const uint32_t places : {1U, 2U, 16U}) {
      SCOPED_TRACE(std::to_string(choices) + " choices, " + std::to_string(places) + " places");
      VirtualCluster cluster(quarantining());
      WorkerLimits limits = kSuspect;
      limits.step_sequences_max = places;
      cluster.back_after = std::chrono::hours(1);
      for (int w = 0; w < 5; ++w) cluster.join(limits);
      const Source source = source_of(40);
      cluster.deadly_sources = {source};
      submit_choices(cluster, choices, source);
      for (uint64_t id = 101; id <= 104; ++id) cluster.submit(own_request(id, 20, 60));
      cluster.run();
      cluster.expect_right_answers();
      EXPECT_EQ(cluster.deaths, 2u);
      EXPECT_EQ(cluster.scheduler().quarantined(), choices);
    }
  }
}

TEST(Quarantine, AChoiceThatHasItsSourceEncodedClearsTheOthers) {
  VirtualCluster cluster(quarantining());
  WorkerLimits one_each = kSuspect;
  one_each.step_sequences_max = 1;
  cluster.back_after = std::chrono::hours(1);
  for (int w = 0; w < 4; ++w) cluster.join(one_each);
  submit_choices(cluster, 3, source_of(40));
  // Each encodes the source in 6 ms, one after the other. Two die of something else, with a success in between.
  cluster.at(std::chrono::milliseconds(1), [&] { cluster.kill(WorkerId{1}); });
  cluster.at(std::chrono::milliseconds(9), [&] { cluster.kill(WorkerId{3}); });
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_EQ(cluster.scheduler().quarantined(), 0u);
}

TEST(Quarantine, WhoGetsFurtherIsNoSuspectAnyMore) {
  VirtualCluster cluster(quarantining());
  cluster.join(kSuspect);
  for (uint64_t id = 1; id <= 10; ++id) cluster.submit(own_request(id, 30, 80));
  // Workers die again and again, of nothing that was asked of them; in between each sequence gets on a little.
  for (int death = 1; death <= 6; ++death)
    cluster.at(std::chrono::milliseconds(1000 * death - 900), [&] { cluster.kill(cluster.workers().front()); });
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_GE(cluster.deaths, 2u);
}

TEST(Quarantine, SuspectsDoNotHoldUpOthers) {
  VirtualCluster cluster(quarantining());
  cluster.join(kSuspect);
  for (uint64_t id = 1; id <= 8; ++id) cluster.submit(own_request(id, 100, 150));
  cluster.at(std::chrono::milliseconds(300), [&] { cluster.kill(cluster.workers().front()); });  // all are in flight
  cluster.at(std::chrono::milliseconds(810), [&] { cluster.submit(own_request(100, 4, 4)); });
  cluster.run();
  cluster.expect_right_answers();
  const Told& innocent = cluster.told()[100];
  const Nanos full = cluster.cost().of(48);
  EXPECT_LT(*innocent.first_token - innocent.came, 4 * full) << "every other step is not a suspect's";
}

TEST(Quarantine, AWorkerThatComesBackIsUsed) {
  VirtualCluster cluster(quarantining());
  for (int w = 0; w < 2; ++w) cluster.join(kSuspect);
  cluster.back_after = std::chrono::milliseconds(100);
  cluster.kill(cluster.workers().front());
  for (uint64_t id = 1; id <= 40; ++id) cluster.submit(own_request(id, 40, 40));
  cluster.run(std::chrono::milliseconds(150));
  ASSERT_EQ(cluster.workers().size(), 2u);
  cluster.run();
  cluster.expect_right_answers();
  EXPECT_GT(cluster.steps[WorkerId{3}], 50) << "what waited was given to it as well";
}

}  // namespace
}  // namespace moestro::orchestrator

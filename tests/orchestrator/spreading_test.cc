// Prompts that are admitted at one time are spread over workers by length.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "orchestrator/scheduler/scheduler.h"

namespace moestro::orchestrator {
namespace {

TEST(Spreading, WhatADeadWorkerLeavesIsSpreadByLength) {
  SchedulerOptions options;
  options.steps_in_flight = 1;
  Scheduler scheduler(options);
  const WorkerLimits limits{
      .kv_blocks = 100, .kv_block_tokens = 4, .context_max = 400, .step_tokens_max = 512, .step_sequences_max = 16};
  scheduler.step(WorkerJoined{WorkerId{1}, limits});
  uint64_t id = 0;
  for (const size_t length : {12, 12, 12, 12, 50}) {
    SequenceRequest r;
    r.id = SequenceId{++id};
    r.prompt.assign(length, static_cast<TokenId>(id));
    r.tokens_max = 4;
    scheduler.step(Submitted{r});
  }
  for (const uint32_t worker : {2, 3}) scheduler.step(WorkerJoined{WorkerId{worker}, limits});
  std::map<WorkerId, size_t> tokens;
  for (const Action& action : scheduler.step(WorkerLost{WorkerId{1}}))
    if (const auto* send = std::get_if<SendPlan>(&action))
      for (const PlannedSequence& s : send->plan.sequences) tokens[send->worker] += s.tokens.size();
  // The first was in flight, and so runs alone. One after the other the long one would have come beside it, behind two
  // others.
  EXPECT_EQ(std::max(tokens[WorkerId{2}], tokens[WorkerId{3}]), 50u);
  EXPECT_EQ(std::min(tokens[WorkerId{2}], tokens[WorkerId{3}]), 12u);
  EXPECT_EQ(scheduler.inconsistency(), "");
}

}  // namespace
}  // namespace moestro::orchestrator

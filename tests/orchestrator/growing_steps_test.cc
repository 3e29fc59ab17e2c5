// Steps of more tokens than usual: they read prompts faster where a step's time hardly depends on its tokens, and
// nobody waits for them much longer.

#include <gtest/gtest.h>

#include "common/step_tokens.h"
#include "tests/orchestrator/virtual_cluster.h"

namespace moestro::orchestrator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr StepCost kCopies{.step = milliseconds(130), .token = microseconds(8)};     ///< as an H100 with a quarter
constexpr StepCost kComputing{.step = milliseconds(2), .token = microseconds(100)};  ///< of the experts, and with all

SequenceRequest asked(uint64_t id, size_t prompt, int64_t tokens) {
  SequenceRequest r = request(id, prompt, tokens);
  r.flow = "key" + std::to_string(id);
  return r;
}

struct Seen {
  Nanos prompts_done{0}, gap{0}, first_token{0};
};

/// Sequences decode, then long prompts come, and a short one after them. `growing`: as without --step-tokens.
Seen run(const StepCost& cost, bool growing, Nanos target = Nanos(0), int decoding = 4) {
  SchedulerOptions o;
  o.prefix_cache = false;  // every prompt is to be computed
  o.tpot_target = target;
  if (growing) o.step_tokens = SchedulerOptions::kAnyStep, o.usual_step = kUsualStepTokens;
  VirtualCluster cluster(o, cost, VirtualCluster::Model::kPlain);
  cluster.join({.kv_blocks = 4000,
                .kv_block_tokens = 16,
                .context_max = 9000,
                .step_tokens_max = 4096,
                .step_sequences_max = 32});
  for (uint64_t id = 1; id <= static_cast<uint64_t>(decoding); ++id) cluster.submit(asked(id, 20, 3000));
  cluster.at(seconds(1), [&] {
    for (uint64_t id = 11; id <= 14; ++id) cluster.submit(asked(id, 8000, 1));
  });
  cluster.at(seconds(2), [&] { cluster.submit(asked(20, 30, 1)); });
  cluster.run();
  cluster.expect_right_answers();
  Seen seen;
  for (uint64_t id = 1; id <= static_cast<uint64_t>(decoding); ++id)
    seen.gap = std::max(seen.gap, cluster.told()[id].gap_max);
  for (uint64_t id = 11; id <= 14; ++id)
    seen.prompts_done = std::max(seen.prompts_done, *cluster.told()[id].ended - seconds(1));
  seen.first_token = *cluster.told()[20].first_token - seconds(2);
  return seen;
}

TEST(GrowingSteps, PromptsAreReadFasterWhereCopiesBoundSteps) {
  const Seen usual = run(kCopies, false), grown = run(kCopies, true);
  EXPECT_LT(3 * grown.prompts_done, usual.prompts_done);
  EXPECT_LE(grown.gap.count(), 1.25 * static_cast<double>(usual.gap.count())) << "for those that decode meanwhile";
  // Two steps are under way, and one has its prompt.
  EXPECT_LE(grown.first_token, 3 * 5 * kCopies.of(kUsualStepTokens) / 4 + milliseconds(20)) << "behind long ones";
}

TEST(GrowingSteps, NothingChangesMuchWhereComputingBoundsSteps) {
  const Seen usual = run(kComputing, false), grown = run(kComputing, true);
  EXPECT_LE(grown.gap.count(), 2 * static_cast<double>(usual.gap.count())) << "of one that was tried";
  EXPECT_LE(grown.prompts_done.count(), 1.02 * static_cast<double>(usual.prompts_done.count()));
}

TEST(GrowingSteps, WithoutDecodesAStepLastsAtMostTwiceAsLong) {
  SchedulerOptions o;
  o.prefix_cache = false, o.step_tokens = SchedulerOptions::kAnyStep, o.usual_step = kUsualStepTokens;
  VirtualCluster cluster(o, kComputing, VirtualCluster::Model::kPlain);
  cluster.join({.kv_blocks = 4000,
                .kv_block_tokens = 16,
                .context_max = 9000,
                .step_tokens_max = 4096,
                .step_sequences_max = 32});
  for (uint64_t id = 1; id <= 4; ++id) cluster.submit(asked(id, 8000, 1));
  cluster.at(seconds(1), [&] { cluster.submit(asked(5, 20, 1)); });
  cluster.run();
  // Two steps are under way, and one has its prompt.
  EXPECT_LE(*cluster.told()[5].first_token - seconds(1), 3 * 2 * kComputing.of(kUsualStepTokens) + milliseconds(20));
}

TEST(GrowingSteps, ATargetHoldsWithLargeStepsToo) {
  const Nanos target = milliseconds(150);
  const Seen seen = run(kCopies, true, target);
  EXPECT_LE(seen.gap, target + milliseconds(10));
  EXPECT_LT(seen.prompts_done, run(kCopies, false, target).prompts_done);
}

}  // namespace
}  // namespace moestro::orchestrator

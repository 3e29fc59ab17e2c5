// Whose sequences a worker's log names.

#include "services/worker/service/request_names.h"

#include <gtest/gtest.h>

namespace moestro::worker {
namespace {

engine::StepPlan plan_of(const std::vector<uint64_t>& sequences, const std::vector<uint64_t>& released = {}) {
  engine::StepPlan plan;
  for (const uint64_t id : sequences) plan.sequences.emplace_back().id = SequenceId(id);
  for (const uint64_t id : released) plan.released.push_back({SequenceId(id), 0});
  return plan;
}

TEST(RequestNames, StayUntilTheSequenceIsReleased) {
  RequestNames names;
  names.learn(plan_of({1, 2, 3}), {{SequenceId(1), "a"}, {SequenceId(2), "b"}});
  EXPECT_EQ(names.of(plan_of({1, 2, 3})), "a,b");
  names.learn(plan_of({2}, {1}), {});
  EXPECT_EQ(names.of(plan_of({1, 2})), "b");
  names.learn(plan_of({2}, {2}), {{SequenceId(2), "c"}});  // sent back, and here again
  EXPECT_EQ(names.of(plan_of({2})), "c");
  const std::vector<ReleasedSequence> released{{SequenceId(2), 7}};
  names.forget(released);
  EXPECT_EQ(names.of(plan_of({2})), "");
  names.learn(plan_of({2}), {{SequenceId(2), "d"}});
  names.forget_all();
  EXPECT_EQ(names.of(plan_of({2})), "");
}

TEST(RequestNames, ARequestOfSeveralSequencesIsNamedOnceAndMoreThanThreeAreCounted) {
  RequestNames names;
  const auto plan = plan_of({1, 2, 3, 4, 5, 6});
  names.learn(plan, {{SequenceId(1), "a"},
                     {SequenceId(2), "a"},
                     {SequenceId(3), "b"},
                     {SequenceId(4), "c"},
                     {SequenceId(5), "d"},
                     {SequenceId(6), "e"}});
  EXPECT_EQ(names.of(plan), "a,b,c and 2 more");
}

TEST(RequestNames, OfTheFailedAlone) {
  RequestNames names;
  names.learn(plan_of({1, 2}), {{SequenceId(1), "a"}, {SequenceId(2), "b"}});
  engine::StepOutcome outcome;
  outcome.sequences.resize(2);
  outcome.sequences[0].id = SequenceId(1), outcome.sequences[1].id = SequenceId(2);
  EXPECT_EQ(names.of_failed(outcome), "");
  outcome.sequences[1].status = Status(Code::kInternal, "not finite");
  EXPECT_EQ(names.of_failed(outcome), "b");
}

}  // namespace
}  // namespace moestro::worker

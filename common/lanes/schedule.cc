#include "common/lanes/schedule.h"

#include "common/check.h"

namespace moestro::lanes {

void micro_batches_of(const StepShape& step, std::vector<MicroBatchShape>& out) {
  out.assign(step.micro_batches.begin(), step.micro_batches.end());
  if (out.empty()) out.push_back({step.tokens, step.context});
}

TaskId Schedule::assume(int32_t, TaskGraph&) {
  MOESTRO_CHECK(false, "this schedule assumes nothing");
}

void Schedule::retract(int32_t, TaskGraph&) { MOESTRO_CHECK(false, "this schedule assumes nothing"); }

}  // namespace moestro::lanes

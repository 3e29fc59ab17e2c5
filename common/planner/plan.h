#pragma once
// A plan: where everything lies, how fast prompts and decoding are, and what would make them faster.

#include <string>
#include <vector>

#include "common/planner/choose_schedule.h"

namespace moestro::planner {

/// One change, and what it brings.
struct WhatIf {
  std::string what;  ///< "1 GiB more host memory", "a link twice as fast"
  double prompt_tokens_per_s = 0, decode_tokens_per_s = 0;
  double seconds = 0;  ///< of the whole workload
};

struct Plan {
  ScheduleOption choice;       ///< the fastest that workers run; the one that was asked for
  ScheduleSearch search;       ///< of which it is one
  std::vector<WhatIf> what_ifs;  ///< of the choice's schedule, arranged anew
};

/// kExhausted: it does not fit (place()). kInvalidArgument: experts must come from the drive and its rate is not there.
Result<Plan> make_plan(const PlanInput& input);

}  // namespace moestro::planner

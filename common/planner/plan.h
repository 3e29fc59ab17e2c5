#pragma once
// A plan: where everything lies, how fast prompts and decoding are, and what would make them faster.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/planner/forecast.h"
#include "common/planner/placement.h"

namespace moestro::planner {

/// Sequences that run at once, each of a prompt and generated tokens.
struct Workload {
  int64_t prompt = 512, generate = 128, sequences = 1;
  int64_t step_tokens = 512;  ///< the most of one step
};

struct Phase {
  Step step;               ///< a typical one
  StepForecast forecast;   ///< of it
  double tokens = 0;       ///< of all sequences
  double seconds = 0;      ///< for all of them
  double tokens_per_s() const { return seconds > 0 ? tokens / seconds : 0; }
};

/// One change, and what it brings.
struct WhatIf {
  std::string what;  ///< "1 GiB more host memory", "a link twice as fast"
  double prompt_tokens_per_s = 0, decode_tokens_per_s = 0;
  double seconds = 0;  ///< of the whole workload
};

struct Plan {
  Placement placement;
  Phase prompt, decode;
  std::vector<WhatIf> what_ifs;
  double seconds() const { return prompt.seconds + decode.seconds; }
};

struct PlanInput {
  ModelSizes sizes;
  Rates rates;
  Memories memories;
  Needs needs;
  Workload workload;
  bool prefetch = true;
  std::optional<double> device_hits;  ///< measured share of what decoding uses that is found on the device; nullopt:
                                      ///< the resident share, which prompts always have
  std::optional<double> foreseen;     ///< Residency::foreseen
};

/// kExhausted: it does not fit (place()). kInvalidArgument: experts must come from the drive and its rate is not there.
Result<Plan> make_plan(const PlanInput& input);

}  // namespace moestro::planner

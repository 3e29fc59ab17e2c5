#pragma once
// How many tokens a step may have. A step of the layerwise schedule brings nearly every expert that is not there once,
// however many tokens it has, so larger steps read prompts faster until computing takes as long as bringing. They cost
// buffers, which take room from experts, and time for requests that wait for the step that runs.

#include <functional>
#include <span>

#include "common/planner/choose_schedule.h"

namespace moestro::planner {

/// The lines of a batch that fill a KV cache: of 512 + 128 tokens each, or in that proportion where the context is
/// shorter. What is chosen for a server, whose requests are not known, is chosen for these.
Workload lines_that_fill(int64_t kv_tokens, int64_t context);

struct StepSize {
  int64_t tokens = 0;
  double prompt_tokens_per_s = 0;        ///< with it, forecast; 0: not asked for, since every expert is there
  double usual_prompt_tokens_per_s = 0;  ///< with steps of the usual size
};

/// The sizes that are compared: the usual one and those above it. More was not measured.
std::span<const int64_t> step_sizes();

/// The size for a workload under layerwise. `input(n)` is the plan's input with buffers for steps of n tokens. Each
/// size must read prompts a tenth faster than smaller ones, since forecasts may be off by that. Against the usual size,
/// a step may last twice as long, and what larger buffers take from experts may slow decoding by a fiftieth. Errors:
/// the usual size does not fit, or its input could not be made.
Result<StepSize> choose_step_size(const std::function<Result<PlanInput>(int64_t)>& input);

}  // namespace moestro::planner

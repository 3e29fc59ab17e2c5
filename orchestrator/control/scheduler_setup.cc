#include "orchestrator/control/scheduler_setup.h"

#include "common/step_tokens.h"
#include "orchestrator/control/control_plane.h"
#include "orchestrator/scheduler/prefix_key.h"

namespace moestro::orchestrator {

SchedulerOptions scheduler_options(const ControlOptions& options) {
  SchedulerOptions s;
  if (options.step_tokens)
    s.step_tokens = *options.step_tokens;
  else
    s.step_tokens = SchedulerOptions::kAnyStep, s.usual_step = kUsualStepTokens;
  s.steps_in_flight = options.steps_in_flight;
  s.eos_ids = options.eos_ids;
  s.worker_wait = options.worker_wait;
  s.tpot_target = options.tpot_target;
  s.overtaking = options.overtaking;
  s.interactive_weight = options.interactive_weight;
  s.batch_aging = options.batch_aging;
  s.prefix_cache = options.prefix_cache;
  s.prefix_secret = random_prefix_secret();
  return s;
}

}  // namespace moestro::orchestrator

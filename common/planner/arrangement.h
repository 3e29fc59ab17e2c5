#pragma once
// What a plan may choose: the schedule, how a step's rows are cut, and where weights and KV cache have their home.

#include <cstdint>

#include "common/planner/plan_input.h"
#include "common/planner/schedule_name.h"

namespace moestro::planner {

struct Arrangement {
  ScheduleName schedule = ScheduleName::kLayerwise;
  int64_t micro_batches = 1;
  int64_t rows = 1;         ///< sequences of a micro-batch
  double dense_share = 1;   ///< r_w: of each layer's dense weights, what stays on the device; cgo: of all its weights,
                            ///< and on workers' devices 1, as they decide which experts they hold. With other
                            ///< schedules, there it follows from their memory
  double kv_share = 1;      ///< r_c: of the KV cache, what stays on the device; the rest is in host memory
  int64_t slots = 0;        ///< expert-pipeline: room for experts that come and go; the other room is of residents.
                            ///< Not of workers, whose devices decide
  bool ahead = true;        ///< expert-pipeline: a layer's experts come before its routers have chosen. Not of
                            ///< workers, which bring what is foreseen

  int64_t sequences() const { return micro_batches * rows; }  ///< that run at once
};

/// The most tokens of a step.
int64_t step_tokens(const Workload& workload, const Arrangement& arrangement);

/// Rows of a phase's steps, and how they are cut.
struct PhaseSteps {
  int64_t micro_batches = 1;  ///< of a step; a sequence is in one of them
  Step all;               ///< of a step
  Step micro;             ///< of one of its micro-batches
  double cached = 0;      ///< of a micro-batch: positions in the KV cache before the step
  double tokens = 0;      ///< of the whole phase
  double steps = 1;       ///< of the whole phase
};
PhaseSteps prompt_steps(const Workload& workload, const Arrangement& arrangement);
PhaseSteps decode_steps(const Workload& workload, const Arrangement& arrangement);

/// Of a layer's experts, those that a step of so many rows uses under even routing.
double used_share(const ModelSizes& sizes, double rows);

/// Of the experts that a memory has room for, those that stay there from step to step, if each step uses `used` of all
/// (a share). The others are on their way: of those that a step brings, one is being filled, one waits, one computes.
double staying_experts(int64_t room, int64_t all, double used);

/// What the arrangement takes of each memory, in addition to experts.
Needs needs_of(const PlanInput& input, const Arrangement& arrangement);
/// Where it all lies. kExhausted: it does not fit; the least that would, as place() says it.
Result<Placement> place(const PlanInput& input, const Arrangement& arrangement);

/// cgo: the most of all layers' weights that can stay on the device. 0 where even the buffers do not fit.
double largest_weight_share(const PlanInput& input, Arrangement arrangement);

/// Of a layer, what is not an expert; and all of it.
double layer_dense_bytes(const ModelSizes& sizes, const LayerSizes& layer);
double layer_bytes(const ModelSizes& sizes, const LayerSizes& layer);

}  // namespace moestro::planner

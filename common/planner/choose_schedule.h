#pragma once
// The search over schedules: for each the arrangement that finishes the workload soonest, under all memories at once.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/planner/arrangement.h"
#include "common/planner/bubbles.h"

namespace moestro::planner {

inline constexpr int64_t kLayerwiseSequencesMax = 256;  ///< of a step: EngineOptions::step_sequences_max of workers

struct Phase {
  Step step;               ///< a typical one
  StepForecast forecast;   ///< of it
  double tokens = 0;       ///< of all sequences
  double seconds = 0;      ///< for all of them
  double tokens_per_s() const { return seconds > 0 ? tokens / seconds : 0; }
};

/// An arrangement and what it gives.
struct ScheduleOption {
  Arrangement arrangement;
  Placement placement;
  Phase prompt, decode;
  bool runs = false;                ///< workers run this schedule on this device
  std::vector<Inequality> bubbles;  ///< expert-pipeline
  std::optional<int64_t> bubble_free;  ///< expert-pipeline: micro-batches with which nothing would be short
  double seconds() const { return prompt.seconds + decode.seconds; }
};

struct LeftOut {
  ScheduleName schedule = ScheduleName::kLayerwise;
  std::string why;
};

/// Which memories and rates `in` has decides which schedules are considered.
struct ScheduleSearch {
  std::vector<ScheduleOption> options;  ///< the best of each schedule, the fastest first
  std::vector<LeftOut> left_out;
  int64_t candidates = 0;               ///< that were compared
};

/// The phases of one arrangement: layerwise in closed form, which has been compared with runs, the others on virtual
/// lanes. kExhausted: it does not fit. kInvalidArgument: it needs a drive of unknown speed.
Result<ScheduleOption> forecast_arrangement(const PlanInput& input, const Arrangement& arrangement);

/// Whether experts are read from the drive with as many sequences at once as fit, with the KV cache on the device or in
/// host memory. Then the search needs the drive's rate. Asks for no rates.
bool may_need_drive(const PlanInput& input);

/// All schedules, or `input.schedule` alone. First every arrangement in closed form, then the best few on virtual
/// lanes. kExhausted and kInvalidArgument: not even layerwise with one sequence at a time, or not the one that is asked
/// for.
Result<ScheduleSearch> search_schedules(const PlanInput& input);

/// The fastest of the options that workers run on this device. layerwise, unless another one is forecast to take a
/// tenth less, which is what forecasts may be off. Null: workers run none of them. Valid as long as `search`.
const ScheduleOption* chosen(const ScheduleSearch& search);

/// What `--schedule auto` takes: chosen() of all schedules. kUnsupported: `input.schedule` names one that workers do
/// not run on this device.
Result<ScheduleOption> choose_schedule(const PlanInput& input);

}  // namespace moestro::planner

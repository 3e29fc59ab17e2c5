#pragma once
// What a plan comes to on a box: the settings that run it, and `--schedule auto` of `moestro up`.

#include <optional>
#include <string>

#include "common/config/box_config.h"
#include "common/planner/choose_schedule.h"
#include "orchestrator/api/forecast.h"
#include "services/cli/plan/plan_rates.h"

namespace moestro::cli {

/// All that a plan is made of. Its rates are not there yet.
struct PlanParts {
  PlannedModel model;
  PlannedMemory memory;
  planner::PlanInput input;
};
Result<PlanParts> plan_parts(const PlanOptions& options, const Hardware* hardware);

/// The settings with which workers run the choice of a plan for this input. Those that are the defaults are left alone,
/// and so is the number of tokens in the KV cache if it is there.
void take_plan(const planner::PlanInput& input, const planner::ScheduleOption& choice, config::BoxConfig& box);
/// The same as flags of `moestro up`; empty: the defaults do it.
std::string plan_flags(const planner::PlanInput& input, const planner::ScheduleOption& choice);

/// What --step-tokens auto is on this box, put into `box` as workers.step_buffers: more than the usual number where a
/// worker on a CPU or an emulated device has no room for all experts and larger steps are forecast to read prompts
/// faster (planner::choose_step_size). It goes by measured rates, or by typical ones. Before plan_schedule(), whose
/// steps are as large. Returns a line for the user, or nothing where steps stay as they are.
std::string plan_steps(config::BoxConfig& box);

/// What --schedule auto is on this box, put into `box`: the planner's choice for a batch of as many sequences as the KV
/// cache holds, with steps as long as they are configured. Where the planner is not asked, `box` stays as it is, which
/// is layerwise, or expert-pipeline where --kv-home host is given. It is asked if one worker on a CPU or an emulated
/// device has no room for all experts, whose model keeps no states of sequences, with no --mixed, and rates of this
/// machine and pack have been measured by `moestro plan`: a start never waits for a measurement. It never moves KV.
/// Returns a line for the user: the choice, or which command measures; empty: there is nothing to say.
std::string plan_schedule(config::BoxConfig& box);

/// What this box will do with a batch that fills its KV cache, once plan_steps() and plan_schedule() have chosen. Only
/// for one worker on a CPU or an emulated device, with rates that have been measured, without what forecasts do not
/// know: low copies, windows, KV whose home is host memory.
std::optional<orchestrator::Forecast> forecast_box(const config::BoxConfig& box);

}  // namespace moestro::cli

#include "common/planner/plan.h"

#include <algorithm>
#include <utility>

namespace moestro::planner {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int64_t kLargerSteps = 4;

/// Nobody has to use what there is more of, so it is never a loss.
void add_what_if(Plan& plan, const PlanInput& changed, std::string what) {
  const auto then = search_schedules(changed);
  if (!then.is_ok()) return;
  const ScheduleOption& best = then->options.front();
  const ScheduleOption& better = best.seconds() < plan.choice.seconds() ? best : plan.choice;
  plan.what_ifs.push_back(
      {std::move(what), better.prompt.tokens_per_s(), better.decode.tokens_per_s(), better.seconds()});
}

void add_what_ifs(Plan& plan, PlanInput in) {
  in.schedule = plan.choice.arrangement.schedule;
  PlanInput more = in;
  if (in.memories.device != Memories::Device::kHost) {
    more.memories.device_bytes += kGiB;
    // On an emulated device it is the host's memory too.
    if (in.memories.device == Memories::Device::kExpertsOnly) more.memories.host_bytes += kGiB;
    if (const double share = plan.choice.placement.device_share(); in.device_hits && share > 0) {
      // The measured share grows as the resident one does, up to everything.
      const auto placed = place(more, plan.choice.arrangement);
      if (placed.is_ok()) more.device_hits = std::min(1.0, *in.device_hits * placed->device_share() / share);
    }
    add_what_if(plan, more, "1 GiB more device memory");
  }
  more = in;
  more.memories.host_bytes += kGiB;
  if (more.memories.arena_bytes) *more.memories.arena_bytes += kGiB;
  add_what_if(plan, more, "1 GiB more host memory");
  if (in.memories.device != Memories::Device::kHost) {
    more = in;
    if (more.rates.link_bytes_per_s) *more.rates.link_bytes_per_s *= 2;
    add_what_if(plan, more, "a link twice as fast");
  }
  if (in.rates.drive_bytes_per_s) {
    more = in;
    *more.rates.drive_bytes_per_s *= 2;
    add_what_if(plan, more, "a drive twice as fast");
  }
  const int64_t step = step_tokens(in.workload, plan.choice.arrangement);
  if (in.workload.prompt * in.workload.sequences > step) {
    more = in;
    const int64_t larger = kLargerSteps * step / in.workload.step_tokens;
    more.workload.step_tokens *= larger, more.workload.steps_grow = false;
    more.needs.workspace_bytes *= static_cast<uint64_t>(larger);  // nearly all of it is for a step's rows
    add_what_if(plan, more, "--step-tokens " + std::to_string(more.workload.step_tokens));
  }
}

}  // namespace

Result<Plan> make_plan(const PlanInput& input) {
  Plan plan;
  MOESTRO_ASSIGN_OR_RETURN(plan.search, search_schedules(input));
  const ScheduleOption* const choice = chosen(plan.search);
  plan.choice = choice != nullptr ? *choice : plan.search.options.front();
  add_what_ifs(plan, input);
  return plan;
}

}  // namespace moestro::planner

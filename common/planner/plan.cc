#include "common/planner/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace moestro::planner {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr int64_t kLargerSteps = 4;
constexpr int kSmallerShares[] = {75, 50, 25, 0};  ///< of the layers' dense weights that stay, in percent
constexpr double kWorthSaying = 0.99;              ///< of the time that the choice takes

/// Nobody has to use what there is more of, so it is never a loss.
void add_what_if(Plan& plan, const PlanInput& changed, std::string what) {
  const auto then = search_schedules(changed);
  if (!then.is_ok()) return;
  const ScheduleOption& best = then->options.front();
  const ScheduleOption& better = best.seconds() < plan.choice.seconds() ? best : plan.choice;
  plan.what_ifs.push_back(
      {std::move(what), better.prompt.tokens_per_s(), better.decode.tokens_per_s(), better.seconds()});
}

/// The measured share of hits grows as the resident one does, up to everything.
void scale_hits(const Plan& plan, PlanInput& changed) {
  const double share = plan.choice.placement.device_share();
  if (!changed.device_hits || share <= 0) return;
  const auto placed = place(changed, plan.choice.arrangement);
  if (placed.is_ok()) changed.device_hits = std::min(1.0, *changed.device_hits * placed->device_share() / share);
}

/// Room that dense weights leave is for experts and sequences. A layer's copy is known beforehand and an expert's is
/// not, so where the link has time to spare, this can be faster though the link carries more.
void add_smaller_share(Plan& plan, const PlanInput& in) {
  std::optional<WhatIf> best;
  for (const int percent : kSmallerShares) {
    PlanInput less = in;
    less.memories.dense_share = percent / 100.0;
    if (less.memories.dense_share >= in.memories.dense_share) continue;
    scale_hits(plan, less);
    const auto then = search_schedules(less);
    if (!then.is_ok()) continue;
    const ScheduleOption& option = then->options.front();
    if (option.seconds() >= (best ? best->seconds : kWorthSaying * plan.choice.seconds())) continue;
    best = WhatIf{"dense=" + std::to_string(percent) + "% in --device", option.prompt.tokens_per_s(),
                  option.decode.tokens_per_s(), option.seconds()};
  }
  if (best) plan.what_ifs.push_back(std::move(*best));
}

void add_what_ifs(Plan& plan, PlanInput in) {
  in.schedule = plan.choice.arrangement.schedule;
  PlanInput more = in;
  if (in.memories.device != Memories::Device::kHost) {
    more.memories.device_bytes += kGiB;
    // On an emulated device it is the host's memory too.
    if (in.memories.device == Memories::Device::kExpertsOnly) more.memories.host_bytes += kGiB;
    scale_hits(plan, more);
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
  if (in.memories.device == Memories::Device::kExpertsOnly && in.memories.counts_dense) add_smaller_share(plan, in);
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

#include "common/planner/plan.h"

#include <algorithm>
#include <utility>

namespace moestro::planner {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

Phase prompt_phase(const PlanInput& in, const Residency& at) {
  const Workload& w = in.workload;
  Phase phase;
  phase.tokens = static_cast<double>(w.prompt * w.sequences);
  const double rows = std::min(static_cast<double>(w.step_tokens), phase.tokens), steps = phase.tokens / rows;
  phase.step = {.rows = rows,
                .logit_rows = rows / static_cast<double>(w.prompt),
                .context = (static_cast<double>(w.prompt) + 1) / 2,
                .prompt = true};
  phase.forecast = forecast_step(in.sizes, in.rates, at, phase.step);
  phase.seconds = steps * phase.forecast.seconds;
  return phase;
}

Phase decode_phase(const PlanInput& in, const Residency& at) {
  const Workload& w = in.workload;
  Phase phase;
  phase.tokens = static_cast<double>(w.generate * w.sequences);
  const auto rows = static_cast<double>(std::min(w.sequences, w.step_tokens));
  const double context = static_cast<double>(w.prompt) + (static_cast<double>(w.generate) + 1) / 2;
  phase.step = {.rows = rows, .logit_rows = rows, .context = context};
  phase.forecast = forecast_step(in.sizes, in.rates, at, phase.step);
  phase.seconds = phase.tokens / rows * phase.forecast.seconds;
  return phase;
}

Residency residency(const PlanInput& in, const Placement& placement) {
  Residency at;
  at.device_memory = in.memories.device != Memories::Device::kHost;
  at.device_share = at.device_memory ? placement.device_share() : 1;
  at.host_share = placement.host_share();
  at.prefetch = in.prefetch;
  at.foreseen = in.foreseen;
  return at;
}

/// Without what-ifs.
Result<Plan> plan_once(const PlanInput& in) {
  Plan plan;
  MOESTRO_ASSIGN_OR_RETURN(plan.placement, place(in.needs, in.memories));
  const Residency scan = residency(in, plan.placement);
  Residency at = scan;
  if (in.device_hits && scan.device_share < 1) at.device_share = *in.device_hits;  // nothing misses if all is there
  if (plan.placement.needs_drive() && !in.rates.drive_bytes_per_s)
    return invalid_argument("the drive's rate is missing: host memory holds " +
                            std::to_string(plan.placement.host_experts) + " of " +
                            std::to_string(plan.placement.experts) + " experts");
  plan.prompt = prompt_phase(in, scan);
  plan.decode = decode_phase(in, at);
  return plan;
}

void add_what_if(Plan& plan, const PlanInput& changed, std::string what) {
  const auto then = plan_once(changed);
  if (!then.is_ok()) return;
  plan.what_ifs.push_back({std::move(what), then->prompt.tokens_per_s(), then->decode.tokens_per_s(), then->seconds()});
}

void add_what_ifs(Plan& plan, const PlanInput& in) {
  PlanInput more = in;
  if (in.memories.device != Memories::Device::kHost) {
    more.memories.device_bytes += kGiB;
    // On an emulated device it is the host's memory too.
    if (in.memories.device == Memories::Device::kExpertsOnly) more.memories.host_bytes += kGiB;
    if (in.device_hits && plan.placement.device_share() > 0) {
      // The measured share grows as the resident one does, up to everything.
      const auto placed = place(more.needs, more.memories);
      if (placed.is_ok())
        more.device_hits =
            std::min(1.0, *in.device_hits * placed->device_share() / plan.placement.device_share());
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
}

}  // namespace

Result<Plan> make_plan(const PlanInput& input) {
  MOESTRO_ASSIGN_OR_RETURN(Plan plan, plan_once(input));
  add_what_ifs(plan, input);
  return plan;
}

}  // namespace moestro::planner

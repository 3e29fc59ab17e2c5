#include "orchestrator/control/worker_figures.h"

namespace moestro::orchestrator {

namespace {
constexpr size_t kNamesMax = 4096;
}

ControlSnapshot::Worker figures_of(const Registration& registration) {
  ControlSnapshot::Worker figures;
  figures.name = registration.name, figures.device = registration.device;
  figures.kv_blocks = registration.limits.kv_blocks;
  return figures;
}

void count_step(const StepReport& report, ControlSnapshot::Worker& worker, ControlSnapshot& all) {
  ++worker.plans;
  if (worker.plans_in_flight > 0) --worker.plans_in_flight;
  worker.last_step_us = report.step_us;
  worker.step_us += report.step_us, worker.stall_us += report.stall_us;
  worker.expert_hits += report.expert_hits, worker.expert_misses += report.expert_misses;
  ++all.plans;
  all.steps.add(static_cast<double>(report.step_us) * 1e-6);
  all.step_us += report.step_us, all.stall_us += report.stall_us;
  all.expert_hits += report.expert_hits, all.expert_misses += report.expert_misses;
  all.fetched_bytes += report.fetched_bytes;
  all.nonfinite_sequences += report.nonfinite_sequences;
  all.dropped_rows += report.dropped_rows;
}

bool NamesSeen::again(const std::string& name) {
  if (names_.contains(name)) return true;
  if (names_.size() < kNamesMax) names_.insert(name);
  return false;
}

}  // namespace moestro::orchestrator

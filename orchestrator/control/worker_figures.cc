#include "orchestrator/control/worker_figures.h"

#include <algorithm>

namespace moestro::orchestrator {

namespace {

constexpr size_t kNamesMax = 4096;
// Since the result before, that is of one step or a few. Nobody's device does more.
constexpr uint64_t kUsesMax = 1 << 24;  ///< of a layer
constexpr uint64_t kBytesMax = uint64_t{1} << 50;
constexpr uint64_t kBusyMicrosMax = 24ULL * 3'600'000'000;  ///< a machine may have slept

bool absurd(const DeviceWork& w) {
  return std::max({w.host_experts, w.host_rows, w.rewinds}) > kUsesMax ||
         std::max(w.kv_in_bytes, w.kv_out_bytes) > kBytesMax;
}
bool absurd(const DeviceUse& u) {
  return std::max({u.hits, u.misses, u.evictions, u.prefetched, u.prefetched_used, u.prefetched_wasted}) > kUsesMax;
}

void count_device(const DeviceStep& said, ControlSnapshot::Worker& worker, ControlSnapshot& all) {
  for (DeviceTotals* of : {&worker.device_totals, &all.device}) {
    for (const DeviceUse& layer : said.layers) of->use += layer;
    of->work += said.work;
    of->moved_bytes += said.moved_bytes, of->wasted_bytes += said.wasted_bytes, of->link_busy_us += said.link_busy_us;
    of->staged_bytes += said.staged_bytes;
  }
  // Workers of a pack with other layers may have come since this one did: then it is on its way out.
  if (all.device_layers.size() == said.layers.size())
    for (size_t i = 0; i < said.layers.size(); ++i) all.device_layers[i] += said.layers[i];
  worker.device_resident = said.resident;
  if (said.recent.uses > 0) worker.recent = said.recent;
}

/// Those of a pack with other layers begin anew.
void count_copies(std::span<const CopyCounts> said, std::vector<CopyCounts>& all) {
  if (all.size() != said.size()) all.assign(said.size(), {});
  for (size_t i = 0; i < said.size(); ++i) all[i] += said[i];
}

}  // namespace

ControlSnapshot::Worker begin_figures(const Registration& r, ControlSnapshot& all) {
  ControlSnapshot::Worker figures;
  figures.name = r.name, figures.device = r.device;
  figures.kv_blocks = r.limits.kv_blocks;
  figures.moe_layers = static_cast<uint32_t>(r.experts.layers);
  figures.device_slots = r.device_slots, figures.device_slot_bytes = r.device_slot_bytes;
  if (figures.has_device() && all.device_layers.size() != figures.moe_layers)
    all.device_layers.assign(figures.moe_layers, {});
  return figures;
}

Status check_device(const DeviceStep& said, const ControlSnapshot::Worker& worker) {
  const std::string who = "worker " + worker.name + "'s figures of its device: ";
  if (!worker.has_device()) return internal_error(who + "it has registered none with a memory of its own");
  if (said.layers.size() != worker.moe_layers)
    return internal_error(who + std::to_string(said.layers.size()) + " layers, but its model has " +
                          std::to_string(worker.moe_layers));
  if (said.resident > worker.device_slots)
    return internal_error(who + std::to_string(said.resident) + " experts in " + std::to_string(worker.device_slots) +
                          " slots");
  if (std::max({said.moved_bytes, said.wasted_bytes, said.staged_bytes}) > kBytesMax ||
      said.link_busy_us > kBusyMicrosMax ||
      absurd(said.work) || std::ranges::any_of(said.layers, [](const DeviceUse& layer) { return absurd(layer); }))
    return internal_error(who + "a count that no device reaches between two results");
  const RecentUses& r = said.recent;
  if (r.uses > kUsesMax || std::max({r.hits, r.lru_hits, r.belady_hits}) > r.uses)
    return internal_error(who + "more hits than uses of late");
  return Status::ok();
}

Status check_copies(std::span<const CopyCounts> by_layer, const ControlSnapshot::Worker& worker) {
  const std::string who = "worker " + worker.name + "'s counts of low copies: ";
  if (by_layer.size() != worker.moe_layers)
    return internal_error(who + std::to_string(by_layer.size()) + " layers, but its model has " +
                          std::to_string(worker.moe_layers));
  if (!std::ranges::all_of(by_layer, &CopyCounts::is_possible))
    return internal_error(who + "more than the choices of a layer");
  return Status::ok();
}

void count_step(StepReport& report, ControlSnapshot::Worker& worker, ControlSnapshot& all) {
  ++worker.plans;
  if (worker.plans_in_flight > 0) --worker.plans_in_flight;
  worker.last_step_us = report.step_us;
  worker.step_us += report.step_us, worker.stall_us += report.stall_us;
  worker.expert_hits += report.expert_hits, worker.expert_misses += report.expert_misses;
  ++all.plans;
  all.steps.add(static_cast<double>(report.step_us) * 1e-6);
  all.step_us += report.step_us, all.stall_us += report.stall_us;
  all.parks += report.parks, all.parked_us += report.parked_us;
  all.expert_hits += report.expert_hits, all.expert_misses += report.expert_misses;
  all.fetched_bytes += report.fetched_bytes;
  all.dense_bytes += report.dense_bytes, all.dense_stall_us += report.dense_stall_us;
  all.kv_stall_us += report.kv_stall_us;
  all.nonfinite_sequences += report.nonfinite_sequences;
  all.dropped_rows += report.dropped_rows;
  for (const SequenceOutcome& s : report.outcome.sequences)
    if (s.error.is_ok()) all.copies += s.copies;
  if (worker.has_device()) {
    for (DeviceTotals* of : {&worker.device_totals, &all.device})
      of->step_us += report.step_us, of->stall_us += report.expert_stall_us();
  } else {
    all.dram_hits += report.expert_hits, all.dram_misses += report.expert_misses,
        all.dram_fetched_bytes += report.fetched_bytes;
  }
  if (!report.layer_copies.empty()) {
    if (Status fits = check_copies(report.layer_copies, worker); fits.is_ok())
      count_copies(report.layer_copies, worker.has_device() ? all.device_copies : all.dram_copies);
    else report.outcome.error = std::move(fits);
  }
  if (!report.device) return;
  if (Status fits = check_device(*report.device, worker); fits.is_ok()) count_device(*report.device, worker, all);
  else report.outcome.error = std::move(fits);
}

void count_kind(const StepReport& report, const PlanWork& work, ControlSnapshot& all) {
  if (work.tokens == 0 || !report.outcome.error.is_ok()) return;
  StepTotals& of = work.reads_prompts ? all.prompt_steps : all.decoding_steps;
  ++of.steps;
  of.tokens += static_cast<uint64_t>(work.tokens), of.step_us += report.step_us, of.stall_us += report.stall_us;
  of.dense_stall_us += report.dense_stall_us, of.kv_stall_us += report.kv_stall_us;
}

bool NamesSeen::again(const std::string& name) {
  if (names_.contains(name)) return true;
  if (names_.size() < kNamesMax) names_.insert(name);
  return false;
}

}  // namespace moestro::orchestrator

#include "common/tier/replay_tally.h"

namespace moestro::tier {

ReplayTally::ReplayTally(const Routes& routes, const ReplaySource& source, const DeviceMemory* device,
                         ReplayHost* host, size_t warm)
    : source_(source),
      device_(device),
      host_(host),
      keys_(static_cast<Key>(routes.layers * routes.experts)),
      warm_(warm),
      by_request_(routes.requests.size()) {
  report_.layer_uses.resize(static_cast<size_t>(routes.layers));
  report_.layer_hits.resize(static_cast<size_t>(routes.layers));
}

/// What the memory that experts are computed from did.
TierCounters ReplayTally::counters() const {
  if (device_ != nullptr) return device_->tier().counters();
  const HostCounters host = host_counters();
  TierCounters c;
  c.hits = host.hits, c.late = host.late, c.misses = host.misses - host.late, c.evictions = host.evictions;
  c.prefetched = host.prefetched, c.prefetched_used = host.prefetched_used;
  c.prefetched_wasted = host.prefetched_wasted, c.wasted_bytes = host.wasted_bytes;
  c.dropped_prefetches = host.dropped, c.moved_bytes = host.read_bytes, c.link_busy = host.drive_busy;
  return c;
}

void ReplayTally::begin_step(const ReplayStep& step) {
  step_ = &step;
  before_ = counters(), host_before_ = host_counters();
  drive_stall_ = {};
  counts_after_ = !step.scan && after_prompt_ > 0;
  after_prompt_ -= counts_after_;
  if (!step.scan) return;
  held_.clear();
  for (Key key = 0; key < keys_; ++key)
    if (source_.holds(key)) held_.push_back(key);
}

void ReplayTally::served(uint64_t tokens, Way way) {
  if (!counted() || step_->scan) return;
  report_.choices += tokens;
  report_.skipped += way == Way::kSkip ? tokens : 0;
  report_.low += way == Way::kLow ? tokens : 0;
  report_.on_cpu += way == Way::kCpu ? tokens : 0;
}

void ReplayTally::used(int32_t layer, Found found, double share) {
  if (!counted()) return;
  if (step_->scan) {
    ++report_.prompt_uses;
    return;
  }
  const bool hit = found == Found::kHit;
  ++report_.uses, report_.hits += hit, report_.late += found == Found::kLate;
  report_.penalty += hit ? 0 : share;
  report_.after_uses += counts_after_, report_.after_hits += counts_after_ && hit;
  ++report_.layer_uses[static_cast<size_t>(layer)], report_.layer_hits[static_cast<size_t>(layer)] += hit;
  if (step_->sequences.size() != 1) return;
  auto& [uses, hits] = by_request_[static_cast<size_t>(step_->sequences[0].sequence - 1)];
  ++uses, hits += hit;
}

void ReplayTally::end_step(Nanos elapsed, Nanos stalled) {
  report_.total_time += elapsed, report_.total_stall += stalled;
  // Prompts have steps of their own, next after each other, so this one is of the request that began last.
  if (!step_->sequences.empty() && !step_->sequences.front().decode && !order_.empty())
    report_.first_token_at.back() = report_.total_time;
  if (!counted()) return;
  const TierCounters now = counters();
  const uint64_t moved = now.moved_bytes - before_.moved_bytes;
  const HostCounters host = host_counters() - host_before_;
  if (step_->scan) {
    ++report_.prompt_steps, report_.prompt_tokens += step_->tokens.size();
    report_.prompt_time += elapsed, report_.prompt_stall += stalled;
    report_.prompt_moved_bytes += moved, report_.prompt_host += host;
    report_.prompt_held += held_.size();
    for (const Key key : held_) report_.prompt_kept += source_.holds(key);
    after_prompt_ = ReplayReport::kAfterPrompt;
    return;
  }
  ++report_.steps, report_.tokens += step_->tokens.size();
  report_.time += elapsed, report_.stall += stalled, report_.drive_stall += drive_stall_;
  report_.moved_bytes += moved, report_.wasted_bytes += now.wasted_bytes - before_.wasted_bytes;
  report_.host += host;
}

ReplayReport ReplayTally::report() const {
  ReplayReport report = report_;
  for (const size_t request : order_) {
    const auto [uses, hits] = by_request_[request];
    if (uses > 0) report.request_hit_rate.push_back(static_cast<double>(hits) / static_cast<double>(uses));
  }
  report.counters = counters();
  return report;
}

}  // namespace moestro::tier

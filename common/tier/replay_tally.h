#pragma once
// Counts what a replay's steps did, for its report.

#include <utility>
#include <vector>

#include "common/tier/replay_memory.h"

namespace moestro::tier {

class ReplayTally {
 public:
  /// `device`: null on a CPU. `host`: null if host memory has everything.
  ReplayTally(const Routes& routes, const ReplaySource& source, const DeviceMemory* device, ReplayHost* host,
              size_t warm);

  void request_began(size_t request) {
    order_.push_back(request);
    report_.began_at.push_back(report_.total_time);
    report_.first_token_at.push_back(report_.total_time);
  }
  void begin_step(const ReplayStep& step);
  /// An expert of `layer` was needed. `share`: of a full copy's bytes, its copy's.
  void used(int32_t layer, Found found, double share = 1);
  /// So many tokens chose an expert, which was served so.
  void served(uint64_t tokens, Way way);
  void waited(Nanos time, bool for_drive) { drive_stall_ += for_drive ? time : Nanos{0}; }
  void end_step(Nanos elapsed, Nanos stalled);
  ReplayReport report() const;

 private:
  HostCounters host_counters() const { return host_ != nullptr ? host_->counters() : HostCounters{}; }
  TierCounters counters() const;
  bool counted() const { return order_.size() > warm_; }

  const ReplaySource& source_;
  const DeviceMemory* const device_;
  ReplayHost* const host_;
  const Key keys_;
  const size_t warm_;  ///< ReplaySetup::warm
  ReplayReport report_;
  std::vector<std::pair<uint64_t, uint64_t>> by_request_;  ///< uses, hits
  std::vector<size_t> order_;  ///< in which requests began

  const ReplayStep* step_ = nullptr;
  TierCounters before_;        ///< the step
  HostCounters host_before_;
  std::vector<Key> held_;      ///< before a step of prompts
  Nanos drive_stall_{0};       ///< of the step
  int after_prompt_ = 0;       ///< decoding steps that still come next after one
  bool counts_after_ = false;  ///< this is such a step
};

}  // namespace moestro::tier

#pragma once
// The last five minutes of /v1/moestro/status: for a page that has just been opened, and for latencies of late.

#include <array>
#include <cstddef>
#include <deque>
#include <nlohmann/json.hpp>
#include <vector>

namespace moestro::orchestrator {

/// Samples of a status, one a second. Each keeps kMembers alone: some 80 numbers, so all take less than 1 MB.
class StatusHistory {
 public:
  static constexpr size_t kSamplesMax = 300;
  static constexpr double kWindowSeconds = 30;
  /// What the status page draws, as the page's script names it. The first is the sample's time.
  static constexpr std::array kMembers{"uptime_s",
                                       "tokens.generated",
                                       "tokens.prompt",
                                       "requests.running",
                                       "sequences.waiting",
                                       "tiers.dram.hits",
                                       "tiers.dram.misses",
                                       "tiers.device.hits",
                                       "tiers.device.misses",
                                       "store.read_bytes",
                                       "steps.prompts",
                                       "steps.decoding",
                                       "latency.ttft_s.counts",
                                       "latency.tpot_s.counts",
                                       "steps.duration_s.counts"};

  /// The oldest sample gives way to the one beyond kSamplesMax.
  void add(const nlohmann::json& status);

  /// {"members": kMembers, "samples": [[a value for each member], ...]}, the oldest first. Null: the status had no such
  /// member.
  nlohmann::json report() const;

  /// Latencies of the last kWindowSeconds before `status`, or since the start if that is shorter: {"seconds", "ttft_s",
  /// "tpot_s", "step_s", "prompts", "decoding"}. The first three are {"p50", "p99"} in seconds, the others speeds of
  /// the workers' steps: {"tokens_per_s", "step_tokens" (the mean), "stalled" (a share), "bound": what they
  /// waited for most, "experts", "dense weights" or "kv", or "compute"}. Null if nothing was counted.
  nlohmann::json recent(const nlohmann::json& status) const;

 private:
  std::deque<nlohmann::json> samples_;
};

/// Of a histogram with these upper bounds, and one count more than there are bounds, at least one not 0. Values count
/// as spread evenly within a bucket; those beyond the last bound count as that bound.
double quantile(const std::vector<double>& bounds, const std::vector<double>& counts, double q);

}  // namespace moestro::orchestrator

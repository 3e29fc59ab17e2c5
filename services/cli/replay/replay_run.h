#pragma once
// The runs of `moestro replay`: a trace with one setting of a device, or a table of settings.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/policy/weighted_policy.h"
#include "common/tier/clairvoyant.h"

namespace moestro::cli {

/// Host memory that holds a part of the experts, and the drive that fills it.
struct HostCase {
  std::string cache = "interval";  ///< as store.policy
  int32_t experts = 0;             ///< that host memory holds
  double drive_bytes_per_s = 0;
  Nanos drive_latency{0};          ///< of each read
};

/// One setting. `cache` is a device policy or "belady", `predict` a predictor or "perfect".
struct ReplayCase {
  std::string cache = "auto", predict = "auto";
  tier::ReplaySetup setup;
  int32_t full_slots = 0;        ///< with low copies: the full ones that the same memory holds alone
  std::optional<HostCase> host;  ///< nullopt: host memory has every expert
  bool cpu = false;  ///< no device: experts are computed from host memory. `setup` has the host's experts as slots and
                     ///< the drive as the link, for what is compared with
  enum class Start : uint8_t {
    kOnce,        ///< the requests one after another, after those that are learned from
    kCheckpoint,  ///< each alone, as the first after a restart: the device is empty, and only the history is left of
                  ///< what was learned
    kNothing,     ///< the same without a history
  } start = Start::kOnce;
};

/// Requests that predictors learn from, and those that are judged.
struct ReplaySplit {
  std::vector<size_t> learned, judged;  ///< those that are judged in the order in which they join
  std::vector<size_t> came = {};        ///< those that are judged in the order in which they come; empty: the same
  size_t waiting = 0;                   ///< that wait at once; 0: all
};
/// `share` of the requests, spread evenly over the trace, are for learning; always the same ones.
ReplaySplit split_requests(size_t requests, double share);

/// kInvalidArgument: unknown policy or predictor.
Result<tier::ReplayReport> run_case(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what);

/// Of each judged request in the order in which they join: from when it comes to its first token. The first
/// `split.waiting` come at the start, and one more whenever one joins.
std::vector<Nanos> first_token_times(const ReplaySplit& split, const tier::ReplayReport& report);

/// HOBBIT's weights for this trace and cache, by the misses on the learned requests (or all, if none are).
policy::WeightedOptions calibrated_weights(const tier::Routes& routes, const ReplaySplit& split,
                                           const tier::ReplaySetup& setup);

}  // namespace moestro::cli

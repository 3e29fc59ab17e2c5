#pragma once
// What `moestro replay` runs: a trace against one setting of a device, or a table of them.

#include <cstdint>
#include <string>
#include <vector>

#include "common/policy/weighted_policy.h"
#include "common/tier/clairvoyant.h"

namespace moestro::cli {

/// One setting. `cache` is a device policy or "belady", `predict` a predictor or "perfect".
struct ReplayCase {
  std::string cache = "auto", predict = "auto";
  tier::ReplaySetup setup;
  enum class Start : uint8_t {
    kOnce,        ///< the requests one after the other, after those learned from
    kCheckpoint,  ///< each by itself, as the first after a restart: the device is empty, and of what was learned only
                  ///< the history is left
    kNothing,     ///< the same without a history
  } start = Start::kOnce;
};

/// Requests that are learned from before, and those that are judged.
struct ReplaySplit {
  std::vector<size_t> learned, judged;
};
/// `share` of the requests, spread evenly over the trace, are learned from; always the same ones.
ReplaySplit split_requests(size_t requests, double share);

/// kInvalidArgument: no such policy or predictor.
Result<tier::ReplayReport> run_case(const tier::Routes& routes, const ReplaySplit& split, const ReplayCase& what);

/// HOBBIT's weights for this trace and cache, by the misses on the learned requests (or all, if none are).
policy::WeightedOptions calibrated_weights(const tier::Routes& routes, const ReplaySplit& split,
                                           const tier::ReplaySetup& setup);

}  // namespace moestro::cli

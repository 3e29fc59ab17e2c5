#pragma once
// How the store learns of uses without messages. A hit sends no message: a worker writes {uses, stamp} into its pin
// word (store/layout/pins_layout.h) and adds to its own total. The store reads the words when a policy proposes an
// entry, and all of them in turn when it is idle. It reports the uses that were added since the last reading.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/policy/cache_policy.h"
#include "store/machine/shared_state.h"

namespace moestro::store {

/// The clock of policies: the uses by all workers so far. It stands still while nothing is decoded, and runs faster on
/// a faster machine.
class UseTime {
 public:
  /// `uses` have been made until `stamp`. Both grow.
  void sample(uint64_t stamp, double uses);
  double at(uint64_t stamp) const;
  double now() const { return samples_.empty() ? 0 : samples_.back().uses; }

 private:
  static constexpr size_t kSamplesMax = 512;
  struct Sample {
    uint64_t stamp;
    double uses;
  };
  std::vector<Sample>
      samples_;  ///< every second one is dropped when there are too many, so the past becomes coarser, not shorter
};

class UseWatch {
 public:
  explicit UseWatch(const SharedState& shared) : shared_(shared) {}
  void resize(size_t entries);

  /// The uses of `entry` since the last call for it; nullopt if there were none.
  std::optional<policy::Use> news(uint32_t entry);
  /// Reads the clock. Time stands still between two calls.
  void tick();
  double now() const { return time_.now(); }
  /// A worker's words were removed or added: later counts are compared with the current ones.
  void rebase();

 private:
  const SharedState& shared_;
  UseTime time_;
  std::vector<uint16_t> seen_;
  std::vector<uint64_t> stamps_;
};

}  // namespace moestro::store

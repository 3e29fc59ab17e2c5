#pragma once
// What the store learns of uses that nobody tells it about. A hit sends no message: a worker leaves {uses, stamp} in
// its pin word (store/layout/pins_layout.h) and adds to the total of its own. The store reads the words when a policy
// proposes an entry, and all of them in turn while it has nothing else to do; what was added since it last looked is
// news.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/policy/cache_policy.h"
#include "store/machine/shared_state.h"

namespace moestro::store {

/// When something happened, in uses by all workers until then: the time that policies live by. It stands still while
/// nobody decodes, and runs faster on a faster machine.
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
      samples_;  ///< every second one is dropped when there are too many: the past grows coarser, not shorter
};

class UseWatch {
 public:
  explicit UseWatch(const SharedState& shared) : shared_(shared) {}
  void resize(size_t entries);

  /// What was done with `entry` since the last call for it; nothing if nothing was.
  std::optional<policy::Use> news(uint32_t entry);
  /// Reads the clock. Between two of these time stands still.
  void tick();
  double now() const { return time_.now(); }
  /// A worker's words have gone, or come: what is there now is the ground that later counts are compared with.
  void rebase();

 private:
  const SharedState& shared_;
  UseTime time_;
  std::vector<uint16_t> seen_;
  std::vector<uint64_t> stamps_;
};

}  // namespace moestro::store

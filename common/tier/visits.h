#pragma once
// Which experts a device needs, layer by layer, and when it will need each expert again.

#include <span>
#include <vector>

#include "common/clock.h"
#include "common/tier/device_tier.h"

namespace moestro::tier {

/// One layer of one step for the schedule.
struct Visit {
  Nanos attention{0};       ///< before its experts
  Nanos after{0};           ///< after them: the rest of the step
  bool decode = true;
  size_t step = 0;
  std::vector<Key> keys;
  std::vector<Nanos> took;  ///< computing time of each
};

/// For each key, its visits.
class VisitIndex {
 public:
  VisitIndex(std::span<const Visit> visits, size_t keys);
  /// The first visit of `key` at `from` or later; kNever if there is none.
  size_t next(Key key, size_t from) const;
  static constexpr size_t kNever = SIZE_MAX;

 private:
  std::vector<std::vector<size_t>> visits_;
};

}  // namespace moestro::tier

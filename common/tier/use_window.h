#pragma once
// The last uses of a device's experts and whether each was a hit, compared with the hits of copying on demand with the
// same slots: by LRU, and by Belady's oracle, which knows the window's future.
//
// Both replays run the device's own tier over a link that takes no time. They do not begin with empty slots, because
// the device did not. They begin with the experts that decoding used last before the window, as many as there are
// slots; LRU holds these at that point. The first quarter of the window's visits is not counted for any of the three.
// After it, Belady's slots are those that the oracle would have chosen. As in a replay of routes, uses by prompts
// change the slots, but only uses by decoding are counted.

#include <cstdint>
#include <functional>
#include <vector>

#include "common/tier/device_tier.h"

namespace moestro::tier {

struct UseWindow {
  struct Visit {         ///< a layer of a step, with at least one use
    uint32_t first = 0;  ///< where its uses begin
    bool scan = false;
    bool begins_step = false;
  };
  struct Use {
    Key key = 0;
    float weight = 1;  ///< as policy::Use::weight
    bool hit = false;  ///< the device had it completely
  };
  std::vector<Visit> visits;
  std::vector<Use> uses;
  std::vector<uint64_t>
      used_before;  ///< by key: the last use by decoding before the window; larger is later; 0: none
};

struct WindowHits {
  uint32_t uses = 0;  ///< 0: unknown
  uint32_t hits = 0, lru_hits = 0, belady_hits = 0;
};

/// `options`: of the device. `go_on` is called before each visit. If it returns false, the result is unknown.
WindowHits hits_of(
    const UseWindow& window, const TierOptions& options, const std::function<bool()>& go_on = [] { return true; });

}  // namespace moestro::tier

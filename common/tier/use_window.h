#pragma once
// The last uses of a device's experts as they came and were found, and how many of them would have been found with the
// same slots had experts been copied on demand alone: by LRU, and by Belady's oracle, which knows the window's future.
//
// Both replays run the device's own tier, over a link that takes no time. Neither begins with empty slots, for the
// device did not: they begin with the experts that decoding had used last before the window, as many as there are
// slots, which is what LRU holds at that point. The first quarter of the window's visits is counted for none of the
// three: by then Belady's slots are what the oracle would have made of them. As in a replay of routes, uses by prompts
// change what lies in slots, and only those by decoding are counted.

#include <cstdint>
#include <functional>
#include <vector>

#include "common/tier/device_tier.h"

namespace moestro::tier {

struct UseWindow {
  struct Visit {         ///< a layer of a step; it has a use at least
    uint32_t first = 0;  ///< where its uses begin
    bool scan = false;
    bool begins_step = false;
  };
  struct Use {
    Key key = 0;
    float weight = 1;  ///< as policy::Use::weight
    bool hit = false;  ///< the device had it, whole
  };
  std::vector<Visit> visits;
  std::vector<Use> uses;
  std::vector<uint64_t>
      used_before;  ///< by key: the greater, the later did decoding use it before the window; 0: not at all
};

struct WindowHits {
  uint32_t uses = 0;  ///< 0: nothing is known
  uint32_t hits = 0, lru_hits = 0, belady_hits = 0;
};

/// `options`: of the device. `go_on` is asked before each visit; where it says no, nothing is known.
WindowHits hits_of(
    const UseWindow& window, const TierOptions& options, const std::function<bool()>& go_on = [] { return true; });

}  // namespace moestro::tier

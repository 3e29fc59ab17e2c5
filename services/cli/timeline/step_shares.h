#pragma once
// How busy the lanes of one process were while it computed steps.
//
// A step lasts from the first to the last slice of its plan on the compute lane or the stall lane. Copies are written
// after the step in which they ended, so the last steps are kept until nothing can be added to them.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/status.h"

namespace moestro::cli {

struct LaneShare {
  std::string name;
  Nanos busy{0};            ///< within steps
  uint64_t bubbles = 0;     ///< stretches of a step of at least kBubble in which the lane did nothing
  Nanos bubbles_time{0}, longest_bubble{0};
  bool seen = false;        ///< it has a slice
};

class StepShares {
 public:
  /// Shorter pauses between two tasks count as idle, but not as bubbles.
  static constexpr Nanos kBubble = std::chrono::microseconds(10);

  void name_lane(int64_t track, std::string name);
  /// kInvalidArgument: more lanes, or more slices in one step, than a worker writes.
  Status add(int64_t track, uint64_t plan, Nanos begin, Nanos end);
  /// No more slices come.
  void finish();

  std::string_view lane_name(int64_t track) const;
  // After finish():

  const std::map<int64_t, LaneShare>& lanes() const { return lanes_; }  ///< by track
  uint64_t steps() const { return step_times_.size(); }
  Nanos in_steps() const { return in_steps_; }
  /// The shortest step that is at least as long as this share of all steps; 0 if there is none.
  Nanos step_time(double share) const;

 private:
  struct Interval {
    Nanos begin, end;
  };
  struct Step {
    uint64_t plan;
    Nanos begin, end;
    std::map<int64_t, std::vector<Interval>> slices;  ///< by track
    size_t count = 0;
  };
  void count(Step& step);

  std::map<int64_t, LaneShare> lanes_;
  std::deque<Step> recent_;
  std::vector<Nanos> step_times_;
  Nanos in_steps_{0};
};

}  // namespace moestro::cli

#pragma once
// Drives a step over lanes without hardware: a task takes as long as its cost says, on a virtual clock. For forecasts
// and tests of schedules; the same input gives the same result.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/lanes/step_driver.h"
#include "common/lanes/step_machine.h"
#include "common/lanes/timeline.h"
#include "common/status.h"

namespace moestro::lanes {

/// How fast a lane is. Arithmetic and traffic overlap: the longer of the two counts.
struct LaneRate {
  double flops_per_s = 0;     ///< 0: no limit
  double bytes_per_s = 0;     ///< 0: no limit
  Nanos overhead{0};          ///< of each task, in addition
  bool interrupts = false;    ///< a task that comes before the current one in the schedule interrupts it
  Nanos duration(const Cost& cost) const;
};

/// nullopt: the machine does not have the lane.
using LaneRates = std::array<std::optional<LaneRate>, kLaneCount>;

/// A lane's driver holds what may start, and runs it in the order in which the schedule added it.
inline constexpr LaneKinds kVirtualLanes{LaneKind::kTogether, LaneKind::kTogether, LaneKind::kTogether,
                                         LaneKind::kTogether, LaneKind::kTogether};

/// Chooses in place of routers.
class VirtualRouter {
 public:
  virtual ~VirtualRouter() = default;
  /// The experts of a micro-batch's rows, each once, ascending. Valid until the next call.
  virtual std::span<const RoutedExpert> choose(int32_t layer, int32_t micro_batch) = 0;
};

/// Knows better than a lane's rates how long tasks take.
class TaskTimes {
 public:
  virtual ~TaskTimes() = default;
  virtual Nanos duration(const Task& task) const = 0;
};

class VirtualDriver {
 public:
  /// `times`: null, or in place of what `rates` say. `rates` says which lanes there are in any case.
  explicit VirtualDriver(const LaneRates& rates, const TaskTimes* times = nullptr) : rates_(rates), times_(times) {}

  /// Runs the step that `machine` (with kVirtualLanes) has begun. The clock goes on from the step before.
  /// Stalled is the time in which the lane kCompute has nothing to do. kUnsupported: a task needs a lane that the
  /// machine does not have. After warm-up nothing is allocated.
  Result<ExecutionTotals> run(StepMachine& machine, VirtualRouter& router, Timeline* timeline);
  Nanos now() const { return now_; }

 private:
  struct Work {
    TaskId task = -1;
    Nanos left{0};
  };
  struct LaneState {
    std::vector<Work> waiting;  ///< a heap, the task that was added first on top
    std::optional<Work> current;
    Nanos since{0};             ///< when the current stretch of `current` began
  };
  struct Step {
    StepMachine& machine;
    VirtualRouter& router;
    Timeline* timeline;
  };
  LaneState& state(Lane lane) { return lanes_[static_cast<size_t>(lane)]; }
  Status take_ready(const Step& step);
  void begin_next(const Step& step, Lane lane);
  void leave(const Step& step, Lane lane);
  void end(const Step& step, Lane lane);

  const LaneRates rates_;
  const TaskTimes* const times_;
  std::array<LaneState, kLaneCount> lanes_;
  ExecutionTotals totals_;
  Nanos now_{0};
};

}  // namespace moestro::lanes

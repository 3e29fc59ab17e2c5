#pragma once
// Runs every step, on whatever computes it: what each lane may start, given what has ended.
//
// A pure state machine, events in and actions out; it does no work and knows no time. A driver (step_driver.h) gives
// the lanes their meaning. The machine asks the schedule what follows from a router's choice.
//
// A lane that is a queue may be given work ahead of the host. Beyond a router that takes an assumption: that all
// experts of its layer are there, so that they can run as one task whatever the router chooses. If the assumption was
// wrong, what was queued behind it is taken back, and queued again behind what the schedule makes of the true choice.

#include <optional>
#include <span>
#include <vector>

#include "common/lanes/schedule.h"

namespace moestro::lanes {

class StepMachine {
 public:
  explicit StepMachine(Schedule& schedule, const LaneKinds& lanes = kThreadComputes)
      : schedule_(schedule), lanes_(lanes), graph_(lanes) {}

  /// Forgets the step before, and takes the tasks that are known before this one runs.
  void begin(const StepShape& step);

  // Actions.

  /// What `lane` is to start now, in this order: nothing, one task, or several, by the lane's kind. Valid until the
  /// next call.
  std::span<const TaskId> start(Lane lane);
  /// The layer whose experts may be assumed to be there: its router has been queued, and nothing is queued behind it.
  /// None in a step of several micro-batches, and if the schedule cannot assume.
  std::optional<int32_t> assumable() const;

  // Events.

  /// A task that was started has ended. On a queue, so have those started before it.
  void ended(TaskId task) { graph_.end(task); }
  /// The router of `layer` has chosen for a micro-batch; its end is reported by ended(), after this. An assumption
  /// about the layer was wrong. `places`: as Schedule::expand.
  void routed(int32_t layer, int32_t micro_batch, std::span<const RoutedExpert> experts,
              std::span<const Place> places = {});
  /// The layer's experts will all be there: they are queued as one task.
  void assume(int32_t layer);
  /// The router of `layer` has chosen, and the assumption was right.
  void holds(int32_t layer);

  LaneKind kind_of(Lane lane) const { return lanes_[static_cast<size_t>(lane)]; }
  const TaskGraph& graph() const { return graph_; }
  const Task& operator[](TaskId task) const { return graph_[task]; }
  bool all_ended() const { return graph_.all_ended(); }
  /// Assumptions that are neither right nor wrong yet.
  int32_t assumptions() const { return static_cast<int32_t>(assumed_.size()); }

 private:
  struct Assumed {
    int32_t layer = 0;
    TaskId task = 0;
  };
  Schedule& schedule_;
  const LaneKinds lanes_;
  TaskGraph graph_;
  std::vector<TaskId> started_;   ///< by the last start()
  std::vector<Assumed> assumed_;
  std::optional<int32_t> last_router_;  ///< layer of the router that was queued last, if its choice is unknown
  bool cut_ = false;                    ///< the step has several micro-batches
};

}  // namespace moestro::lanes

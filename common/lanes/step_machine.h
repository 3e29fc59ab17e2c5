#pragma once
// Runs every step, on whatever computes it: what each lane may start, given what has ended.
//
// A pure state machine, events in and actions out; it does no work and knows no time. A driver (step_driver.h) gives
// the lanes their meaning. The machine asks the schedule what follows from a router's choice.
//
// A lane that is a queue may be given work ahead of the host. Beyond a router that takes an assumption: that all
// experts of its layer are there, so that they can run as one task whatever the router chooses. If the assumption was
// wrong, what was queued behind it is taken back, and queued again behind what the schedule makes of the true choice.
//
// A step may have to give way to another. It then parks at the end of the layers that it has begun: nothing of a later
// layer starts, and when what runs has ended it holds no expert and nothing of it is under way. It goes on where it
// parked, and parks again only when it has begun another layer: so however often it gives way, it comes to its end.

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
  /// Whether it has begun a layer since it parked last. Not on a queue, which has been given what comes later.
  bool may_park() const { return kind_of(Lane::kCompute) != LaneKind::kQueue && begun_ > parked_at_; }
  bool is_parking() const { return layer_most_ != TaskGraph::kAnyLayer; }
  /// No lane that has nothing to start will have before resume().
  bool is_parked() const { return is_parking() && running_ == 0; }

  // Events.

  /// A task that was started has ended. On a queue, so have those started before it.
  void ended(TaskId task) {
    graph_.end(task);
    --running_;
  }
  /// The router of `layer` has chosen for a micro-batch; its end is reported by ended(), after this. An assumption
  /// about the layer was wrong. `places`: as Schedule::expand.
  void routed(int32_t layer, int32_t micro_batch, std::span<const RoutedExpert> experts,
              std::span<const Place> places = {});
  /// The layer's experts will all be there: they are queued as one task.
  void assume(int32_t layer);
  /// The router of `layer` has chosen, and the assumption was right.
  void holds(int32_t layer);
  /// It is to give way. Requires may_park().
  void park();
  /// It has given way, and goes on.
  void resume();

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
  static constexpr int32_t kNeverParked = -2;
  Schedule& schedule_;
  const LaneKinds lanes_;
  TaskGraph graph_;
  std::vector<TaskId> started_;   ///< by the last start()
  std::vector<Assumed> assumed_;
  std::optional<int32_t> last_router_;  ///< layer of the router that was queued last, if its choice is unknown
  bool cut_ = false;                    ///< the step has several micro-batches
  int32_t begun_ = -1;                  ///< the last layer of which something was started; -1: none
  int32_t layer_most_ = TaskGraph::kAnyLayer;  ///< parking: the last layer of which something may start
  int32_t parked_at_ = kNeverParked;    ///< the last layer that it had begun when it parked
  int32_t running_ = 0;                 ///< tasks that were started and have not ended; not counted on queues
};

}  // namespace moestro::lanes

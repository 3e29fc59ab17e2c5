#pragma once
// Drives a step: starts what the machine names, waits for what was started, and tells the machine what has ended.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/lanes/step_machine.h"
#include "common/lanes/timeline.h"
#include "common/status.h"

namespace moestro::lanes {

/// Gives the tasks of a step their meaning. What computes a router reports its choice to the machine.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// Does or starts these tasks of one lane, in order, and appends those that have ended with it to `ended`: what a
  /// thread computes, and reads of what is there already.
  virtual Status start(Lane lane, std::span<const TaskId> tasks, std::vector<TaskId>& ended) = 0;
  /// Called after a group of start() calls that left something to wait for, so that it can be sent as one request.
  virtual Status flush() { return Status::ok(); }
  /// Blocks until something that was started has ended, and appends it to `ended`. Called only when there is nothing to
  /// start: what arrived before has been computed and released, so the wait holds up no other worker.
  virtual Status wait_any(std::vector<TaskId>& ended) = 0;
  /// Appends what was started and has ended by now, without waiting. Asked before a thread computes its next task, for
  /// transfers that others wait for; expert reads are left to wait_any().
  virtual void poll(std::vector<TaskId>& ended) { (void)ended; }
  /// Of a device that runs a queue: whether it still computes. What has been waited for meanwhile has stopped nothing.
  virtual bool is_computing() { return false; }
  /// The same: whether the host has threads that compute beside the one that runs the step, which otherwise does what
  /// the host computes itself.
  virtual bool host_computes_apart() const { return false; }
  /// Whether the experts of `layer` will be there, whatever its router chooses (StepMachine::assume).
  virtual bool expects_all(int32_t layer) {
    (void)layer;
    return false;
  }
};

/// What may come between two layers of a step.
class Breaks {
 public:
  virtual ~Breaks() = default;
  /// Whether the step is to give way. Asked before each task, so it must be cheap.
  virtual bool wanted() = 0;
  /// The step has parked: it holds no expert, and nothing of it is under way. It goes on afterwards.
  virtual void take() = 0;
};

/// A runner's answer to a task that it does not do: names the task, its lane and the runner.
Status cannot_run(std::string_view runner, const Task& task);

struct ExecutionTotals {
  Nanos elapsed{0};  ///< without the time in which it was parked
  Nanos stalled{0};  ///< nothing could be started before a transfer had ended, or attention on the host
  Nanos kv_stalled{0};  ///< of that, before KV had been moved, or attention on the host
  Nanos parked{0};   ///< it gave way to something else
  int32_t parks = 0; ///< how often
  Nanos busy[kLaneCount] = {};
};

class StepDriver {
 public:
  explicit StepDriver(const Clock& clock) : clock_(clock) {}
  /// Runs the step that `machine` has begun until every task has ended, or until the runner's first error. Lanes that
  /// are queues have a clock of their own: they are neither timed nor drawn here. `breaks`: null: the step gives way to
  /// nothing; so it does on a queue.
  Result<ExecutionTotals> run(StepMachine& machine, TaskRunner& runner, Timeline* timeline, Breaks* breaks = nullptr);

 private:
  struct Step {
    StepMachine& machine;
    TaskRunner& runner;
    Timeline* timeline;
  };
  Result<bool> start(const Step& step, Lane lane);
  /// What others than the thread that runs the step do.
  Result<bool> start_apart(const Step& step);
  void end(const Step& step, TaskId task, Nanos now);
  void take_break(StepMachine& machine, Breaks& breaks);

  const Clock& clock_;
  ExecutionTotals totals_;
  bool waits_ = false;  ///< a transfer was started that has not ended
  std::vector<TaskId> ended_;
  std::vector<Nanos> began_;  ///< by task
};

}  // namespace moestro::lanes

#include "common/lanes/step_driver.h"

#include <algorithm>
#include <string>

#include "common/check.h"

namespace moestro::lanes {
namespace {

/// What is waited for is asked for before the thread that runs the step computes anything.
constexpr Lane kTransfers[] = {Lane::kStoreRead, Lane::kHostToDevice, Lane::kDeviceToHost};

}  // namespace

Status cannot_run(std::string_view runner, const Task& task) {
  return unsupported(std::string(runner) + " cannot run the task '" + std::string(task_name(task.kind)) +
                     "' on the lane '" + std::string(lane_name(task.lane)) + "': use the layerwise schedule");
}

void StepDriver::end(const Step& step, TaskId task, Nanos now) {
  const Task& of = step.machine[task];
  // A link that moves KV draws it itself, as its chunks go between those of experts.
  if (step.machine.kind_of(of.lane) != LaneKind::kQueue && !is_drawn_apart(of)) {
    const Nanos begin = began_[static_cast<size_t>(task)];
    totals_.busy[static_cast<int>(of.lane)] += now - begin;
    if (step.timeline != nullptr) step.timeline->slice({of, task, begin, now});
  }
  step.machine.ended(task);
}

/// Whether the lane had something to start.
Result<bool> StepDriver::start(const Step& step, Lane lane) {
  const std::span<const TaskId> tasks = step.machine.start(lane);
  if (tasks.empty()) return false;
  const bool works = is_compute(lane);
  const Nanos now = clock_.now();
  // With room for steps that use some experts more: later ones do not allocate.
  if (const auto known = static_cast<size_t>(step.machine.graph().size()); known > began_.size())
    began_.resize(2 * known);
  for (const TaskId task : tasks) began_[static_cast<size_t>(task)] = now;
  ended_.clear();
  MOESTRO_RETURN_IF_ERROR(step.runner.start(lane, tasks, ended_));
  waits_ = waits_ || ended_.size() < tasks.size();
  const Nanos then = works && !ended_.empty() ? clock_.now() : now;
  for (const TaskId task : ended_) {
    if (works) end(step, task, then);
    else step.machine.ended(task);  // it was there already: nothing was read
  }
  return true;
}

Result<bool> StepDriver::start_apart(const Step& step) {
  bool started = false;
  waits_ = false;
  for (const Lane lane : kTransfers) {
    MOESTRO_ASSIGN_OR_RETURN(const bool some, start(step, lane));
    started = started || some;
  }
  // Where the device computes on this thread, the host has its own.
  if (step.machine.kind_of(Lane::kCompute) != LaneKind::kQueue || step.runner.host_computes_apart()) {
    MOESTRO_ASSIGN_OR_RETURN(const bool some, start(step, Lane::kHostCompute));
    started = started || some;
  }
  if (waits_) MOESTRO_RETURN_IF_ERROR(step.runner.flush());
  return started;
}

void StepDriver::take_break(StepMachine& machine, Breaks& breaks) {
  const Nanos from = clock_.now();
  breaks.take();
  totals_.parked += clock_.now() - from;
  ++totals_.parks;
  machine.resume();
}

Result<ExecutionTotals> StepDriver::run(StepMachine& machine, TaskRunner& runner, Timeline* timeline, Breaks* breaks) {
  const Step step{machine, runner, timeline};
  const bool queue = machine.kind_of(Lane::kCompute) == LaneKind::kQueue;
  totals_ = {};
  const Nanos begin = clock_.now();
  while (!machine.all_ended()) {
    if (breaks != nullptr && !machine.is_parking() && machine.may_park() && breaks->wanted()) machine.park();
    bool started = false;
    ended_.clear();
    runner.poll(ended_);
    for (const TaskId task : ended_) end(step, task, clock_.now());
    if (!ended_.empty()) continue;
    if (queue) {
      MOESTRO_ASSIGN_OR_RETURN(started, start(step, Lane::kCompute));
    }
    MOESTRO_ASSIGN_OR_RETURN(const bool transfers, start_apart(step));
    if (started || transfers) continue;
    MOESTRO_ASSIGN_OR_RETURN(started, start(step, queue ? Lane::kHostCompute : Lane::kCompute));
    if (started) continue;
    if (machine.is_parked()) {
      take_break(machine, *breaks);
      continue;
    }
    if (const auto layer = machine.assumable(); layer && runner.expects_all(*layer)) {
      machine.assume(*layer);
      continue;
    }
    ended_.clear();
    const Nanos from = clock_.now();
    MOESTRO_RETURN_IF_ERROR(runner.wait_any(ended_));
    const Nanos until = clock_.now();
    MOESTRO_CHECK(!ended_.empty(), "a step waits for nothing");
    const auto came = std::ranges::find_if(ended_, [&](TaskId task) { return machine[task].lane != Lane::kCompute; });
    if (came != ended_.end() && !runner.is_computing()) {
      totals_.stalled += until - from;
      const Task& what = machine[*came];
      if (is_for_kv(what)) totals_.kv_stalled += until - from;
      if (timeline != nullptr)
        timeline->stall({.layer = what.layer, .expert = what.expert, .begin = from, .end = until,
                         .dense = what.kind == TaskKind::kWeightRead,
                         .link = is_weight_copy(what),
                         .host = is_hidden_move(what) || what.kind == TaskKind::kAttend});
    }
    for (const TaskId task : ended_) end(step, task, until);
  }
  totals_.elapsed = clock_.now() - begin - totals_.parked;
  return totals_;
}

}  // namespace moestro::lanes

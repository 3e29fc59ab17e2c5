#include "common/lanes/virtual_driver.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace moestro::lanes {
namespace {

constexpr Lane kEveryLane[] = {Lane::kCompute, Lane::kStoreRead, Lane::kHostToDevice, Lane::kDeviceToHost,
                               Lane::kHostCompute};

double seconds_of(double amount, double per_s) { return per_s > 0 ? amount / per_s : 0; }

}  // namespace

Nanos LaneRate::duration(const Cost& cost) const {
  const double seconds = std::max(seconds_of(cost.flops, flops_per_s), seconds_of(cost.bytes, bytes_per_s));
  return overhead + Nanos(std::llround(seconds * 1e9));
}

Result<ExecutionTotals> VirtualDriver::run(StepMachine& machine, VirtualRouter& router, Timeline* timeline) {
  const Step step{machine, router, timeline};
  const Nanos begin = now_;
  totals_ = {};
  for (LaneState& lane : lanes_) lane.waiting.clear(), lane.current.reset();
  while (true) {
    MOESTRO_RETURN_IF_ERROR(take_ready(step));
    if (machine.all_ended()) break;
    std::optional<Lane> next;
    const auto ends = [this](Lane lane) { return state(lane).since + state(lane).current->left; };
    for (const Lane lane : kEveryLane)
      if (state(lane).current && (!next || ends(lane) < ends(*next))) next = lane;
    if (!next) return internal_error("a step of the schedule does not end: nothing runs, and tasks wait");
    const Nanos until = ends(*next);
    if (!state(Lane::kCompute).current) {
      totals_.stalled += until - now_;
      if (is_for_kv(step.machine[state(*next).current->task])) totals_.kv_stalled += until - now_;
    }
    now_ = until;
    end(step, *next);
  }
  totals_.elapsed = now_ - begin;
  return totals_;
}

/// Takes what the machine lets start, and gives each lane its work.
Status VirtualDriver::take_ready(const Step& step) {
  for (const Lane lane : kEveryLane) {
    for (const TaskId id : step.machine.start(lane)) {
      const std::optional<LaneRate>& rate = rates_[static_cast<size_t>(lane)];
      if (!rate)
        return unsupported("the machine has no lane '" + std::string(lane_name(lane)) + "', which the task '" +
                           std::string(task_name(step.machine[id].kind)) + "' needs");
      const Task& task = step.machine[id];
      state(lane).waiting.push_back({id, times_ != nullptr ? times_->duration(task) : rate->duration(task.cost)});
      std::ranges::push_heap(state(lane).waiting, std::greater<>(), &Work::task);
    }
    begin_next(step, lane);
  }
  return Status::ok();
}

void VirtualDriver::begin_next(const Step& step, Lane lane) {
  LaneState& s = state(lane);
  if (s.waiting.empty()) return;
  if (s.current) {
    if (!rates_[static_cast<size_t>(lane)]->interrupts || s.current->task < s.waiting.front().task) return;
    leave(step, lane);
    s.waiting.push_back(*s.current);
    std::ranges::push_heap(s.waiting, std::greater<>(), &Work::task);
  }
  std::ranges::pop_heap(s.waiting, std::greater<>(), &Work::task);
  s.current = s.waiting.back();
  s.waiting.pop_back();
  s.since = now_;
}

/// The lane has worked on its task until now.
void VirtualDriver::leave(const Step& step, Lane lane) {
  LaneState& s = state(lane);
  const Nanos worked = now_ - s.since;
  s.current->left -= worked;
  totals_.busy[static_cast<size_t>(lane)] += worked;
  if (step.timeline != nullptr && worked.count() > 0)
    step.timeline->slice({step.machine[s.current->task], s.current->task, s.since, now_});
}

void VirtualDriver::end(const Step& step, Lane lane) {
  leave(step, lane);
  const TaskId id = std::exchange(state(lane).current, std::nullopt)->task;
  const Task task = step.machine[id];  // a copy: a router adds to the tasks
  if (task.kind == TaskKind::kRouter)
    step.machine.routed(task.layer, task.micro_batch, step.router.choose(task.layer, task.micro_batch));
  step.machine.ended(id);
}

}  // namespace moestro::lanes

#include <algorithm>
#include <tuple>

#include "common/check.h"
#include "common/lanes/executor.h"

namespace moestro::lanes {

Nanos CostModel::duration(const Task& task) const {
  const LaneCost& lane = lanes[static_cast<int>(task.lane)];
  const double arithmetic_s = lane.flops_per_s > 0 ? task.cost.flops / lane.flops_per_s : 0;
  const double traffic_s = lane.bytes_per_s > 0 ? task.cost.bytes / lane.bytes_per_s : 0;
  return lane.overhead + Nanos(static_cast<int64_t>(std::max(arithmetic_s, traffic_s) * 1e9));
}

Result<ExecutionTotals> VirtualExecutor::execute(TaskGraph& graph, TaskRunner& runner, Timeline* timeline) {
  struct Running {
    Nanos end;
    TaskId id;
    bool operator<(const Running& o) const {
      return std::tie(end, id) > std::tie(o.end, o.id);
    }  // heap: earliest on top
  };
  ExecutionTotals totals;
  std::vector<Running> running;
  std::vector<TaskId> waiting[kLaneCount], fresh;
  bool occupied[kLaneCount] = {};
  Nanos now{0}, idle_since{0};

  const auto start_on = [&](int lane) -> Status {
    const auto first = std::min_element(waiting[lane].begin(), waiting[lane].end());
    const TaskId id = *first;
    waiting[lane].erase(first);
    const Task task = graph[id];
    if (lane == static_cast<int>(Lane::kCompute)) {
      totals.stalled += now - idle_since;
      MOESTRO_RETURN_IF_ERROR(runner.run(id, task));
    }
    const Nanos length = costs_.duration(task);
    totals.busy[lane] += length;
    if (timeline != nullptr) timeline->slice({task, id, now, now + length});
    occupied[lane] = true;
    running.push_back({now + length, id});
    std::push_heap(running.begin(), running.end());
    return Status::ok();
  };

  while (!graph.all_ended()) {
    for (graph.take_ready(fresh); !fresh.empty(); graph.take_ready(fresh))
      for (const TaskId id : fresh) {
        bool present = false;
        if (is_asynchronous(graph[id].lane)) {
          MOESTRO_ASSIGN_OR_RETURN(present, runner.start(id, graph[id]));
        }
        if (present) graph.end(id);
        else waiting[static_cast<int>(graph[id].lane)].push_back(id);
      }
    if (graph.all_ended()) break;
    for (int lane = 0; lane < kLaneCount; ++lane)
      if (!occupied[lane] && !waiting[lane].empty()) MOESTRO_RETURN_IF_ERROR(start_on(lane));
    MOESTRO_CHECK(!running.empty(), "a task graph without a cycle always has a running task");
    std::pop_heap(running.begin(), running.end());
    const Running next = running.back();
    running.pop_back();
    now = next.end;
    const int lane = static_cast<int>(graph[next.id].lane);
    occupied[lane] = false;
    if (lane == static_cast<int>(Lane::kCompute)) idle_since = now;
    graph.end(next.id);
  }
  totals.elapsed = now;
  return totals;
}

}  // namespace moestro::lanes

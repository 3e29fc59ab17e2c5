#include <algorithm>
#include <functional>

#include "common/check.h"
#include "common/lanes/executor.h"

namespace moestro::lanes {

void CpuExecutor::finish_read(TaskGraph& graph, TaskId id, Timeline* timeline) {
  const Task& task = graph[id];
  const Nanos begin = started_[static_cast<size_t>(id)], end = clock_.now();
  totals_.busy[static_cast<int>(task.lane)] += end - begin;
  if (timeline != nullptr) timeline->slice({task, id, begin, end});
  graph.end(id);
}

Status CpuExecutor::start_ready(TaskGraph& graph, TaskRunner& runner) {
  bool started = false;
  graph.take_ready(fresh_);
  // Starting a task can end it at once and so make more ready: go round until nothing new comes.
  while (!fresh_.empty()) {
    for (const TaskId id : fresh_) {
      const Task task = graph[id];
      if (!is_asynchronous(task.lane)) {
        compute_ready_.push_back(id);
        std::push_heap(compute_ready_.begin(), compute_ready_.end(), std::greater<>());
        continue;
      }
      started_.resize(static_cast<size_t>(graph.size()));
      started_[static_cast<size_t>(id)] = clock_.now();
      MOESTRO_ASSIGN_OR_RETURN(const bool ended, runner.start(id, task));
      if (ended) {
        graph.end(id);  // present already: no slice, nothing was read
      } else {
        ++in_flight_;
        started = true;
      }
    }
    graph.take_ready(fresh_);
  }
  return started ? runner.flush() : Status::ok();
}

Result<ExecutionTotals> CpuExecutor::execute(TaskGraph& graph, TaskRunner& runner, Timeline* timeline) {
  totals_ = {};
  compute_ready_.clear();
  in_flight_ = 0;
  const Nanos start = clock_.now();
  while (!graph.all_ended()) {
    MOESTRO_RETURN_IF_ERROR(start_ready(graph, runner));
    if (compute_ready_.empty()) {
      if (graph.all_ended()) break;
      MOESTRO_CHECK(in_flight_ > 0, "a task graph without a cycle always has a ready or a started task");
      const Nanos wait_begin = clock_.now();
      MOESTRO_ASSIGN_OR_RETURN(const TaskId id, runner.wait_any());
      totals_.stalled += clock_.now() - wait_begin;
      --in_flight_;
      finish_read(graph, id, timeline);
      continue;
    }
    std::pop_heap(compute_ready_.begin(), compute_ready_.end(), std::greater<>());
    const TaskId id = compute_ready_.back();
    compute_ready_.pop_back();
    const Task task = graph[id];  // a copy: run() may grow the graph
    const Nanos begin = clock_.now();
    MOESTRO_RETURN_IF_ERROR(runner.run(id, task));
    const Nanos end = clock_.now();
    totals_.busy[static_cast<int>(Lane::kCompute)] += end - begin;
    if (timeline != nullptr) timeline->slice({task, id, begin, end});
    graph.end(id);
  }
  totals_.elapsed = clock_.now() - start;
  return totals_;
}

}  // namespace moestro::lanes

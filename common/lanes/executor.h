#pragma once
// Runs a task graph. The runner does the work of a task; the executor decides when the task runs.

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/lanes/cost_model.h"
#include "common/lanes/task_graph.h"
#include "common/lanes/timeline.h"
#include "common/status.h"

namespace moestro::lanes {

class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  /// Does a compute task. May add tasks to the graph (a router adds its layer's experts).
  virtual Status run(TaskId id, const Task& task) = 0;
  /// Starts a task of an asynchronous lane. True if there was nothing to wait for and the task has already ended.
  virtual Result<bool> start(TaskId id, const Task& task) = 0;
  /// Called after a group of start() calls, so that they can be sent as one request.
  virtual Status flush() = 0;
  /// Blocks until a started task has ended and names it. Called only when no compute task is ready. So everything that
  /// arrived before has been computed and released, and the wait holds up no other worker.
  virtual Result<TaskId> wait_any() = 0;
};

struct ExecutionTotals {
  Nanos elapsed{0};
  Nanos stalled{0};  ///< the compute lane waited for an asynchronous one
  Nanos busy[kLaneCount] = {};
};

class Executor {
 public:
  virtual ~Executor() = default;
  /// Runs until every task has ended, or until the runner's first error.
  virtual Result<ExecutionTotals> execute(TaskGraph& graph, TaskRunner& runner, Timeline* timeline) = 0;
};

/// Runs compute tasks on the calling thread, the lowest id first among those that are ready.
class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(const Clock& clock) : clock_(clock) {}
  Result<ExecutionTotals> execute(TaskGraph& graph, TaskRunner& runner, Timeline* timeline) override;

 private:
  Status start_ready(TaskGraph& graph, TaskRunner& runner);
  void finish_read(TaskGraph& graph, TaskId id, Timeline* timeline);

  const Clock& clock_;
  ExecutionTotals totals_;
  std::vector<TaskId> fresh_;
  std::vector<TaskId> compute_ready_;  ///< a heap, lowest id on top
  std::vector<Nanos> started_;         ///< by task id
  int32_t in_flight_ = 0;
};

/// Runs nothing: every lane does one task at a time for as long as the cost model says. The runner's run() is still
/// called, so that routers can add their layers' experts; start() says whether an expert is present. Deterministic.
class VirtualExecutor final : public Executor {
 public:
  explicit VirtualExecutor(CostModel costs) : costs_(costs) {}
  Result<ExecutionTotals> execute(TaskGraph& graph, TaskRunner& runner, Timeline* timeline) override;

 private:
  CostModel costs_;
};

}  // namespace moestro::lanes

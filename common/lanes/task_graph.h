#pragma once
// The tasks of a step and the order between them. The graph grows while it runs: experts become tasks when their
// layer's router has run.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moestro::lanes {

/// What a task occupies while it runs. A track of the timeline.
enum class Lane : uint8_t { kCompute, kStoreRead, kHostToDevice, kDeviceToHost };
inline constexpr int kLaneCount = 4;
std::string_view lane_name(Lane lane);

/// Work that is started and then waited for: it runs outside the engine's thread.
constexpr bool is_asynchronous(Lane lane) { return lane != Lane::kCompute; }

enum class TaskKind : uint8_t {
  kEmbed,
  kAttention,
  kRouter,
  kDenseMlp,
  kSharedExpert,
  kExpertRead,
  kExpert,
  kCombine,
  kHead
};
std::string_view task_name(TaskKind kind);

/// What a task costs, for the cost model: the larger of its arithmetic and its memory traffic decides.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

using TaskId = int32_t;

struct Task {
  Lane lane = Lane::kCompute;
  TaskKind kind = TaskKind::kEmbed;
  int32_t layer = -1;   ///< index in the model; -1: the model's ends
  int32_t expert = -1;  ///< expert reads and experts
  Cost cost;
};

class TaskGraph {
 public:
  /// Adds a task that may start when `after` have ended. Every id in `after` is of an earlier task; ended ones count as
  /// done.
  TaskId add(const Task& task, std::span<const TaskId> after = {});

  const Task& operator[](TaskId id) const { return nodes_[static_cast<size_t>(id)].task; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t ended() const { return ended_; }
  bool all_ended() const { return ended_ == size(); }

  /// Tasks that became ready since the last call, in the order of their ids.
  void take_ready(std::vector<TaskId>& out);
  /// Marks a task as ended and makes those ready that waited only for it.
  void end(TaskId id);
  /// Makes task `to` wait for `from` as well. `to` must not be ready yet. For joins whose inputs become known late.
  void add_edge(TaskId from, TaskId to);

  /// Forgets all tasks, keeps the memory.
  void clear();

 private:
  struct Node {
    Task task;
    int32_t first_edge = -1;  ///< into edges_: the tasks that wait for this one
    int32_t waits_for = 0;
    bool ended = false;
    bool ready = false;
  };
  struct Edge {
    TaskId to;
    int32_t next;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<TaskId> ready_;
  int32_t ended_ = 0;
};

}  // namespace moestro::lanes

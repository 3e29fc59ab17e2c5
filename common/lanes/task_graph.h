#pragma once
// The tasks of a step and the order between them. The graph grows while it runs: experts become tasks when their
// layer's router has run.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace moestro::lanes {

/// What a task occupies while it runs. A track of the timeline.
enum class Lane : uint8_t { kCompute, kStoreRead, kHostToDevice, kDeviceToHost, kHostCompute };
inline constexpr int kLaneCount = 5;
std::string_view lane_name(Lane lane);

/// The others carry.
constexpr bool is_compute(Lane lane) { return lane == Lane::kCompute || lane == Lane::kHostCompute; }

/// How a lane takes work.
enum class LaneKind : uint8_t {
  kOneByOne,  ///< one task at a time; the next one is chosen when it has ended
  kTogether,  ///< any number at once
  kQueue,     ///< runs what it was given in that order, so a task may be given to it before the one ahead has ended
};
using LaneKinds = std::array<LaneKind, kLaneCount>;
/// A thread computes, everything else is started and reports its end.
inline constexpr LaneKinds kThreadComputes{LaneKind::kOneByOne, LaneKind::kTogether, LaneKind::kTogether,
                                           LaneKind::kTogether, LaneKind::kTogether};
/// A device computes what was queued on its stream.
inline constexpr LaneKinds kStreamComputes{LaneKind::kQueue, LaneKind::kTogether, LaneKind::kTogether,
                                           LaneKind::kTogether, LaneKind::kTogether};

enum class TaskKind : uint8_t {
  kEmbed,
  kAttention,
  kRouter,
  kDenseMlp,
  kSharedExpert,
  kExpertRead,
  kExpert,
  kLayerExperts,  ///< a layer's experts together, as one launch: all of them if assumed, else those that were there
  kCombine,
  kHead,
  // Of schedules that move weights and KV between steps.
  kWeightRead,  ///< a layer's dense weights to host memory, or they, or a page of a layer's weights, to the device
  kKvLoad,      ///< the KV that a micro-batch attends to, to the device
  kKvSave,      ///< what a micro-batch has added to the KV, to host memory
  // Attention in parts, where the host computes its middle.
  kQkv,         ///< norm and projection of queries, keys and values
  kQkvSend,     ///< those, to host memory
  kAttend,      ///< scores, softmax, and sums of values
  kHiddenLoad,  ///< those sums, to the device
  kOutput       ///< output projection
};
std::string_view task_name(TaskKind kind);

/// What a task costs, for the cost model: the larger of its arithmetic and its memory traffic decides.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

using TaskId = int32_t;

/// Task::micro_batch: all rows of the step.
inline constexpr int32_t kAllMicroBatches = -1;

struct Task {
  Lane lane = Lane::kCompute;
  TaskKind kind = TaskKind::kEmbed;
  int32_t layer = -1;   ///< index in the model; -1: the model's ends
  int32_t expert = -1;  ///< expert reads and experts
  int32_t rows = 0;     ///< of an expert
  int32_t micro_batch = kAllMicroBatches;  ///< whose rows it computes
  bool assumed = false; ///< kLayerExperts, before the router's choice is known: all of them
  Cost cost = {};
};

/// Whether the task moves KV between host memory and a device's.
constexpr bool is_kv_move(const Task& task) {
  return (task.kind == TaskKind::kKvLoad && task.lane == Lane::kHostToDevice) ||
         (task.kind == TaskKind::kKvSave && task.lane == Lane::kDeviceToHost);
}

/// Whether the task moves what attention on the host needs of a micro-batch, or what comes of it.
constexpr bool is_hidden_move(const Task& task) {
  return (task.kind == TaskKind::kQkvSend && task.lane == Lane::kDeviceToHost) ||
         (task.kind == TaskKind::kHiddenLoad && task.lane == Lane::kHostToDevice);
}

/// Whether who waits for the task waits for KV, or for what the host makes of it.
constexpr bool is_for_kv(const Task& task) {
  return is_kv_move(task) || is_hidden_move(task) || task.kind == TaskKind::kAttend;
}

/// Whether the task brings a layer's dense weights to a device.
constexpr bool is_weight_copy(const Task& task) {
  return task.kind == TaskKind::kWeightRead && task.lane == Lane::kHostToDevice;
}

/// Whether a link or the host does the task beside the thread that runs the step, and draws it itself.
constexpr bool is_drawn_apart(const Task& task) {
  return is_kv_move(task) || is_hidden_move(task) || is_weight_copy(task) ||
         (task.kind == TaskKind::kAttend && task.lane == Lane::kHostCompute);
}

/// Whether the layerwise schedule has tasks of this kind on this lane. Every runner can do those.
constexpr bool is_layerwise(const Task& task) {
  if (task.kind == TaskKind::kWeightRead || task.kind == TaskKind::kExpertRead)
    return task.lane == Lane::kStoreRead;
  return task.kind <= TaskKind::kHead && is_compute(task.lane);
}

class TaskGraph {
 public:
  explicit TaskGraph(const LaneKinds& lanes = kThreadComputes) : lanes_(lanes) {}

  /// Adds a task that may start when `after` have ended. Every id in `after` is of an earlier task; ended ones count as
  /// done.
  TaskId add(const Task& task, std::span<const TaskId> after = {});
  /// The same, held (see hold()): for joins of which not all that they wait for is known.
  TaskId add_held(const Task& task, std::span<const TaskId> after);
  /// Makes task `to` wait for `from` as well. `to` must not be ready yet. For joins whose inputs become known late.
  void add_edge(TaskId from, TaskId to);

  /// A task that waits does not start before release(). Twice is once.
  void hold(TaskId id);
  void release(TaskId id);

  const Task& operator[](TaskId id) const { return nodes_[static_cast<size_t>(id)].task; }
  int32_t size() const { return static_cast<int32_t>(nodes_.size()); }
  bool all_ended() const { return ended_ == size(); }

  static constexpr int32_t kAnyLayer = std::numeric_limits<int32_t>::max();
  /// Takes the first ready task of a lane that is of no later layer: it is running from now on. On a queue, what waits
  /// only for it may follow.
  std::optional<TaskId> start(Lane lane, int32_t layer_most = kAnyLayer);
  /// A running task has ended: those that waited only for it are ready. On a queue, whatever was started before it has
  /// ended too.
  void end(TaskId id);
  /// `id` is running on a queue. What was started behind it is taken back, and waits for it again.
  void take_back_after(TaskId id);
  /// `id` is void: it has ended without the tasks before it. It is the last on a queue, or is not running.
  void drop(TaskId id);

  /// Forgets all tasks, keeps the memory.
  void clear();

 private:
  enum class State : uint8_t { kWaiting, kReady, kRunning, kEnded };
  struct Node {
    Task task;
    int32_t first_edge = -1;  ///< into edges_: the tasks that wait for this one
    int32_t waits_for = 0;
    State state = State::kWaiting;
    bool held = false;  ///< counts as one that it waits for
  };
  struct Edge {
    TaskId to;
    int32_t next;
    bool met;
  };
  Node& node(TaskId id) { return nodes_[static_cast<size_t>(id)]; }
  std::vector<TaskId>& ready(Lane lane) { return ready_[static_cast<size_t>(lane)]; }
  std::vector<TaskId>& running(Lane lane) { return running_[static_cast<size_t>(lane)]; }
  bool is_queue(Lane lane) const { return lanes_[static_cast<size_t>(lane)] == LaneKind::kQueue; }
  /// Whether `to` may start once `from` has: both are on one queue.
  bool follows(TaskId from, TaskId to) const;
  void make_ready(TaskId id);
  std::optional<TaskId> take_ready(Lane lane, int32_t layer_most);
  void meet(Edge& edge);
  void end_one(TaskId id);

  LaneKinds lanes_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<std::vector<TaskId>, kLaneCount> ready_;    ///< heaps, the lowest id on top
  std::array<std::vector<TaskId>, kLaneCount> running_;  ///< of queues, in the order in which they were started
  std::vector<TaskId> taken_back_;                       ///< scratch
  int32_t ended_ = 0;
};

}  // namespace moestro::lanes

#include "common/lanes/task_graph.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "common/check.h"

namespace moestro::lanes {

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kStoreRead: return "store read";
    case Lane::kHostToDevice: return "host to device";
    case Lane::kDeviceToHost: return "device to host";
    case Lane::kHostCompute: return "host compute";
  }
  return "?";
}

std::string_view task_name(TaskKind kind) {
  switch (kind) {
    case TaskKind::kEmbed: return "embed";
    case TaskKind::kAttention: return "attention";
    case TaskKind::kRouter: return "router";
    case TaskKind::kDenseMlp: return "dense mlp";
    case TaskKind::kSharedExpert: return "shared expert";
    case TaskKind::kExpertRead: return "read expert";
    case TaskKind::kExpert: return "expert";
    case TaskKind::kLayerExperts: return "experts";
    case TaskKind::kCombine: return "combine";
    case TaskKind::kHead: return "head";
    case TaskKind::kWeightRead: return "read weights";
    case TaskKind::kKvLoad: return "load kv";
    case TaskKind::kKvSave: return "save kv";
    case TaskKind::kQkv: return "qkv";
    case TaskKind::kQkvSend: return "send qkv";
    case TaskKind::kAttend: return "attend";
    case TaskKind::kHiddenLoad: return "load hidden";
    case TaskKind::kOutput: return "output projection";
  }
  return "?";
}

TaskId TaskGraph::add(const Task& task, std::span<const TaskId> after) {
  const auto id = static_cast<TaskId>(nodes_.size());
  nodes_.push_back({.task = task});
  for (const TaskId from : after) add_edge(from, id);
  if (node(id).waits_for == 0) make_ready(id);
  return id;
}

TaskId TaskGraph::add_held(const Task& task, std::span<const TaskId> after) {
  const auto id = static_cast<TaskId>(nodes_.size());
  nodes_.push_back({.task = task, .waits_for = 1, .held = true});
  for (const TaskId from : after) add_edge(from, id);
  return id;
}

bool TaskGraph::follows(TaskId from, TaskId to) const {
  const Lane lane = (*this)[from].lane;
  return is_queue(lane) && (*this)[to].lane == lane;
}

void TaskGraph::make_ready(TaskId id) {
  node(id).state = State::kReady;
  std::vector<TaskId>& heap = ready(node(id).task.lane);
  heap.push_back(id);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

void TaskGraph::add_edge(TaskId from, TaskId to) {
  MOESTRO_CHECK(from >= 0 && from < size() && to >= 0 && to < size() && from != to,
                "an edge joins two tasks of the graph");
  MOESTRO_CHECK(node(to).state == State::kWaiting, "a task that is ready cannot wait for another");
  Node& source = node(from);
  if (source.state == State::kEnded) return;
  const bool met = source.state == State::kRunning && follows(from, to);
  edges_.push_back({to, source.first_edge, met});
  source.first_edge = static_cast<int32_t>(edges_.size()) - 1;
  if (!met) ++node(to).waits_for;
}

void TaskGraph::hold(TaskId id) {
  MOESTRO_CHECK(node(id).state == State::kWaiting, "a task that is ready cannot be held");
  if (!std::exchange(node(id).held, true)) ++node(id).waits_for;
}

void TaskGraph::release(TaskId id) {
  if (std::exchange(node(id).held, false) && --node(id).waits_for == 0) make_ready(id);
}

void TaskGraph::meet(Edge& edge) {
  if (std::exchange(edge.met, true)) return;
  Node& target = node(edge.to);
  if (--target.waits_for == 0 && target.state == State::kWaiting) make_ready(edge.to);
}

std::optional<TaskId> TaskGraph::take_ready(Lane lane, int32_t layer_most) {
  std::vector<TaskId>& heap = ready(lane);
  if (heap.empty()) return std::nullopt;
  if (node(heap.front()).task.layer <= layer_most) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const TaskId first = heap.back();
    heap.pop_back();
    return first;
  }
  // A step that is to park: tasks of its last layer may have been added after those of the next one.
  std::optional<TaskId> first;
  for (const TaskId id : heap)
    if (node(id).task.layer <= layer_most && (!first || id < *first)) first = id;
  if (!first) return std::nullopt;
  std::erase(heap, *first);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  return first;
}

std::optional<TaskId> TaskGraph::start(Lane lane, int32_t layer_most) {
  const std::optional<TaskId> taken = take_ready(lane, layer_most);
  if (!taken) return std::nullopt;
  const TaskId id = *taken;
  node(id).state = State::kRunning;
  if (!is_queue(lane)) return id;
  running(lane).push_back(id);
  for (int32_t e = node(id).first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
    Edge& edge = edges_[static_cast<size_t>(e)];
    if (follows(id, edge.to)) meet(edge);
  }
  return id;
}

void TaskGraph::end(TaskId id) {
  MOESTRO_CHECK(node(id).state == State::kRunning, "a task ends once, while it is running");
  if (!is_queue(node(id).task.lane)) return end_one(id);
  std::vector<TaskId>& queue = running(node(id).task.lane);
  const auto last = std::find(queue.begin(), queue.end(), id) + 1;
  for (auto at = queue.begin(); at != last; ++at) end_one(*at);
  queue.erase(queue.begin(), last);
}

void TaskGraph::end_one(TaskId id) {
  node(id).state = State::kEnded;
  ++ended_;
  for (int32_t e = node(id).first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next)
    meet(edges_[static_cast<size_t>(e)]);
}

/// Whatever is behind `id` on its queue depends on it, if only through tasks between them, or could not be told apart
/// from what does: it goes back together.
void TaskGraph::take_back_after(TaskId id) {
  const Lane lane = node(id).task.lane;
  MOESTRO_CHECK(is_queue(lane) && node(id).state == State::kRunning, "only what was queued can be taken back");
  std::vector<TaskId>& queue = running(lane);
  const auto behind = std::find(queue.begin(), queue.end(), id) + 1;
  taken_back_.assign(behind, queue.end());
  queue.erase(behind, queue.end());
  for (const TaskId back : taken_back_) node(back).state = State::kWaiting;
  taken_back_.push_back(id);
  for (const TaskId from : taken_back_)
    for (int32_t e = node(from).first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
      Edge& edge = edges_[static_cast<size_t>(e)];
      if (!std::exchange(edge.met, false)) continue;
      Node& target = node(edge.to);
      ++target.waits_for;
      if (target.state != State::kReady) continue;
      target.state = State::kWaiting;
      std::vector<TaskId>& heap = ready(target.task.lane);
      std::erase(heap, edge.to);
      std::make_heap(heap.begin(), heap.end(), std::greater<>());
    }
  taken_back_.pop_back();
  for (const TaskId back : taken_back_)
    if (node(back).waits_for == 0) make_ready(back);
}

void TaskGraph::drop(TaskId id) {
  Node& dropped = node(id);
  if (dropped.state == State::kRunning) {
    std::vector<TaskId>& queue = running(dropped.task.lane);
    MOESTRO_CHECK(!queue.empty() && queue.back() == id, "what was started behind a void task is taken back first");
    queue.pop_back();
  } else {
    MOESTRO_CHECK(dropped.state == State::kWaiting, "a task that is ready or has ended is not void");
  }
  end_one(id);
}

void TaskGraph::clear() {
  nodes_.clear();
  edges_.clear();
  for (std::vector<TaskId>& heap : ready_) heap.clear();
  for (std::vector<TaskId>& queue : running_) queue.clear();
  ended_ = 0;
}

}  // namespace moestro::lanes

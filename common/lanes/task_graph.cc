#include "common/lanes/task_graph.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::lanes {

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::kCompute: return "compute";
    case Lane::kStoreRead: return "store read";
    case Lane::kHostToDevice: return "host to device";
    case Lane::kDeviceToHost: return "device to host";
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
    case TaskKind::kCombine: return "combine";
    case TaskKind::kHead: return "head";
  }
  return "?";
}

TaskId TaskGraph::add(const Task& task, std::span<const TaskId> after) {
  const auto id = static_cast<TaskId>(nodes_.size());
  nodes_.push_back({.task = task});
  for (const TaskId from : after) add_edge(from, id);
  if (nodes_.back().waits_for == 0) {
    nodes_.back().ready = true;
    ready_.push_back(id);
  }
  return id;
}

void TaskGraph::add_edge(TaskId from, TaskId to) {
  MOESTRO_CHECK(from >= 0 && from < size() && to >= 0 && to < size() && from != to,
                "an edge joins two tasks of the graph");
  Node& source = nodes_[static_cast<size_t>(from)];
  Node& target = nodes_[static_cast<size_t>(to)];
  MOESTRO_CHECK(!target.ready, "a task that is ready cannot wait for another");
  if (source.ended) return;
  edges_.push_back({to, source.first_edge});
  source.first_edge = static_cast<int32_t>(edges_.size()) - 1;
  ++target.waits_for;
}

void TaskGraph::take_ready(std::vector<TaskId>& out) {
  out.clear();
  out.swap(ready_);
  std::sort(out.begin(), out.end());
}

void TaskGraph::end(TaskId id) {
  Node& node = nodes_[static_cast<size_t>(id)];
  MOESTRO_CHECK(node.ready && !node.ended, "a task ends once, after it was ready");
  node.ended = true;
  ++ended_;
  for (int32_t e = node.first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
    const TaskId to = edges_[static_cast<size_t>(e)].to;
    Node& target = nodes_[static_cast<size_t>(to)];
    if (--target.waits_for == 0) {
      target.ready = true;
      ready_.push_back(to);
    }
  }
}

void TaskGraph::clear() {
  nodes_.clear();
  edges_.clear();
  ready_.clear();
  ended_ = 0;
}

}  // namespace moestro::lanes

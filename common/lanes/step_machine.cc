#include "common/lanes/step_machine.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::lanes {

void StepMachine::begin(const StepShape& step) {
  graph_.clear();
  assumed_.clear();
  last_router_.reset();
  begun_ = -1, layer_most_ = TaskGraph::kAnyLayer, parked_at_ = kNeverParked, running_ = 0;
  cut_ = step.micro_batches.size() > 1;
  schedule_.begin(step, graph_);
}

std::span<const TaskId> StepMachine::start(Lane lane) {
  started_.clear();
  const LaneKind kind = kind_of(lane);
  while (const auto task = graph_.start(lane, layer_most_)) {
    started_.push_back(*task);
    begun_ = std::max(begun_, graph_[*task].layer);
    ++running_;
    if (kind == LaneKind::kOneByOne) break;
    if (kind == LaneKind::kQueue && !cut_ && graph_[*task].kind == TaskKind::kRouter)
      last_router_ = graph_[*task].layer;
  }
  return started_;
}

std::optional<int32_t> StepMachine::assumable() const {
  const bool assumed = !assumed_.empty() && assumed_.back().layer == last_router_;
  return assumed || !schedule_.assumes() ? std::nullopt : last_router_;
}

void StepMachine::assume(int32_t layer) {
  MOESTRO_CHECK(assumable() == layer, "what follows a router is assumed once, when it has been queued");
  assumed_.push_back({layer, schedule_.assume(layer, graph_)});
}

void StepMachine::holds(int32_t layer) {
  MOESTRO_CHECK(!assumed_.empty() && assumed_.front().layer == layer, "routers choose in the order of their layers");
  assumed_.erase(assumed_.begin());
  if (last_router_ == layer) last_router_.reset();
}

void StepMachine::park() {
  MOESTRO_CHECK(may_park(), "a step parks once for each layer that it begins");
  layer_most_ = parked_at_ = begun_;
}

void StepMachine::resume() { layer_most_ = TaskGraph::kAnyLayer; }

void StepMachine::routed(int32_t layer, int32_t micro_batch, std::span<const RoutedExpert> experts,
                         std::span<const Place> places) {
  if (last_router_ == layer) last_router_.reset();
  if (assumed_.empty()) return schedule_.expand(layer, micro_batch, experts, places, graph_);
  MOESTRO_CHECK(assumed_.front().layer == layer, "routers choose in the order of their layers");
  last_router_.reset();
  graph_.take_back_after(assumed_.front().task);
  schedule_.expand(layer, micro_batch, experts, places, graph_);
  for (const Assumed& wrong : assumed_) {
    if (wrong.layer != layer) schedule_.retract(wrong.layer, graph_);
    graph_.drop(wrong.task);
  }
  assumed_.clear();
}

}  // namespace moestro::lanes

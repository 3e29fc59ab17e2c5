#pragma once
// How long a task takes on given hardware, which this machine need not have.

#include "common/clock.h"
#include "common/lanes/task_graph.h"

namespace moestro::lanes {

/// One lane: a task takes `overhead` plus the longer of its arithmetic and its traffic. A rate of 0 means that it costs
/// nothing.
struct LaneCost {
  Nanos overhead{0};
  double flops_per_s = 0;
  double bytes_per_s = 0;
};

struct CostModel {
  LaneCost lanes[kLaneCount];
  LaneCost& operator[](Lane lane) { return lanes[static_cast<int>(lane)]; }
  Nanos duration(const Task& task) const;
};

}  // namespace moestro::lanes

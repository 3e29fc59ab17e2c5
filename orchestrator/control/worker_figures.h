#pragma once
// Counters of each worker, and of all together. Control thread.

#include <set>
#include <span>
#include <string>

#include "orchestrator/control/control_plane.h"
#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

/// The initial figures of a worker. Makes room for its layers in the figures of all.
ControlSnapshot::Worker begin_figures(const Registration& registration, ControlSnapshot& all);

/// kInternal: the figures of a worker's device are impossible for the device that it registered.
Status check_device(const DeviceStep& said, const ControlSnapshot::Worker& worker);

/// kInternal: the counts of low copies do not fit the worker's layers, or each other.
Status check_copies(std::span<const CopyCounts> by_layer, const ControlSnapshot::Worker& worker);

/// Adds a step to the figures of its worker and to those of all. If the figures of the device or of low copies
/// are impossible, the report becomes that of a failed plan.
void count_step(StepReport& report, ControlSnapshot::Worker& worker, ControlSnapshot& all);

/// Adds it to the steps of its kind.
void count_kind(const StepReport& report, const PlanWork& work, ControlSnapshot& all);

/// Names of workers that have registered before, up to a number that is not reached in practice.
class NamesSeen {
 public:
  /// Whether the name was used before; remembers it.
  bool again(const std::string& name);
  /// Its next use is a first one.
  void forget(const std::string& name) { names_.erase(name); }

 private:
  std::set<std::string> names_;
};

}  // namespace moestro::orchestrator

#pragma once
// What is counted of each worker, and of all together. Control thread.

#include <set>
#include <string>

#include "orchestrator/control/control_plane.h"
#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

/// Of a worker that has computed nothing yet; makes room for its layers in the figures of all.
ControlSnapshot::Worker begin_figures(const Registration& registration, ControlSnapshot& all);

/// kInternal: what a worker says of its device cannot be of the device that it registered.
Status check_device(const DeviceStep& said, const ControlSnapshot::Worker& worker);

/// Adds a step to the figures of its worker and to those of all. A report whose device cannot be becomes that of a plan
/// that failed.
void count_step(StepReport& report, ControlSnapshot::Worker& worker, ControlSnapshot& all);

/// Names of workers that were there; of those beyond a number nobody has, none.
class NamesSeen {
 public:
  /// Whether it was there before; from now on it was.
  bool again(const std::string& name);

 private:
  std::set<std::string> names_;
};

}  // namespace moestro::orchestrator

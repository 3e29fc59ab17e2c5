#pragma once
// What is counted of each worker, and of all together. Control thread.

#include <set>
#include <string>

#include "orchestrator/control/control_plane.h"
#include "orchestrator/control/worker_wire.h"

namespace moestro::orchestrator {

/// Of a worker that has computed nothing yet.
ControlSnapshot::Worker figures_of(const Registration& registration);

/// Adds a step to the figures of its worker and to those of all.
void count_step(const StepReport& report, ControlSnapshot::Worker& worker, ControlSnapshot& all);

/// Names of workers that were there; of those beyond a number nobody has, none.
class NamesSeen {
 public:
  /// Whether it was there before; from now on it was.
  bool again(const std::string& name);

 private:
  std::set<std::string> names_;
};

}  // namespace moestro::orchestrator

#pragma once
// How many threads a worker computes with, on which CPUs it keeps, and which core is whose.

#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "kernels/cpu/topology.h"

namespace moestro::worker {

struct ThreadPlaces {
  int threads = 1;
  std::vector<int> allowed;  ///< CPUs to keep to; empty: all that the process has
  std::vector<int> cpus;     ///< of each thread, to pin it there; empty: none is pinned
};

/// From workers.threads, pin_threads, numa_node and count, for the worker of this name, on this machine.
Result<ThreadPlaces> place_threads(const config::BoxConfig& box, const std::string& name, kernels::cpu::Topology machine);

}  // namespace moestro::worker

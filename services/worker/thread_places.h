#pragma once
// How many threads a worker computes with, which CPUs it uses, and which threads are pinned to which cores.

#include <optional>
#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "kernels/cpu/topology.h"
#include "services/box/cpu_share.h"

namespace moestro::worker {

struct ThreadPlaces {
  int threads = 1;
  std::vector<int> allowed;  ///< CPUs to use; empty: all CPUs of the process
  std::vector<int> cpus;     ///< CPU that each thread is pinned to; empty: none is pinned
  std::vector<int> nodes;    ///< likewise: the NUMA node of each
  std::vector<int> main_cpus;  ///< likewise: what the first thread keeps to, which is the program's, with all that it
                               ///< starts: its node's CPUs
};

/// From workers.threads, pin_threads, numa_node and count, for the worker of this name, on this machine. `share`: the
/// workers that share the CPUs of that node; nullopt: all workers of the box.
Result<ThreadPlaces> place_threads(const config::BoxConfig& box, const std::string& name,
                                   kernels::cpu::Topology machine, std::optional<box::CpuShare> share = std::nullopt);

}  // namespace moestro::worker

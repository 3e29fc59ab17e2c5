#pragma once
// The cores and NUMA nodes that this process may run on, as /sys/devices/system describes them.

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::kernels::cpu {

class Topology {
 public:
  /// Describes the CPUs in `allowed`. If something cannot be read, each CPU counts as a core, and all are on node 0.
  static Topology read(const std::filesystem::path& system, std::span<const int> allowed);
  /// For the affinity mask of this process.
  static Topology of_process();

  int cpus() const { return static_cast<int>(cpus_.size()); }
  int cores() const { return cores_; }
  /// Nodes with CPUs in this topology, ascending.
  const std::vector<int>& nodes() const { return nodes_; }
  std::vector<int> cpus_of(int node) const;
  /// The node of one of these CPUs; 0 for any other.
  int node_of(int cpu) const;
  /// This topology with only one node's CPUs. kInvalidArgument names the existing nodes.
  Result<Topology> only(int node) const;

  /// CPUs for this many threads, one core each, with a node's cores together. The first `skip` such cores are left to
  /// others. Empty if there are not enough.
  std::vector<int> cores_for(int threads, int skip = 0) const;

 private:
  struct Cpu {
    int id = 0, node = 0;
    bool first_of_core = true;  ///< of a core's CPUs that may be used, the one with the lowest id
  };
  void count();
  std::vector<Cpu> cpus_;  ///< by node, then id
  std::vector<int> nodes_;
  int cores_ = 0;
};

/// From now on this thread, and those it starts, run on these CPUs only. kIo with the reason.
Status run_on(std::span<const int> cpus);

}  // namespace moestro::kernels::cpu

#pragma once
// Which device each worker of a box computes on, and which of the host's CPUs are near it.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "kernels/device_registry.h"

namespace moestro::cli {

/// Of the workers that share a set of CPUs, the `k`th of `of`.
struct CpuShare {
  int64_t k = 0, of = 1;
};

struct WorkerPlace {
  std::string device;                ///< as --device takes it
  std::optional<int64_t> numa_node;  ///< of the device, where the machine says one and the configuration none
  CpuShare share;                    ///< where numa_node is set: of the workers of the box that are on that node
  std::string note;  ///< for the user: "on cuda:1, NVIDIA H200 (0000:17:00.0), NUMA node 0"; empty where there is
                     ///< nothing to say
};

/// What this machine has, or a test says that it has.
struct MachineDevices {
  std::filesystem::path plugin = kernels::cuda_plugin_path();
  std::filesystem::path pci_devices = "/sys/bus/pci/devices";
  std::vector<int> nodes;  ///< NUMA nodes with CPUs that this process may use
};

/// NUMA nodes as this process may run on them: its workers may, too.
MachineDevices this_machine();
/// Nodes that weights may be put on; none where numactl, say, has chosen for this process and those that it starts.
std::vector<int> memory_nodes_to_choose();

/// Without an index, worker i is on the (i mod n)th of the n usable CUDA devices; with one, all are on that. Workers
/// that share a device and were given no vram= get equal parts of what is free. Other devices: every worker the same.
/// kUnsupported, kUnavailable, kInvalidArgument: no worker can compute on what workers.device says, with its reason and
/// what to do.
Result<std::vector<WorkerPlace>> place_workers(const config::BoxConfig& box, const MachineDevices& machine);

}  // namespace moestro::cli

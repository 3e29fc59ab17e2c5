#pragma once
// Which device each worker of a box computes on, and which of the host's CPUs are near it.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/config/box_config.h"
#include "common/status.h"
#include "kernels/devices/device_registry.h"
#include "services/box/cpu_share.h"

namespace moestro::cli {

struct WorkerPlace {
  std::string device;                ///< in the form of --device
  std::optional<int64_t> numa_node;  ///< of the device, if the machine reports one and the configuration names none
  box::CpuShare share;               ///< if numa_node is set: among the workers of the box on that node
  std::string note;  ///< for the user: "on cuda:1, NVIDIA H200 (0000:17:00.0), NUMA node 0"; empty where there is
                     ///< nothing to say
};

/// The devices of this machine, or those of a test.
struct MachineDevices {
  std::filesystem::path plugin = kernels::cuda_plugin_path();
  std::filesystem::path pci_devices = "/sys/bus/pci/devices";
  std::vector<int> nodes;  ///< NUMA nodes with CPUs that this process may use
};

/// NUMA nodes that this process, and so its workers, may run on.
MachineDevices this_machine();
/// Nodes that weights may be placed on; empty if a policy such as numactl's is set for this process and its children.
std::vector<int> memory_nodes_to_choose();

/// Without an index, worker i gets the (i mod n)th of the n usable CUDA devices; with an index, all workers get that
/// device. Workers that share a device without vram= get equal parts of the free memory. Other devices are the same for
/// every worker. kUnsupported, kUnavailable, kInvalidArgument: workers.device cannot be used, with the reason and what
/// to do.
Result<std::vector<WorkerPlace>> place_workers(const config::BoxConfig& box, const MachineDevices& machine);

}  // namespace moestro::cli

#pragma once
// Where a worker's GPU, threads and weights are on a host with several NUMA nodes.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/machine/numa_pages.h"
#include "services/worker/cuda/cuda_device.h"
#include "services/worker/thread_places.h"

namespace moestro::worker {

struct MemoryPlaces {
  std::vector<int> nodes;       ///< with memory
  std::string device;           ///< "cuda:1"; empty: the CPU computes
  std::optional<int> gpu;       ///< that device's node; nullopt: the machine does not say
  std::vector<int> threads;     ///< nodes of the CPUs that compute
  bool threads_stay = false;    ///< each thread stays on its node
  std::map<int, size_t> arena;  ///< pieces of the weights, by node; empty: the kernel does not tell
};

struct PlacesReport {
  std::string line;     ///< empty: there is one node
  bool remote = false;  ///< threads, or most of the weights, are on other nodes than the computing device
};
PlacesReport report_places(const MemoryPlaces& places);

/// For this process, its threads, its device (null: the CPU), and the weights that it maps.
MemoryPlaces look_at_places(const ThreadPlaces& threads, const cuda::CudaDevice* device,
                            const machine::NodeMap& weights);

}  // namespace moestro::worker

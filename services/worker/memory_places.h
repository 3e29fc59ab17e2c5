#pragma once
// How far a worker's memory is from what computes: on a host of several NUMA nodes.

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
  std::optional<int> gpu;       ///< that device's node; none: the machine does not say
  std::vector<int> threads;     ///< nodes of the CPU's that compute
  bool threads_stay = false;    ///< each of them on its node
  std::map<int, size_t> arena;  ///< pieces of the weights, by node; empty: the kernel does not tell
};

struct PlacesReport {
  std::string line;     ///< empty: there is one node
  bool remote = false;  ///< threads, or most of the weights, are on other nodes than what computes
};
PlacesReport report_places(const MemoryPlaces& places);

/// Of this process, its threads and its device (null: the CPU), and the weights it maps.
MemoryPlaces look_at_places(const ThreadPlaces& threads, const cuda::CudaDevice* device,
                            const machine::NodeMap& weights);

}  // namespace moestro::worker

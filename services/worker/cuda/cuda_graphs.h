#pragma once
// Graphs of work that steps queue repeatedly. A graph is captured when its key is seen for the second time: the first
// time, kernels are loaded and memory grows, which must not happen during a capture. Capturing runs the same code, so a
// graph launches exactly what would have been queued.

#include <compare>
#include <cstdint>
#include <list>
#include <map>

#include "kernels/cuda/device_memory.h"

namespace moestro::cuda {

/// What the arguments of a step's launches depend on in addition to the model. Everything else is read from device
/// memory, at the same places in each step.
struct StepShape {
  int32_t rows = 0;         ///< one for each sequence
  int32_t parts = 0;        ///< of the longest sequence, as CudaOps::send_sequences rounds them
  int32_t asked_ahead = 0;  ///< routers
  bool has_gap = false;     ///< between sinks and window, for any row
  bool keeps = false;       ///< states of sequences, for layers that may be computed once more
  int32_t chunk_parts = 0;  ///< as `parts`, of layers that see chunks
  friend auto operator<=>(const StepShape&, const StepShape&) = default;
};

struct GraphKey {
  StepShape step;
  int32_t segment = 0;
  uint64_t place = 0;  ///< of the first of its layers whose dense weights take turns; 0: there are none
  friend auto operator<=>(const GraphKey&, const GraphKey&) = default;
};

struct GraphCounts {
  uint64_t captured = 0, launched = 0;
  uint64_t given_way = 0;  ///< keys that were dropped for others
};

class CudaGraphs {
 public:
  /// The maximum number of keys, each with at most a graph of about ten kernels: some tens of KiB of device memory,
  /// so in all at most half of what is left to the driver (driver_margin).
  static constexpr size_t kMost = 1024;

  /// `queue` outlives it.
  CudaGraphs(kernels::cuda::DeviceQueue& queue, bool on, size_t most = kMost) : queue_(queue), most_(most), on_(on) {}
  ~CudaGraphs() { clear(); }
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  /// False after the driver has refused a capture or a launch.
  bool are_on() const { return on_; }
  const GraphCounts& counts() const { return counts_; }
  /// Drops all graphs, because their addresses have changed.
  void clear();

  /// Launches the work that work() queues as a graph. False: there is no graph, nothing has been queued, and the caller
  /// calls work() itself.
  template <typename Work>
  bool launch(const GraphKey& key, const Work& work) {
    Entry* entry = seen_before(key);
    if (entry == nullptr) return false;
    if (entry->graph == nullptr) {
      if (!begin()) return false;
      work();
      if (!end(*entry)) return false;
    }
    return launch(*entry);
  }

 private:
  struct Entry {
    GraphKey key;
    MoestroCudaGraph graph = nullptr;  ///< null: seen once
  };
  using Entries = std::list<Entry>;

  /// Null if the key is new, or graphs are off. Remembers the key.
  Entry* seen_before(const GraphKey& key);
  bool begin();
  bool end(Entry& entry);
  bool launch(const Entry& entry);
  /// Turns graphs off: everything is queued from now on. The failed call had no effect.
  bool give_up(const char* call, MoestroCudaResult result);
  void drop(Entry& entry);

  kernels::cuda::DeviceQueue& queue_;
  const size_t most_;
  bool on_;
  uint64_t moves_ = 0;  ///< DeviceQueue::moves of all graphs
  Entries entries_;     ///< the last one used first
  std::map<GraphKey, Entries::iterator> by_key_;
  GraphCounts counts_;
};

}  // namespace moestro::cuda

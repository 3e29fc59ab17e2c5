#include "services/worker/cuda/cuda_graphs.h"

#include <utility>

#include "common/log.h"

namespace moestro::cuda {

void CudaGraphs::drop(Entry& entry) {
  if (entry.graph != nullptr) (void)queue_.functions.end_graph(std::exchange(entry.graph, nullptr));
}

void CudaGraphs::clear() {
  for (Entry& entry : entries_) drop(entry);
  by_key_.clear();
  entries_.clear();
}

CudaGraphs::Entry* CudaGraphs::seen_before(const GraphKey& key) {
  if (!on_ || queue_.error != 0) return nullptr;
  if (queue_.moves != moves_) clear();
  moves_ = queue_.moves;
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    entries_.splice(entries_.begin(), entries_, found->second);
    return &entries_.front();
  }
  if (entries_.size() < most_) {
    entries_.push_front({key, nullptr});
    by_key_.emplace(key, entries_.begin());
    return nullptr;
  }
  // The oldest one's place, in both without an allocation: with more shapes than there is room for this is every
  // step's.
  entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));
  Entry& entry = entries_.front();
  auto node = by_key_.extract(entry.key);
  drop(entry);
  ++counts_.given_way;
  entry.key = node.key() = key;
  by_key_.insert(std::move(node));
  return nullptr;
}

bool CudaGraphs::begin() {
  if (const MoestroCudaResult result = queue_.functions.begin_capture(queue_.stream); result != 0)
    return give_up("begin_capture", result);
  queue_.capturing = true;
  return true;
}

bool CudaGraphs::end(Entry& entry) {
  queue_.capturing = false;
  // What was refused within the capture was not refused to the stream: if it is the device's own fault, it comes again.
  const MoestroCudaResult within = std::exchange(queue_.error, 0);
  const char* call = std::exchange(queue_.failed, nullptr);
  const MoestroCudaResult ended = queue_.functions.end_capture(queue_.stream, &entry.graph);
  if (ended != 0) entry.graph = nullptr;
  if (within != 0) return give_up(call, within);
  if (ended != 0) return give_up("end_capture", ended);
  ++counts_.captured;
  return true;
}

bool CudaGraphs::launch(const Entry& entry) {
  if (const MoestroCudaResult result = queue_.functions.launch_graph(entry.graph, queue_.stream); result != 0)
    return give_up("launch_graph", result);
  ++counts_.launched;
  return true;
}

bool CudaGraphs::give_up(const char* call, MoestroCudaResult result) {
  log::warn("CUDA graphs are given up, and every kernel is launched by itself from now on: {}: {}", call,
            queue_.functions.error_text(result));
  on_ = false;
  clear();
  return false;
}

}  // namespace moestro::cuda

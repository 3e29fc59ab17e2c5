#pragma once
// Which sequences may still join a queue that is nearly full.
//
// A flow is the sender of a sequence: an API key, a batch, or none. The last eighth of the queue's places is for flows
// below their share. The share is the number of places divided by the number of flows in the queue, including the new
// one, plus one more that may come. So a flow that floods the queue fills seven eighths of it, and others still find
// places. Below seven eighths every flow is admitted. A queue of fewer than eight places keeps none back. None is kept
// from requests without a key, because without keys there are no other senders.

#include <cstddef>
#include <string>
#include <unordered_map>

#include "common/status.h"

namespace moestro::orchestrator {

class QueuePlaces {
 public:
  explicit QueuePlaces(size_t max) : max_(max) {}

  /// Adds a sequence of `flow`. kExhausted: there is no place for it.
  Status enter(const std::string& flow);
  void leave(const std::string& flow);

  /// Number of sequences in the queue.
  size_t size() const { return size_; }
  /// The most sequences that a flow can have in an empty queue. Requests without a key can have all places.
  static size_t most_of(const std::string& flow, size_t max) { return flow.empty() ? max : max - max / 8; }

 private:
  size_t share_with(const std::string& flow) const;

  const size_t max_;
  size_t size_ = 0;
  std::unordered_map<std::string, size_t> there_;  ///< number of sequences by flow; only flows that have some
};

}  // namespace moestro::orchestrator

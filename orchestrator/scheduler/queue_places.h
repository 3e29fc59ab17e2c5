#pragma once
// Who may still join a queue that is nearly full.
//
// A flow is whose a sequence is: an API key, a batch, or nobody's in particular. The last eighth of the queue's places
// is for flows below their share: the places divided by the flows that have something there, the newcomer's among them,
// and one more that may come. So whoever floods the queue fills seven eighths of it, and who comes then with little
// finds a place; below that everybody is let in. A queue of fewer than eight places keeps none back, and none is kept
// from requests without a key: where there are no keys there are no others.

#include <cstddef>
#include <string>
#include <unordered_map>

#include "common/status.h"

namespace moestro::orchestrator {

class QueuePlaces {
 public:
  explicit QueuePlaces(size_t max) : max_(max) {}

  /// One more sequence of `flow` is there; kExhausted: it has no place, and is not.
  Status enter(const std::string& flow);
  void leave(const std::string& flow);

  /// Sequences that are there.
  size_t size() const { return size_; }
  /// So many sequences a flow can have there, if it comes to an empty queue; of requests without a key all there are.
  static size_t most_of(const std::string& flow, size_t max) { return flow.empty() ? max : max - max / 8; }

 private:
  size_t share_with(const std::string& flow) const;

  const size_t max_;
  size_t size_ = 0;
  std::unordered_map<std::string, size_t> there_;  ///< by flow, those that have something
};

}  // namespace moestro::orchestrator

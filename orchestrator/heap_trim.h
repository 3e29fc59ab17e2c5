#pragma once
// Returns memory to the system that large requests have left in the heap.

#include <chrono>

#include "orchestrator/ticker.h"

namespace moestro::orchestrator {

/// One per process. Its own thread looks again and again whether malloc keeps more than a little.
class HeapTrim {
 public:
  explicit HeapTrim(std::chrono::milliseconds every = std::chrono::seconds(10));

 private:
  Ticker ticker_;
};

}  // namespace moestro::orchestrator

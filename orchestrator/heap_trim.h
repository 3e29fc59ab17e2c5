#pragma once
// Returns memory to the system that large requests have left in the heap.

#include "orchestrator/ticker.h"

namespace moestro::orchestrator {

/// One per process. Its own thread checks every few seconds how much malloc keeps.
class HeapTrim {
 public:
  HeapTrim();

 private:
  Ticker ticker_;
};

}  // namespace moestro::orchestrator

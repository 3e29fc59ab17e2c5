#pragma once
// Gives memory back to the system that large requests have left in the heap.

#include "orchestrator/ticker.h"

namespace moestro::orchestrator {

/// One for the process. What malloc keeps for itself is looked at every few seconds on a thread of its own.
class HeapTrim {
 public:
  HeapTrim();

 private:
  Ticker ticker_;
};

}  // namespace moestro::orchestrator

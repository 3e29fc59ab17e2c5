#pragma once
// Gives memory back to the system that large requests have left in the heap.

#include <stop_token>
#include <thread>

namespace moestro::orchestrator {

/// One for the process. What malloc keeps for itself is looked at every few seconds on a thread of its own.
class HeapTrim {
 public:
  HeapTrim();
  HeapTrim(const HeapTrim&) = delete;
  HeapTrim& operator=(const HeapTrim&) = delete;

 private:
  static void loop(const std::stop_token& stop);
  std::jthread thread_;
};

}  // namespace moestro::orchestrator

#pragma once
// When a client that found the queue full should come again.

#include <chrono>
#include <cstddef>
#include <deque>

#include "common/clock.h"

namespace moestro::orchestrator {

/// Places become free as sequences end. Each refused client is given the time when a place is expected for it, so that
/// clients do not all come back at once. No time is longer than the whole queue will take.
class RetryAfter {
 public:
  /// The first sequence has arrived after there was none.
  void began(Nanos now);
  void ended(Nanos now);
  /// 1 s to 10 minutes: the header has whole seconds.
  std::chrono::seconds refused(Nanos now, size_t queued);

 private:
  Nanos since_{0};          ///< all ends since then are counted
  std::deque<Nanos> ends_;
  Nanos promised_{0};       ///< the latest time that was given to a client
};

}  // namespace moestro::orchestrator

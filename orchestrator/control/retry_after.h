#pragma once
// When a client that found the queue full should come again.

#include <chrono>
#include <cstddef>
#include <deque>

#include "common/clock.h"

namespace moestro::orchestrator {

/// Places come free as sequences end. Each client that is refused is given the time at which one is to be expected for
/// it, so that they do not all come back at once; nobody is sent away for longer than all that is queued will take.
class RetryAfter {
 public:
  /// The first sequence has come after there was none.
  void began(Nanos now);
  void ended(Nanos now);
  /// 1 s to 10 minutes: the header has whole seconds.
  std::chrono::seconds refused(Nanos now, size_t queued);

 private:
  Nanos since_{0};          ///< the ends are all that there were from then on
  std::deque<Nanos> ends_;
  Nanos promised_{0};       ///< the latest time that was given
};

}  // namespace moestro::orchestrator

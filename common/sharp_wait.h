#pragma once
// Waiting as what is emulated would: to the microsecond.

#include <thread>

#include "common/clock.h"

namespace moestro {

/// Returns at `end` of a clock that runs. A thread that sleeps wakes late by tens of microseconds; so the last of the
/// wait is spun.
inline void wait_sharply_until(const Clock& clock, Nanos end) {
  constexpr Nanos kWakesLate = std::chrono::microseconds(100);
  if (const Nanos left = end - clock.now() - kWakesLate; left.count() > 0) std::this_thread::sleep_for(left);
  while (clock.now() < end) std::this_thread::yield();
}

}  // namespace moestro

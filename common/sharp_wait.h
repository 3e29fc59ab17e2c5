#pragma once
// Waiting with an error of about a microsecond, for emulated hardware.

#include <thread>

#include "common/clock.h"

namespace moestro {

/// A clock that moves only while somebody waits: for emulated hardware without a real time.
class SteppedClock : public Clock {
 public:
  virtual void wait_until(Nanos end) const = 0;
};

/// Returns at `end` of a running clock. A sleeping thread wakes tens of microseconds late, so the last part of the wait
/// spins.
inline void wait_sharply_until(const Clock& clock, Nanos end) {
  if (const auto* stepped = dynamic_cast<const SteppedClock*>(&clock)) return stepped->wait_until(end);
  constexpr Nanos kWakesLate = std::chrono::microseconds(100);
  if (const Nanos left = end - clock.now() - kWakesLate; left.count() > 0) std::this_thread::sleep_for(left);
  while (clock.now() < end) std::this_thread::yield();
}

}  // namespace moestro

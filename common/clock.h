#pragma once
// Time is injected: code that waits or takes time stamps gets a Clock. Tests pass a clock that they advance themselves.

#include <chrono>

namespace moestro {

using Nanos = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  /// Monotonic, from an arbitrary start.
  virtual Nanos now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  Nanos now() const override { return std::chrono::steady_clock::now().time_since_epoch(); }
};

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_{0};
};

}  // namespace moestro

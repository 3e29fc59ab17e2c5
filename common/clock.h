#pragma once
// Time is injected: code that waits or takes time stamps gets a Clock. Tests pass a clock that they advance themselves.

#include <chrono>
#include <cstdint>

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

/// The time of day, which may jump: for what people and other machines read.
inline int64_t unix_seconds() {
  return std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()).time_since_epoch().count();
}

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos by) { now_ += by; }

 private:
  Nanos now_{0};
};

}  // namespace moestro

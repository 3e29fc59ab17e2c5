#pragma once
// Progress lines while an arena is backed. A large one takes half a minute or more.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace moestro::store {

class BackingProgress {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  BackingProgress(uint64_t total, TimePoint now) : total_(total), began_(now), said_(now) {}

  /// "1.2 of 8.0 GiB, 0.5 GiB/s, 14 s left"; at most one every 2 s, and none before the first 2 s.
  std::optional<std::string> line(uint64_t done, TimePoint now);

 private:
  uint64_t total_;
  TimePoint began_, said_;
};

}  // namespace moestro::store

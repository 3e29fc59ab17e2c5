#pragma once
// Durations counted by length, for /metrics and the status page.

#include <array>
#include <cstddef>
#include <cstdint>

namespace moestro::orchestrator {

struct DurationHistogram {
  /// Upper bounds in seconds; one further bucket has longer durations.
  static constexpr std::array<double, 16> kBounds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                  0.25,   0.5,   1,      2.5,   5,    10,    30,   60};
  std::array<uint64_t, kBounds.size() + 1> counts{};  ///< per bucket, not cumulative
  double sum = 0;
  uint64_t count = 0;

  void add(double seconds) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    ++counts[bucket];
    ++count;
    sum += seconds;
  }
};

}  // namespace moestro::orchestrator

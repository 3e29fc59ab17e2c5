#pragma once
// What the store says about messages that it refuses: each is counted, a few are logged. Whoever sends rubbish in a
// loop must not fill the disk with it.

#include <chrono>
#include <cstdint>
#include <optional>

namespace moestro::store {

class RefusalLog {
 public:
  static constexpr uint32_t kBurst = 20;  ///< lines that may come at once; one more each kEach
  static constexpr std::chrono::milliseconds kEach{500};
  using TimePoint = std::chrono::steady_clock::time_point;

  /// One more refusal: how many went unsaid before this one if it is to be logged, nothing if it is not.
  std::optional<uint64_t> refused(TimePoint now);
  uint64_t count() const { return count_; }

 private:
  uint64_t count_ = 0, unsaid_ = 0;
  uint32_t tokens_ = kBurst;
  TimePoint filled_{};
};

}  // namespace moestro::store

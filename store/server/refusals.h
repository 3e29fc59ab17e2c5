#pragma once
// Logging of refused messages: each is counted, a few are logged. A client that sends invalid messages in a loop must
// not fill the disk.

#include <chrono>
#include <cstdint>
#include <optional>

namespace moestro::store {

class RefusalLog {
 public:
  static constexpr uint32_t kBurst = 20;  ///< lines that may come at once; one more each kEach
  static constexpr std::chrono::milliseconds kEach{500};
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Counts a refusal. If it should be logged, returns the number of refusals before it that were not logged; otherwise
  /// nullopt.
  std::optional<uint64_t> refused(TimePoint now);
  uint64_t count() const { return count_; }
  /// When the last one came; nullopt: none did.
  std::optional<TimePoint> last() const { return last_; }

 private:
  uint64_t count_ = 0, unsaid_ = 0;
  std::optional<TimePoint> last_;
  uint32_t tokens_ = kBurst;
  TimePoint filled_{};
};

}  // namespace moestro::store

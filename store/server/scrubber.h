#pragma once
// The pace and position of the scrubber, which checks resident blobs again.

#include <chrono>
#include <cstdint>

namespace moestro::store {

class Scrubber {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void set_rate(uint64_t bytes_per_s) { bytes_per_s_ = bytes_per_s; }
  bool on() const { return bytes_per_s_ != 0; }
  TimePoint due() const { return due_; }
  /// The store was busy until now: that time is not caught up.
  void busy(TimePoint now) { due_ = now > due_ ? now : due_; }
  void looked_at(uint64_t bytes, TimePoint now);
  uint64_t bytes() const { return bytes_; }

  /// A slice of a blob.
  struct Place {
    uint32_t entry = 0;
    uint32_t slice = 0;
    uint64_t offset_in_blob = 0;
    uint64_t generation = 0;
  };
  Place place;  ///< what is checked next
  void next_entry() { place = {place.entry + 1, 0, 0, 0}; }

 private:
  uint64_t bytes_per_s_ = 0, bytes_ = 0;
  TimePoint due_{};
};

}  // namespace moestro::store

#pragma once
// Contiguous ranges of [0, size). First fit over a map of free ranges, which are merged when they are freed.

#include <cstdint>
#include <map>
#include <optional>

namespace moestro::store {

class RangeAllocator {
 public:
  enum class End : uint8_t { kLow, kHigh };

  /// Every offset and length is a multiple of `granule`.
  RangeAllocator(uint64_t size, uint64_t granule);

  /// The lowest (or highest) range of at least `length` bytes; none if no free range is that long.
  std::optional<uint64_t> allocate(uint64_t length, End end);
  /// Takes exactly the range [offset, offset + length). False if it is not completely free, or could not have come from
  /// allocate().
  bool take(uint64_t offset, uint64_t length);
  /// `length` as given to allocate().
  void free(uint64_t offset, uint64_t length);

  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_free() const;
  /// A free range of `length` bytes, which stays free.
  std::optional<uint64_t> find(uint64_t length) const;
  /// The number of free bytes directly below `end`.
  uint64_t free_before(uint64_t end) const;
  /// The number of free bytes from `begin` on.
  uint64_t free_after(uint64_t begin) const;
  uint64_t rounded(uint64_t length) const { return (length + granule_ - 1) / granule_ * granule_; }

 private:
  uint64_t granule_;
  uint64_t free_bytes_;
  std::map<uint64_t, uint64_t> free_;  ///< offset -> length
};

}  // namespace moestro::store

#pragma once
// The memory of an emulated device: equal slots, apart from host memory, backed from the start.

#include <cstddef>
#include <cstdint>

#include "common/status.h"

namespace moestro::device {

class SlotMemory {
 public:
  /// kExhausted: the machine does not have it.
  static Result<SlotMemory> create(int32_t slots, uint64_t slot_bytes);
  SlotMemory(SlotMemory&& other) noexcept;
  SlotMemory& operator=(SlotMemory&&) = delete;
  ~SlotMemory();

  std::byte* slot(uint32_t index) const { return base_ + static_cast<uint64_t>(index) * slot_bytes_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  /// NaN in every precision of weights: whoever reads a slot that holds nothing shows.
  void poison(uint32_t index) const;

 private:
  SlotMemory(std::byte* base, uint64_t bytes, uint64_t slot_bytes) : base_(base), bytes_(bytes), slot_bytes_(slot_bytes) {}
  std::byte* base_;
  uint64_t bytes_, slot_bytes_;
};

}  // namespace moestro::device

#pragma once
// A device's memory for experts: equal slots, separate from host memory. Behind those of full copies are those of low
// ones, if there are any.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/status.h"
#include "services/worker/device/cuda_slots.h"

namespace moestro::device {

class SlotMemory {
 public:
  /// An emulated device's, backed from the start. kExhausted: the machine does not have it.
  static Result<SlotMemory> create(int32_t slots, uint64_t slot_bytes, int32_t low_slots = 0, uint64_t low_bytes = 0);
  /// A CUDA device's, which the calling thread uses: one allocation. kExhausted: the device does not have it.
  static Result<SlotMemory> on_device(const CudaSlots& device, int32_t slots, uint64_t slot_bytes,
                                      const char* what_for = "experts");

  /// The device's address. On a CUDA device the host cannot read it.
  std::byte* slot(uint32_t index) const {
    const uint32_t full = std::min(index, slots_);
    return base_.get() + uint64_t{full} * stride_ + uint64_t{index - full} * low_bytes_;
  }
  uint64_t slot_bytes(uint32_t index = 0) const { return index < slots_ ? slot_bytes_ : low_bytes_; }
  /// On an emulated device: fills the slot with NaN in every precision of weights, so that reads of an empty slot are
  /// visible.
  void poison(uint32_t index) const;

 private:
  using Base = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
  SlotMemory(Base base, int32_t slots, uint64_t slot_bytes, uint64_t stride, uint64_t low_bytes = 0)
      : base_(std::move(base)),
        slots_(static_cast<uint32_t>(slots)),
        slot_bytes_(slot_bytes),
        stride_(stride),
        low_bytes_(low_bytes) {}
  Base base_;
  uint32_t slots_;  ///< of full copies
  uint64_t slot_bytes_, stride_, low_bytes_;
};

}  // namespace moestro::device

#pragma once
// A device's memory for experts: equal slots, separate from host memory.

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
  static Result<SlotMemory> create(int32_t slots, uint64_t slot_bytes);
  /// A CUDA device's, which the calling thread uses: one allocation. kExhausted: the device does not have it.
  static Result<SlotMemory> on_device(const CudaSlots& device, int32_t slots, uint64_t slot_bytes);

  /// The device's address. On a CUDA device the host cannot read it.
  std::byte* slot(uint32_t index) const { return base_.get() + static_cast<uint64_t>(index) * stride_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  /// On an emulated device: fills the slot with NaN in every precision of weights, so that reads of an empty slot are
  /// visible.
  void poison(uint32_t index) const;

 private:
  using Base = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;
  SlotMemory(Base base, uint64_t slot_bytes, uint64_t stride)
      : base_(std::move(base)), slot_bytes_(slot_bytes), stride_(stride) {}
  Base base_;
  uint64_t slot_bytes_, stride_;
};

}  // namespace moestro::device

#pragma once
// The slots of experts on a CUDA device, and error texts of its calls.

#include <algorithm>
#include <cstdint>
#include <string>

#include "common/status.h"
#include "kernels/plugin/plugin_abi.h"

namespace moestro::device {

struct CudaSlots {
  const MoestroCudaFunctions* functions = nullptr;  ///< never freed
  uint32_t index = 0;                               ///< of the device
  /// The stream with kernels that read slots; outlives the experts. Only launched() uses it, from the engine's thread.
  MoestroCudaStream compute = nullptr;
  uint64_t bytes = 0;        ///< of device memory for slots, in one piece; whole experts of it are used
  uint64_t chunk_bytes = 0;  ///< what is copied at once; 0: chunk_of()

  /// A chunk of an expert of this size. Between two copies a device is idle for a microsecond or two: for 4 MiB, at 25
  /// to 55 GB/s, that is 1 to 3 %, for 16 MiB less than 1 %. A demand waits for at most two chunks, so they are small
  /// compared with what it copies itself: a quarter of it, or 0.15 to 0.3 ms.
  static constexpr uint64_t chunk_of(uint64_t expert_bytes) {
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    return std::clamp(expert_bytes / 8 / kMiB * kMiB, 4 * kMiB, 16 * kMiB);
  }
  uint64_t chunk(uint64_t expert_bytes) const { return chunk_bytes > 0 ? chunk_bytes : chunk_of(expert_bytes); }
  /// Bytes of one expert's slot.
  static constexpr uint64_t slot_bytes(uint64_t expert_bytes) {
    return (expert_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  static constexpr uint64_t kAlignment = 256;
};

/// The error text of a call: "the device cuda:0: copy_in: an illegal memory access was encountered".
std::string words_of(const CudaSlots& device, const char* call, MoestroCudaResult result);
/// OK for 0. Otherwise kUnavailable: the device worked until now and has failed.
Status fell_off(const CudaSlots& device, const char* call, MoestroCudaResult result);

}  // namespace moestro::device

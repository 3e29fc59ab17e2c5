#pragma once
// Where experts lie on a CUDA device, and how its calls are answered for.

#include <cstdint>
#include <string>

#include "common/status.h"
#include "kernels/cuda/plugin_abi.h"

namespace moestro::device {

struct CudaSlots {
  const MoestroCudaFunctions* functions = nullptr;  ///< live for ever
  uint32_t index = 0;                               ///< of the device
  /// Kernels that read slots are queued here; outlives the experts. Only launched() uses it, from the engine's thread.
  MoestroCudaStream compute = nullptr;
  uint64_t bytes = 0;  ///< of device memory for slots, in one piece; whole experts of it are used
  /// Carried at a time. Between two copies a device rests for a microsecond or two: of 4 MiB, at 25 to 55 GB/s, that is
  /// 1 to 3 %. A demand waits for two of them, 0.15 to 0.3 ms, at most.
  uint64_t chunk_bytes = uint64_t{4} << 20;

  /// What one expert takes.
  static constexpr uint64_t slot_bytes(uint64_t expert_bytes) {
    return (expert_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  static constexpr uint64_t kAlignment = 256;
};

/// What a device says of a call: "the device cuda:0: copy_in: an illegal memory access was encountered".
std::string words_of(const CudaSlots& device, const char* call, MoestroCudaResult result);
/// OK for 0. Otherwise the device that has worked until now is gone: kUnavailable.
Status fell_off(const CudaSlots& device, const char* call, MoestroCudaResult result);

}  // namespace moestro::device

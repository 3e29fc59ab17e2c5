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

  /// A chunk of an expert of this size: equal parts of about an eighth, of 8 to 16 MiB. Besides its bytes, each chunk
  /// costs an H100 about 5 us: 7 % of 4 MiB at 55 GB/s, 2 % of 16 MiB (docs/perf/gpu.md). A demand waits for at most
  /// two chunks: a quarter of the time that its own expert takes or, if experts are small, as long as for two of them.
  static constexpr uint64_t chunk_of(uint64_t expert_bytes) {
    constexpr uint64_t kMiB = uint64_t{1} << 20, kStep = uint64_t{64} << 10;
    const uint64_t parts = std::max<uint64_t>(1, expert_bytes / std::clamp(expert_bytes / 8, 8 * kMiB, 16 * kMiB));
    return std::max(kStep, (expert_bytes / parts + kStep - 1) / kStep * kStep);
  }
  uint64_t chunk(uint64_t expert_bytes) const { return chunk_bytes > 0 ? chunk_bytes : chunk_of(expert_bytes); }
  /// What is copied at once of dense weights that take turns: a demanded expert waits for two of these at most.
  uint64_t dense_chunk() const { return chunk_bytes > 0 ? chunk_bytes : uint64_t{16} << 20; }
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

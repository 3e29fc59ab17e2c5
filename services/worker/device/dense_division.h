#pragma once
// What dense weights take of a device's memory, and which of them take turns there (dense=counted).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/device_spec.h"
#include "common/dtype.h"
#include "common/status.h"
#include "common/tier/dense_window.h"
#include "services/worker/device/device_dense.h"
#include "store/pack/manifest.h"

namespace moestro::device {

struct DenseDivision {
  uint64_t bytes = 0;  ///< of the device's memory: what stays, and the places
  uint32_t layers = 0, streamed_layers = 0;
  uint64_t streamed_bytes = 0;  ///< that each step copies
  std::optional<DenseTurns> turns = std::nullopt;  ///< none: all layers stay

  /// For the log: which layers stay, and what a step copies.
  std::string describe() const;
  /// The same, and how fast steps can be over that link at most.
  std::string describe(const config::EmulatedDevice& device) const;
};

/// Of a pack's layers (store::dense_layers) those take turns that the window streams.
DenseDivision division_of(const store::Manifest& manifest, const tier::DenseWindow& window);

/// Divides, of an emulated device, what the KV cache has left of `device.vram_bytes` (common/tier/dense_window.h).
/// `top_k`: a token's experts. `in_turn`: layers may take turns; else all dense weights stay. kInvalidArgument: it is
/// too little; names the least.
Result<DenseDivision> divide_dense(const store::Manifest& manifest, DType precision, int64_t top_k,
                                   const config::EmulatedDevice& device, uint64_t kv_bytes, bool in_turn = true);

}  // namespace moestro::device

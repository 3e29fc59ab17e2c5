#pragma once
// Number formats of weights.

#include <cstdint>
#include <string_view>

#include "common/status.h"

namespace moestro {

/// Values are on disk (pack manifest) and on the wire: never renumber.
enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kInt8 = 3,  ///< symmetric, groups of kQuantGroup along the input dimension, one bf16 scale a group
};

inline constexpr int64_t kQuantGroup = 64;

std::string_view dtype_name(DType dtype);                 ///< "f32", "bf16", "f16", "int8"
Result<DType> parse_dtype(std::string_view name);         ///< the same names
constexpr bool is_quantised(DType d) { return d == DType::kInt8; }
/// Bytes of one stored value, scales apart.
constexpr int64_t dtype_bytes(DType d) {
  switch (d) {
    case DType::kF32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kInt8: return 1;
  }
  return 0;
}

}  // namespace moestro

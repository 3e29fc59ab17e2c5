#pragma once
// Number formats of weights.

#include <cstdint>
#include <string_view>

#include "common/bf16_in_12.h"
#include "common/status.h"

namespace moestro {

/// Values are on disk (pack manifest) and on the wire: never renumber.
enum class DType : uint8_t {
  kF32 = 0,
  kBF16 = 1,
  kF16 = 2,
  kInt8 = 3,  ///< symmetric, groups of kQuantGroup along the input dimension, one bf16 scale a group: value = q * scale
  kInt4 = 4,  ///< q in 0..15, the same groups, bf16 scale and offset: value = q * scale + offset; see
              ///< common/expert_layout.h
  kBF16In12 = 5,  ///< bf16 without loss in 12 bits; see common/bf16_in_12.h
};

inline constexpr int64_t kQuantGroup = 64;

std::string_view dtype_name(DType dtype);                 ///< "f32", "bf16", "f16", "int8", "int4", "bf16-12bit"
Result<DType> parse_dtype(std::string_view name);         ///< the same names
constexpr bool is_quantised(DType d) { return d == DType::kInt8 || d == DType::kInt4; }
/// Whether a matrix has parameters (scales, exponents) in addition to its values.
constexpr bool has_parameters(DType d) { return is_quantised(d) || d == DType::kBF16In12; }
/// bf16 numbers stored with each group: scale; scale and offset.
constexpr int64_t group_parameters(DType d) { return d == DType::kInt8 ? 1 : d == DType::kInt4 ? 2 : 0; }
/// The format that products compute with: kBF16In12 is widened to bf16 when it is loaded.
constexpr DType computed_as(DType d) { return d == DType::kBF16In12 ? DType::kBF16 : d; }
/// Bytes of one stored value without parameters. 0 for int4 and kBF16In12, whose values share bytes: see row_bytes.
constexpr int64_t dtype_bytes(DType d) {
  switch (d) {
    case DType::kF32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kInt8: return 1;
    case DType::kInt4:
    case DType::kBF16In12: break;
  }
  return 0;
}
constexpr int64_t quant_groups(int64_t cols) { return (cols + kQuantGroup - 1) / kQuantGroup; }
/// Bytes of the values of a row of `cols`. int4 and kBF16In12 are rounded up to whole groups or blocks of 64.
constexpr int64_t row_bytes(DType d, int64_t cols) {
  if (d == DType::kBF16In12) return bf16_in_12::blocks_of(cols) * bf16_in_12::kBlockBytes;
  return d == DType::kInt4 ? quant_groups(cols) * (kQuantGroup / 2) : cols * dtype_bytes(d);
}
/// Bytes of the parameters of the groups of a row of `cols`.
constexpr int64_t parameter_bytes(DType d, int64_t cols) { return quant_groups(cols) * group_parameters(d) * 2; }
/// Bytes of a matrix's parameters: those of the groups of all rows, or the exponents of kBF16In12.
constexpr int64_t matrix_parameter_bytes(DType d, int64_t rows, int64_t cols) {
  return d == DType::kBF16In12 ? bf16_in_12::exponents_bytes(rows, cols) : rows * parameter_bytes(d, cols);
}

}  // namespace moestro

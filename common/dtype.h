#pragma once
// Number formats of weights.

#include <cstddef>
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
  // Blocks with their scales, most of them as GGUF files have them; see common/formats/blocks.h.
  kQ4_0 = 6,
  kQ5_0 = 7,
  kQ8_0 = 8,
  kQ2K = 9,
  kQ3K = 10,
  kQ4K = 11,
  kQ5K = 12,
  kQ6K = 13,
  kIQ4NL = 14,
  kMXFP4 = 15,
  /// Of blobs: each matrix has its own format (experts: Manifest::expert_formats). No tensor is kMixed.
  kMixed = 16,
  // More blocks.
  kQ4_1 = 17,
  kQ5_1 = 18,
  kIQ4XS = 19,
  kFP8 = 20,       ///< e4m3, a scale for 128 columns
  kFP8G32 = 21,    ///< for 32: of matrices whose width is no multiple of 128
  kInt4G128 = 22,  ///< 4 bits with zero points, a scale for 128 columns
  kInt4G64 = 23,
  kInt4G32 = 24,
  kNVFP4 = 25,
  kInt2 = 26,  ///< q in 0..3, a bf16 scale and offset for 64 columns; packing makes it, see store/pack/fit_int2.h
};

inline constexpr size_t kDTypes = static_cast<size_t>(DType::kInt2) + 1;
constexpr bool is_known(DType d) { return static_cast<size_t>(d) < kDTypes; }

/// Values that are stored together: adjacent columns of a row, and the bytes that they take.
struct BlockShape {
  int64_t columns = 1, bytes = 0;
};
/// Of a format that stores a row as blocks; of any other, one value.
constexpr BlockShape block_shape(DType d) {
  switch (d) {
    case DType::kF32: return {1, 4};
    case DType::kBF16:
    case DType::kF16: return {1, 2};
    case DType::kInt8: return {1, 1};
    case DType::kQ4_0:
    case DType::kIQ4NL: return {32, 18};
    case DType::kInt2: return {64, 20};
    case DType::kQ4_1:
    case DType::kInt4G32: return {32, 20};
    case DType::kQ5_0: return {32, 22};
    case DType::kQ5_1: return {32, 24};
    case DType::kQ8_0: return {32, 34};
    case DType::kMXFP4: return {32, 17};
    case DType::kFP8G32: return {32, 36};
    case DType::kInt4G64: return {64, 36};
    case DType::kInt4G128: return {128, 68};
    case DType::kNVFP4: return {128, 76};
    case DType::kFP8: return {128, 132};
    case DType::kQ2K: return {256, 84};
    case DType::kQ3K: return {256, 110};
    case DType::kIQ4XS: return {256, 136};
    case DType::kQ4K: return {256, 144};
    case DType::kQ5K: return {256, 176};
    case DType::kQ6K: return {256, 210};
    case DType::kInt4:
    case DType::kBF16In12:
    case DType::kMixed: break;
  }
  return {1, 0};
}
/// Whether a row is whole blocks that contain their own scales.
constexpr bool is_blocks(DType d) { return d >= DType::kQ4_0 && is_known(d) && d != DType::kMixed; }
/// Whether packing makes it of other numbers, and no checkpoint has it.
constexpr bool is_made_of_others(DType d) { return d == DType::kInt2; }

/// The formats of blocks are numbered for tables of functions: block_format(block_index(d)) == d.
inline constexpr size_t kBlockFormats = kDTypes - static_cast<size_t>(DType::kQ4_0) - 1;
constexpr size_t block_index(DType d) {
  return static_cast<size_t>(d) - static_cast<size_t>(DType::kQ4_0) - (d > DType::kMixed ? 1 : 0);
}
constexpr DType block_format(size_t index) {
  const auto d = static_cast<DType>(static_cast<size_t>(DType::kQ4_0) + index);
  return d < DType::kMixed ? d : static_cast<DType>(static_cast<size_t>(d) + 1);
}

inline constexpr int64_t kQuantGroup = 64;

std::string_view dtype_name(DType dtype);                 ///< "f32", "bf16-12bit", "q4_k", "mixed", ...
Result<DType> parse_dtype(std::string_view name);         ///< the same names
constexpr bool is_quantised(DType d) { return d == DType::kInt8 || d == DType::kInt4; }
/// Whether a matrix has parameters (scales, exponents) in addition to its values.
constexpr bool has_parameters(DType d) { return is_quantised(d) || d == DType::kBF16In12; }
/// bf16 numbers stored with each group: scale; scale and offset.
constexpr int64_t group_parameters(DType d) { return d == DType::kInt8 ? 1 : d == DType::kInt4 ? 2 : 0; }
/// The format that products compute with: kBF16In12 is widened to bf16 when it is loaded, and blocks to f32.
constexpr DType computed_as(DType d) {
  return d == DType::kBF16In12 ? DType::kBF16 : is_blocks(d) ? DType::kF32 : d;
}
/// Bytes of one stored value without parameters. 0 where values share bytes (int4, kBF16In12, blocks): see row_bytes.
constexpr int64_t dtype_bytes(DType d) { return is_blocks(d) ? 0 : block_shape(d).bytes; }
constexpr int64_t quant_groups(int64_t cols) { return (cols + kQuantGroup - 1) / kQuantGroup; }
/// Bytes of the values of a row of `cols`. int4 and kBF16In12 are rounded up to whole groups or blocks of 64. Rows of
/// blocks have whole ones only.
constexpr int64_t row_bytes(DType d, int64_t cols) {
  if (d == DType::kBF16In12) return bf16_in_12::blocks_of(cols) * bf16_in_12::kBlockBytes;
  if (d == DType::kInt4) return quant_groups(cols) * (kQuantGroup / 2);
  const BlockShape block = block_shape(d);
  return (cols + block.columns - 1) / block.columns * block.bytes;
}
/// Bytes of the parameters of the groups of a row of `cols`.
constexpr int64_t parameter_bytes(DType d, int64_t cols) { return quant_groups(cols) * group_parameters(d) * 2; }
/// Bytes of a matrix's parameters: those of the groups of all rows, or the exponents of kBF16In12.
constexpr int64_t matrix_parameter_bytes(DType d, int64_t rows, int64_t cols) {
  return d == DType::kBF16In12 ? bf16_in_12::exponents_bytes(rows, cols) : rows * parameter_bytes(d, cols);
}

}  // namespace moestro

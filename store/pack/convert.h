#pragma once
// Number formats of a checkpoint to those of a pack. Rounds to nearest, ties to even.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"

namespace moestro::store {

/// `n` values from `source` to `target`, neither quantised. False if a finite value is beyond the range of `target` (f16 only).
[[nodiscard]] bool convert_values(DType from, const std::byte* source, DType to, std::byte* target, int64_t n);

/// One row to int8: groups of kQuantGroup values, each with a bf16 scale. A value is divided by the scale as stored, and the scale
/// is rounded up where rounding to nearest would push the largest value beyond 127. `work` holds n floats.
/// False if a value is not finite.
[[nodiscard]] bool quantise_row(DType from, const std::byte* source, int64_t n, int8_t* values, uint16_t* scales, float* work);

}  // namespace moestro::store

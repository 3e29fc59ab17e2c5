#pragma once
// Quantises rows of f32 in groups of kQuantGroup values with bf16 parameters. Rounds to nearest, ties to even.

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace moestro::store {

/// Quantises `n` values to int8 or int4 in the row layout of common/expert_layout.h. Writes all row_bytes(to, n) of
/// values and the parameters of quant_groups(n) groups. False if a value or a group's range is not finite, or if its
/// parameters, rounded to bf16, could represent numbers that are not.
///
/// int8: the scale is the smallest bf16 with which the largest value of the group fits. int4: scale and offset minimise
/// the squared error. From several starts, each a part of the group's range, it alternately rounds and solves for both
/// by least squares. Results are compared with the stored bf16 parameters.
[[nodiscard]] bool quantise_row(const float* row, int64_t n, DType to, std::byte* values, uint16_t* parameters);

}  // namespace moestro::store

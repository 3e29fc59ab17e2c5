#pragma once
// Rows of f32 to the quantised precisions of experts: groups of kQuantGroup values with bf16 parameters. Rounds to
// nearest, ties to even.

#include <cstddef>
#include <cstdint>

#include "common/dtype.h"

namespace moestro::store {

/// `n` values to int8 or int4 as common/expert_layout.h lays a row out: row_bytes(to, n) of values, all of them
/// written, and the parameters of quant_groups(n) groups. False if a value is not finite, or a group's range is not, or
/// its parameters, rounded to bf16, could say numbers that are not.
///
/// int8: the scale is the least bf16 with which the largest value of the group fits.
/// int4: scale and offset are fitted to the least squared error: from several starts, each a part of the group's range,
/// alternately rounding and solving for both by least squares; judged with the bf16 numbers that are stored.
[[nodiscard]] bool quantise_row(const float* row, int64_t n, DType to, std::byte* values, uint16_t* parameters);

}  // namespace moestro::store

#pragma once
// Converts number formats of a checkpoint to those of a pack. Rounds to nearest, ties to even; blocks of another format
// are made as common/formats/encode.h says.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"

namespace moestro::store {

/// Converts `n` values from `source` to `target`, whole blocks of both. Formats with parameters are neither. False if a
/// finite value is beyond the range of `target`.
[[nodiscard]] bool convert_values(DType from, const std::byte* source, DType to, std::byte* target, int64_t n);

}  // namespace moestro::store

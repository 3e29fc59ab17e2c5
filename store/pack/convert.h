#pragma once
// Converts number formats of a checkpoint to those of a pack. Rounds to nearest, ties to even.

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"

namespace moestro::store {

/// Converts `n` values from `source` to `target`. Formats with parameters are neither. Whole blocks are copied or
/// become other numbers; nothing else becomes blocks. False if a finite value is beyond the range of `target`.
[[nodiscard]] bool convert_values(DType from, const std::byte* source, DType to, std::byte* target, int64_t n);

}  // namespace moestro::store

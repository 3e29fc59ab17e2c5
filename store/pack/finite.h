#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "common/dtype.h"

namespace moestro::store {

/// Index of the first value that is infinite or not a number, if any. `bytes` holds whole values of a format that is not quantised.
std::optional<size_t> find_not_finite(DType dtype, std::span<const std::byte> bytes);

}  // namespace moestro::store

#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "common/dtype.h"

namespace moestro::store {

/// Index of the first value that is infinite or not a number, if any. `bytes` holds whole values of a format that is
/// not quantised.
std::optional<size_t> find_not_finite(DType dtype, std::span<const std::byte> bytes);

/// Index of the first group of a quantised precision whose numbers are not all finite, whatever is stored in it: its
/// scale or offset is not, or the largest number that they can say is not.
std::optional<size_t> find_group_not_finite(DType dtype, std::span<const std::byte> parameters);

/// Index of the first exponent, as bf16 has it, that no finite number has.
std::optional<size_t> find_exponent_not_finite(std::span<const std::byte> exponents);

}  // namespace moestro::store

#pragma once
#include <cstddef>
#include <optional>
#include <span>

#include "common/dtype.h"

namespace moestro::store {

/// Index of the first value that is infinite or not a number, if any. `bytes` holds whole values of a format that is
/// not quantised.
std::optional<size_t> find_not_finite(DType dtype, std::span<const std::byte> bytes);

/// Index of the first group of a quantised precision that can contain numbers that are not finite: its scale or offset
/// is not finite, or the largest number that they can represent is not.
std::optional<size_t> find_group_not_finite(DType dtype, std::span<const std::byte> parameters);

/// Index of the first bf16 exponent that belongs to no finite number.
std::optional<size_t> find_exponent_not_finite(std::span<const std::byte> exponents);

}  // namespace moestro::store

#pragma once
// Blocks of int2 (common/formats/blocks.h) of f32 numbers.

#include <cstddef>
#include <cstdint>

namespace moestro::store {

/// Writes `n` numbers, whole blocks of 64. Scale and offset of a block are fitted to the least squared error:
/// from several starts, rounding to the nearest value and solving for both by least squares take turns, and the fit
/// whose stored bf16 numbers miss least is kept. False if a number is not finite, or
/// if the stored ones could say one that is not.
[[nodiscard]] bool make_int2(const float* numbers, int64_t n, std::byte* blocks);

}  // namespace moestro::store

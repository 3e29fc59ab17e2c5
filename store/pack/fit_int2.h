#pragma once
// Blocks of int2 (common/formats/blocks.h) of f32 numbers.

#include <cstddef>
#include <cstdint>

namespace moestro::store {

/// Writes `n` numbers, whole blocks of 64. Scale and offset of a block are fitted as those of int4 are (quantise.h).
/// False if a number is not finite, or if the stored ones could say one that is not.
[[nodiscard]] bool make_int2(const float* numbers, int64_t n, std::byte* blocks);

}  // namespace moestro::store

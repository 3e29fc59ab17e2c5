#pragma once
// The loops over all entries. Compiled with -O3; plain arrays in, plain arrays out.

#include <cstddef>
#include <cstdint>

namespace moestro::activation {

/// sums[i] += the cells i of all columns. `entries`: a multiple of 64; columns: at most 257.
void add_columns(const uint8_t* const* columns, size_t count, size_t entries, uint32_t* sums);
/// sums[i] += weight * column[i].
void add_weighted_column(const uint8_t* column, uint32_t weight, size_t entries, uint32_t* sums);
/// scores[i] = (base[i] * base_weight + sums[i] * sum_weight) * inverse_norms[i] for 64 entries, none of them negative; the largest.
float score_block(const float* base, float base_weight, const uint32_t* sums, float sum_weight, const float* inverse_norms, float* scores);
/// base[i] += weight * sums[i].
void add_scaled(const uint32_t* sums, float weight, size_t entries, float* base);

}  // namespace moestro::activation

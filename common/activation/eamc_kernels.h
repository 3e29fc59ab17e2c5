#pragma once
// The loops over all entries, and every read of cells and norms that another process may be writing at the same time
// (history_layout.h). The result for an entry that changed can be any number, and the caller discards it. Compiled with
// -O3 and without the thread sanitizer. Inputs and outputs are plain arrays, and nothing that is read becomes an index
// or an address.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moestro::activation {

/// sums[i] += the cells i of all columns. `entries`: a multiple of 64; columns: at most 257.
void add_columns(const uint8_t* const* columns, size_t count, size_t entries, uint32_t* sums);
/// sums[i] += weight * column[i].
void add_weighted_column(const uint8_t* column, uint32_t weight, size_t entries, uint32_t* sums);
/// scores[i] = (base[i] * base_weight + sums[i] * sum_weight) * inverse_norms[i] for 64 entries; scores are not
/// negative. Returns the largest.
float score_block(const float* base, float base_weight, const uint32_t* sums, float sum_weight,
                  const float* inverse_norms, float* scores);
/// base[i] += weight * sums[i].
void add_scaled(const uint32_t* sums, float weight, size_t entries, float* base);

/// The sum of weights[i] * cells[i], from the first on.
float weighted_sum(const float* weights, const uint8_t* cells, size_t count);
void copy_cells(const uint8_t* cells, size_t count, uint8_t* out);
/// Whether `word` still has this value. It is loaded after everything that this thread has read.
bool still_is(const std::atomic<uint64_t>& word, uint64_t value);

}  // namespace moestro::activation

#pragma once
// How a dense tensor lies in its blob: row-major values. A quantised matrix is rows of row_bytes(), and from the next kPartAlign bytes on the
// parameters of its groups, row by row, as a part of a tile in common/expert_layout.h.

#include "common/expert_layout.h"

namespace moestro {

/// From the tensor's start to the parameters; quantised precisions only.
constexpr int64_t dense_parameters_offset(DType d, int64_t rows, int64_t cols) { return round_up(rows * row_bytes(d, cols), kPartAlign); }

constexpr int64_t dense_bytes(DType d, int64_t rows, int64_t cols) {
  return is_quantised(d) ? dense_parameters_offset(d, rows, cols) + rows * parameter_bytes(d, cols) : rows * cols * dtype_bytes(d);
}

}  // namespace moestro

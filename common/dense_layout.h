#pragma once
// The layout of a dense tensor in its blob: row-major values. A matrix with parameters has rows of row_bytes(). Its
// parameters follow at the next multiple of kPartAlign, in the same form as in a tile of common/expert_layout.h.

#include "common/expert_layout.h"

namespace moestro {

/// Offset of the parameters, if there are any, from the tensor's start.
constexpr int64_t dense_parameters_offset(DType d, int64_t rows, int64_t cols) {
  return round_up(rows * row_bytes(d, cols), kPartAlign);
}

constexpr int64_t dense_bytes(DType d, int64_t rows, int64_t cols) {
  return has_parameters(d) ? dense_parameters_offset(d, rows, cols) + matrix_parameter_bytes(d, rows, cols)
                           : rows * row_bytes(d, cols);
}

}  // namespace moestro

#pragma once
// How a dense tensor lies in its blob: row-major values. A matrix with parameters is rows of row_bytes(), and from the
// next kPartAlign bytes on its parameters, as a part of a tile in common/expert_layout.h.

#include "common/expert_layout.h"

namespace moestro {

/// From the tensor's start to the parameters, where there are any.
constexpr int64_t dense_parameters_offset(DType d, int64_t rows, int64_t cols) {
  return round_up(rows * row_bytes(d, cols), kPartAlign);
}

constexpr int64_t dense_bytes(DType d, int64_t rows, int64_t cols) {
  return has_parameters(d) ? dense_parameters_offset(d, rows, cols) + matrix_parameter_bytes(d, rows, cols)
                           : rows * cols * dtype_bytes(d);
}

}  // namespace moestro

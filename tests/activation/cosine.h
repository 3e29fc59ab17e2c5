#pragma once

#include <cmath>

#include "common/activation/activation_matrix.h"

namespace moestro::activation {

/// Of the rows [0, layers) of both, taken as one vector; 0 if either is zero.
inline double cosine(const ActivationMatrix& a, const ActivationMatrix& b, int64_t layers) {
  double dot = 0, norm_a = 0, norm_b = 0;
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const auto row_a = a.row(MoeLayerId(layer)), row_b = b.row(MoeLayerId(layer));
    for (size_t e = 0; e < row_a.size(); ++e) {
      const double x = row_a[e], y = row_b[e];
      dot += x * y, norm_a += x * x, norm_b += y * y;
    }
  }
  return norm_a > 0 && norm_b > 0 ? dot / std::sqrt(norm_a * norm_b) : 0;
}

}  // namespace moestro::activation

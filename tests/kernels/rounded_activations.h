#pragma once
// Activations rounded one by one as the fast products round them, in f32.

#include "tests/kernels/op_test_data.h"

namespace moestro::kernels::test {

/// What the weights of a precision are multiplied with instead of x: bf16 (kBF16), else bytes with a scale for each 64
/// columns.
inline std::vector<float> rounded(DType weights, const std::vector<float>& x, int64_t cols) {
  std::vector<float> out(x);
  for (size_t row = 0; row < x.size(); row += static_cast<size_t>(cols)) {
    for (int64_t g = 0; g < cols; g += kQuantGroup) {
      const auto first = row + static_cast<size_t>(g),
                 end = first + static_cast<size_t>(std::min(kQuantGroup, cols - g));
      float largest = 0.0f;
      for (size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
      for (size_t i = first; i < end; ++i) {
        if (weights == DType::kBF16)
          out[i] = bf16_to_f32(f32_to_bf16(x[i]));
        else
          out[i] = largest > 0.0f ? std::nearbyint(x[i] * (127.0f / largest)) * (largest / 127.0f) : 0.0f;
      }
    }
  }
  return out;
}

}  // namespace moestro::kernels::test

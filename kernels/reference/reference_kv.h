#pragma once
// One vector in the KV cache, read and written number by number.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/check.h"
#include "common/float16.h"
#include "kernels/reference/reference_ops.h"

namespace moestro::kernels::reference {

/// scores = exp(scores - their largest); returns their sum.
inline double to_weights(std::vector<double>& scores) {
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0.0;
  for (double& s : scores) sum += s = std::exp(s - top);
  return sum;
}

class KvRow {
 public:
  /// `scale`: int8 only.
  KvRow(void* values, float* scale, int64_t dim, DType dtype)
      : dim_(dim), dtype_(dtype), values_(values), scale_(scale) {}

  double at(int64_t d) const {
    return dtype_ == DType::kInt8 ? static_cast<double>(static_cast<const int8_t*>(values_)[d]) * *scale_
                                  : value_at(values_, dtype_, d);
  }
  void store(const float* x) {
    switch (dtype_) {
      case DType::kF32:
        std::copy_n(x, dim_, static_cast<float*>(values_));
        return;
      case DType::kBF16:
        std::transform(x, x + dim_, static_cast<uint16_t*>(values_), f32_to_bf16);
        return;
      case DType::kF16:
        std::transform(x, x + dim_, static_cast<uint16_t*>(values_), f32_to_f16);
        return;
      case DType::kInt8:
        return store_int8(x);
      default:
        break;
    }
    MOESTRO_CHECK(false, "a KV cache is f32, bf16, f16 or int8");
  }

 private:
  void store_int8(const float* x) {
    auto* q = static_cast<int8_t*>(values_);
    float most = 0.0f;
    bool finite = true;
    for (int64_t d = 0; d < dim_; ++d) {
      most = std::max(most, std::fabs(x[d]));
      finite = finite && std::isfinite(x[d]);
    }
    const bool zeros = !finite || most < kKvLeastMagnitude;
    *scale_ = !finite ? std::nanf("") : zeros ? 0.0f : most / 127.0f;
    for (int64_t d = 0; d < dim_; ++d)
      q[d] = zeros ? 0 : static_cast<int8_t>(std::nearbyint(x[d] * (127.0f / most)));
  }

  int64_t dim_;
  DType dtype_;
  void* values_;
  float* scale_;
};

}  // namespace moestro::kernels::reference

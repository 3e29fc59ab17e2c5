#include "kernels/limits/device_limits.h"

#include <algorithm>
#include <cmath>

namespace moestro::kernels::limits {
namespace {

constexpr int64_t kRowsMax = 4096, kRowsStep = 64;
constexpr double kSecondsLeast = 5e-3;  ///< short work is queued again and again until it takes this long together

/// For a product's x [rows, rows], weights [2 rows, rows] and y [rows, 2 rows] of f32, and x once more as bf16.
int64_t rows_within(uint64_t bytes) {
  const auto most = static_cast<int64_t>(std::sqrt(static_cast<double>(bytes) / (5.5 * sizeof(float))));
  return std::min(kRowsMax, most / kRowsStep * kRowsStep);
}

}  // namespace

DeviceLimits::DeviceLimits(const MoestroCudaFunctions& functions, uint64_t bytes)
    : bytes_(bytes),
      rows_(rows_within(bytes)),
      clock_(functions),
      memory_(static_cast<std::byte*>(clock_.allocate(bytes))) {
  // 0x3c3c is a small number, as bf16 and as half of an f32.
  if (memory_ != nullptr) clock_.note("fill", functions.fill(memory_, 0x3c, bytes_, clock_.stream()));
}

Result<std::unique_ptr<DeviceLimits>> DeviceLimits::create(const MoestroCudaFunctions& functions, uint64_t bytes) {
  std::unique_ptr<DeviceLimits> limits(new DeviceLimits(functions, std::max(bytes, kBytesMin) / 512 * 512));
  MOESTRO_RETURN_IF_ERROR(limits->status().with_context("what the device can do at most"));
  return limits;
}

Measured DeviceLimits::measured(double amount, const std::function<void()>& work) {
  const int times = clock_.times_for(work, kSecondsLeast);
  const double took = clock_.seconds(work, times) * times;
  if (!status().is_ok()) return {};
  return {amount * times, took};
}

Measured DeviceLimits::copy() {
  const uint64_t half = bytes_ / 2;
  return measured(2 * static_cast<double>(half), [&] {
    clock_.note("copy_within", clock_.functions().copy_within(memory_, memory_ + half, half, clock_.stream()));
  });
}

Measured DeviceLimits::fill() {
  return measured(static_cast<double>(bytes_),
                  [&] { clock_.note("fill", clock_.functions().fill(memory_, 0x3c, bytes_, clock_.stream())); });
}

Measured DeviceLimits::product(DType weights) {
  const bool rounded = weights == DType::kBF16;
  const int64_t square = rows_ * rows_;
  auto* x = reinterpret_cast<float*>(memory_);
  float *weight = x + square, *y = weight + 2 * square;
  const MoestroCudaMatmul call{.x = x,
                               .n = rows_,
                               .rows = 2 * rows_,
                               .cols = rows_,
                               .weight = weight,
                               .parameters = nullptr,
                               .dtype = rounded ? MOESTRO_CUDA_BF16 : MOESTRO_CUDA_F32,
                               .bias = nullptr,
                               .y = y,
                               .rounded = rounded ? 1 : 0,
                               .rounded_x = reinterpret_cast<uint16_t*>(y + 2 * square),
                               .partial = nullptr,
                               .partial_bytes = 0};
  return measured(4.0 * static_cast<double>(square) * static_cast<double>(rows_),
                  [&] { clock_.note("matmul", clock_.functions().ops.matmul(&call, clock_.stream())); });
}

}  // namespace moestro::kernels::limits

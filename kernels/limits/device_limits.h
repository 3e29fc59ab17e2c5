#pragma once
// Measures the limits of a CUDA device, in turns with the work that is compared with them.

#include <cstdint>
#include <memory>

#include "common/dtype.h"
#include "kernels/limits/device_clock.h"
#include "kernels/limits/measured.h"

namespace moestro::kernels::limits {

class DeviceLimits {
 public:
  /// Takes `bytes` of device memory, at least kBytesMin, until it is destroyed. They should be many times the size of
  /// the device's caches. kUnavailable: there is not enough memory. `functions`: for the device that this thread has
  /// selected.
  static Result<std::unique_ptr<DeviceLimits>> create(const MoestroCudaFunctions& functions, uint64_t bytes);
  static constexpr uint64_t kBytesMin = 256 << 10;

  uint64_t bytes() const { return bytes_; }
  /// The first call that failed. Measurements after it have no rate.
  const Status& status() const { return clock_.status(); }

  /// One half of the memory onto the other: bytes read and written.
  Measured copy();
  Measured fill();
  /// Multiply-adds of the plugin's product of rows() rows with a matrix of 2 rows() x rows(): kF32 as deterministic
  /// workers compute, kBF16 on tensor cores.
  Measured product(DType weights);
  int64_t rows() const { return rows_; }

 private:
  DeviceLimits(const MoestroCudaFunctions& functions, uint64_t bytes);
  Measured measured(double amount, const std::function<void()>& work);

  const uint64_t bytes_;
  const int64_t rows_;
  DeviceClock clock_;
  std::byte* memory_;
};

}  // namespace moestro::kernels::limits

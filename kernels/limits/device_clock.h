#pragma once
// Device memory of one measurement, and what work on a stream takes.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/status.h"
#include "kernels/cuda/plugin_abi.h"

namespace moestro::kernels::limits {

/// Memory, a stream and two timed events, all gone with it. The first error stays.
class DeviceClock {
 public:
  /// `stream`: of whom queues the work; null: one of its own.
  explicit DeviceClock(const MoestroCudaFunctions& functions, MoestroCudaStream stream = nullptr);
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  MoestroCudaStream stream() const { return stream_; }
  const MoestroCudaFunctions& functions() const { return functions_; }
  const Status& status() const { return status_; }
  /// Whether all is well, this call included.
  bool note(const char* call, MoestroCudaResult result);

  /// Null after an error, as for all below.
  void* allocate(uint64_t bytes);
  void* pinned(uint64_t bytes);
  /// Filled with random bf16 numbers, none larger than `most`.
  void* random_bf16(uint64_t bytes, float most);
  template <typename T>
  T* of(std::span<const T> values) {
    return static_cast<T*>(copy_of(std::as_bytes(values)));
  }

  /// Seconds from begin to end of what `work` queues on the stream, `times` over, divided by that.
  double seconds(const std::function<void()>& work, int times = 1);
  /// How often short work must be done to take `least` seconds together; at most 200. Warms it up.
  int times_for(const std::function<void()>& work, double least);

 private:
  void* copy_of(std::span<const std::byte> bytes);

  const MoestroCudaFunctions& functions_;
  Status status_;
  MoestroCudaStream stream_ = nullptr;
  bool own_stream_ = false;
  MoestroCudaEvent begin_ = nullptr, end_ = nullptr;
  std::vector<void*> memory_, pinned_;
};

/// Of runs of a measurement.
double median(std::vector<double> values);
double smallest(const std::vector<double>& values);

}  // namespace moestro::kernels::limits

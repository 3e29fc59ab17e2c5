#pragma once
// Device memory for one measurement, and a clock for work on a stream.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/status.h"
#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels::limits {

/// Memory, a stream and two timed events, freed together. The first error is kept.
class DeviceClock {
 public:
  /// `stream`: the stream that the work is queued on; null: a new one.
  explicit DeviceClock(const MoestroCudaFunctions& functions, MoestroCudaStream stream = nullptr);
  ~DeviceClock();
  DeviceClock(const DeviceClock&) = delete;
  DeviceClock& operator=(const DeviceClock&) = delete;

  MoestroCudaStream stream() const { return stream_; }
  const MoestroCudaFunctions& functions() const { return functions_; }
  const Status& status() const { return status_; }
  /// Whether there was no error so far, including this call.
  bool note(const char* call, MoestroCudaResult result);

  /// Null after an error, like everything below.
  void* allocate(uint64_t bytes);
  void* pinned(uint64_t bytes);
  /// Memory filled with random bf16 numbers of at most `most`.
  void* random_bf16(uint64_t bytes, float most);
  template <typename T>
  T* of(std::span<const T> values) {
    return static_cast<T*>(copy_of(std::as_bytes(values)));
  }

  /// Seconds from begin to end of `times` runs of `work` on the stream, divided by `times`.
  double seconds(const std::function<void()>& work, int times = 1);
  /// How often short work must run to take `least` seconds in all; at most 200. Also warms it up.
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

/// The median of the runs of a measurement.
double median(std::vector<double> values);
double smallest(const std::vector<double>& values);

}  // namespace moestro::kernels::limits

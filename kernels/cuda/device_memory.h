#pragma once
// Memory on a device: workspaces that grow, and small host arrays that kernels read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels::cuda {

/// The stream that everything is queued on, and the first error of a call on it. After an error, no result is valid.
struct DeviceQueue {
  explicit DeviceQueue(const MoestroCudaFunctions& f) : functions(f) {}
  ~DeviceQueue() {
    if (stream != nullptr) (void)functions.end_stream(stream);
  }
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  const MoestroCudaFunctions& functions;
  MoestroCudaStream stream = nullptr;
  MoestroCudaResult error = 0;
  const char* failed = nullptr;  ///< the call that gave it
  bool capturing = false;  ///< what is queued goes into a graph: addresses and sizes as they are, nothing is sent,
                           ///< allocated or waited for
  uint64_t moves =
      0;  ///< count of memory that grew; a graph captured before the last one has stale addresses

  /// Whether there was no error so far, including this call. `call` is never freed.
  bool note(const char* call, MoestroCudaResult result) {
    if (error == 0 && result != 0) {
      error = result;
      failed = call;
    }
    return error == 0;
  }
};

/// Copies from host memory to the device without waiting for the device: bytes pass through pinned buffers, used in
/// turn. One ring serves all that is sent on a stream, so how much may be unread is a matter of bytes, not of calls:
/// the small arrays of a step of many micro-batches and experts are far below it.
class StagingRing {
 public:
  explicit StagingRing(DeviceQueue& queue) : queue_(queue) {}
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  /// `host` may be reused on return. Waits only if all buffers are still being read.
  void copy_in(void* device, const void* host, uint64_t bytes);

  /// Bytes that may be unread before it waits, at least.
  static constexpr uint64_t unread_bytes() { return (kBuffers - 1) * kBufferBytes; }

 private:
  static constexpr size_t kBuffers = 4;
  static constexpr uint64_t kBufferBytes = uint64_t{2} << 20;
  struct Buffer {
    std::byte* host = nullptr;
    MoestroCudaEvent read = nullptr;  ///< recorded when the next one's turn came
    uint64_t used = 0;
  };
  /// Room for at least one byte in the buffer whose turn it is.
  bool make_room();

  DeviceQueue& queue_;
  std::array<Buffer, kBuffers> buffers_{};
  size_t turn_ = 0;
};

/// Memory that is at least as large as last requested. Its contents are lost when it grows.
class Workspace {
 public:
  explicit Workspace(DeviceQueue& queue) : queue_(queue) {}
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  /// Null after an error.
  void* at_least(uint64_t bytes);

 private:
  DeviceQueue& queue_;
  void* memory_ = nullptr;
  uint64_t bytes_ = 0;
};

/// A host array on the device, always at the same place until it has to grow. In stream order, work that was queued
/// before reads it before the next array is written. An array that equals the last one is not sent again: the array of
/// a step serves all of its layers, and graphs find it at the same place.
class Mirror {
 public:
  /// Both outlive it.
  Mirror(DeviceQueue& queue, StagingRing& staging) : queue_(queue), staging_(staging) {}
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// The device address of these values, valid for work that is queued before the next call. Null after an error, and
  /// for no values.
  template <typename T>
  const T* of(std::span<const T> values) {
    return static_cast<const T*>(bytes_of(std::as_bytes(values)));
  }

 private:
  const void* bytes_of(std::span<const std::byte> bytes);

  DeviceQueue& queue_;
  StagingRing& staging_;
  Workspace device_{queue_};
  std::vector<std::byte> last_;  ///< what the device has; empty: nothing
};

}  // namespace moestro::kernels::cuda

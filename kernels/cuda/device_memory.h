#pragma once
// Memory on a device: workspaces that grow, and small arrays of the host's that kernels read.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/plugin_abi.h"

namespace moestro::kernels::cuda {

/// The stream that everything is queued on, and the first error that a call on it gave: after one nothing is to be
/// believed.
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
      0;  ///< of memory that grew: a graph captured before the last one has addresses that are not any more

  /// Whether all has gone well so far, this call included. `call` lives for ever.
  bool note(const char* call, MoestroCudaResult result) {
    if (error == 0 && result != 0) {
      error = result;
      failed = call;
    }
    return error == 0;
  }
};

/// From the host's memory to the device without waiting for the device: bytes pass through pinned buffers, taken in
/// turns.
class StagingRing {
 public:
  explicit StagingRing(DeviceQueue& queue) : queue_(queue) {}
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;
  /// `host` may be reused on return. Waits only where all buffers are still being read.
  void copy_in(void* device, const void* host, uint64_t bytes);

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

/// Memory that is at least as large as was last asked for. What was in it is lost when it grows.
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

/// An array of the host's on the device, always at the same place until it has to grow: what was queued before reads it
/// before the next one is written, in the order of the stream. The host writes one of a few pinned copies while others
/// may still be on their way, and waits only if all of them are. An array equal to the last one is not sent again: that
/// of a step serves all of its layers, and graphs find it where it was.
class Mirror {
 public:
  explicit Mirror(DeviceQueue& queue) : queue_(queue) {}
  ~Mirror();
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;

  /// Where the device finds these; valid for what is queued before the next call. Null after an error, and for none.
  template <typename T>
  const T* of(std::span<const T> values) {
    return static_cast<const T*>(bytes_of(std::as_bytes(values)));
  }

 private:
  static constexpr size_t kCopies = 4;
  struct Copy {
    void* host = nullptr;
    MoestroCudaEvent sent = nullptr;
    uint64_t room = 0;
  };
  const void* bytes_of(std::span<const std::byte> bytes);
  bool make_room(Copy& copy, size_t bytes);
  void free(Copy& copy);

  DeviceQueue& queue_;
  Workspace device_{queue_};
  std::array<Copy, kCopies> copies_{};
  size_t last_ = 0;    ///< of copies_: what the device has
  size_t bytes_ = 0;   ///< of it; 0: nothing
};

}  // namespace moestro::kernels::cuda

#pragma once
// When kernels that a CUDA device has been given have ended: an event behind them on the compute stream, for copies
// into memory that they read.

#include <algorithm>
#include <array>
#include <cstdint>

#include "services/worker/device/cuda_slots.h"

namespace moestro::device {

class CudaLaunches {
 public:
  explicit CudaLaunches(const CudaSlots& device) : device_(device) {}
  ~CudaLaunches() {
    for (const MoestroCudaEvent event : events_)
      if (event != nullptr) (void)device_.functions->end_event(event);
  }
  CudaLaunches(const CudaLaunches&) = delete;
  CudaLaunches& operator=(const CudaLaunches&) = delete;
  /// The result of the first call that failed.
  MoestroCudaResult make() {
    for (MoestroCudaEvent& event : events_)
      if (const MoestroCudaResult result = device_.functions->make_event(0, &event); result != 0) return result;
    return 0;
  }

  /// By the thread that owns the compute stream: records the next launch, which count() then adds. A link's thread may
  /// be about to wait for this event's former launch: it then waits for this one, behind it on the same stream.
  Status record() {
    return fell_off(device_, "record_event",
                    device_.functions->record_event(events_[(launches_ + 1) % kEvents], device_.compute));
  }

  // With the link's lock held:

  void count() { ++launches_; }
  /// So far; the first is 1.
  uint64_t launches() const { return launches_; }
  /// What a copy into memory must wait for that kernels read until this launch; null, for 0: nothing. Of a launch long
  /// ago it is the oldest event that there is, which is later.
  MoestroCudaEvent event_of(uint64_t launch) const {
    if (launch == 0) return nullptr;
    const uint64_t oldest = launches_ < kEvents ? 1 : launches_ - kEvents + 1;
    return events_[std::max(launch, oldest) % kEvents];
  }

 private:
  static constexpr uint64_t kEvents = 64;
  const CudaSlots device_;
  std::array<MoestroCudaEvent, kEvents> events_{};  ///< launch n has n % kEvents
  uint64_t launches_ = 0;
};

}  // namespace moestro::device

#pragma once
// Records by the device's clock what a stream computes in a step: events before and after each part, drawn when the
// step has ended. An event behind an idle stream is reached when it is recorded, so what lies between two parts is time
// in which the device waited for the host.

#include <vector>

#include "common/clock.h"
#include "common/lanes/timeline.h"
#include "kernels/cuda/device_memory.h"

namespace moestro::cuda {

class DeviceMarks {
 public:
  /// Both outlive it.
  DeviceMarks(kernels::cuda::DeviceQueue& queue, const Clock& clock) : queue_(queue), clock_(clock) {}
  ~DeviceMarks();
  DeviceMarks(const DeviceMarks&) = delete;
  DeviceMarks& operator=(const DeviceMarks&) = delete;

  /// The timeline may be null: nothing is recorded then. It outlives the last step.
  void set_timeline(lanes::Timeline* timeline) { timeline_ = timeline; }

  /// The stream is idle: from here on, the device's clock is the host's.
  void begin_step();
  /// What is queued from here on is this task's, up to the next begin() or end().
  void begin(lanes::TaskKind kind, int32_t layer, int32_t expert = -1,
             int32_t micro_batch = lanes::kAllMicroBatches);
  void end();
  /// The layer's part of all present experts uses this one, whenever it is queued.
  void uses(int32_t layer, int32_t expert);
  /// When all of it has been computed.
  void draw();

 private:
  struct Part {
    lanes::Task task;
    size_t begin = 0, end = 0;  ///< indices of events_
  };
  struct Use {
    int32_t layer, expert;
    uint32_t copy;
  };
  bool record();
  void close(size_t event);
  Nanos at(size_t event) const;

  kernels::cuda::DeviceQueue& queue_;
  const Clock& clock_;
  lanes::Timeline* timeline_ = nullptr;
  std::vector<MoestroCudaEvent> events_;  ///< made once; the first `recorded_` are of this step
  size_t recorded_ = 0;
  Nanos begin_{0};                        ///< just before the first one was recorded
  std::vector<Part> parts_;
  std::vector<Use> uses_;
  std::vector<Nanos> experts_at_;         ///< by layer: begin of the part of all present experts
  bool open_ = false;                     ///< the last part has not ended
};

}  // namespace moestro::cuda

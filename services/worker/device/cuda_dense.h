#pragma once
// Dense weights that take turns in a CUDA device's memory, on a stream of copies of their own, so that experts do not
// wait behind a layer whose place is still read.
//
// The first chunk of a layer waits, only on the device, for the kernels that read its place. The layer's kernels may be
// queued when its last chunk has been: they wait for it on the device. Each wait is for something that was queued
// before it, so copies and kernels cannot wait for each other.

#include <array>
#include <condition_variable>
#include <functional>

#include "services/worker/device/cuda_copies.h"
#include "services/worker/device/cuda_launches.h"
#include "services/worker/device/dense_link.h"

namespace moestro::device {

class CudaDense final : public DenseLink {
 public:
  /// All outlive it. `ended`: a chunk has been queued or has arrived; called with the link's lock.
  CudaDense(const CudaSlots& device, const ArenaRegistration& arena, const CudaLaunches& launches, const Clock& clock,
            std::function<void()> ended)
      : device_(device), launches_(launches), clock_(clock), on_end_(std::move(ended)), flights_(device, arena) {}
  /// `layer_bytes`: of the longest. kExhausted as CudaCopies::make().
  Status make(uint64_t layer_bytes);
  uint64_t staged_bytes() const { return flights_.staged_bytes(); }

  Result<bool> kernels_may_follow(uint64_t number) override;
  uint64_t launches() const override { return launches_.launches(); }
  void abandon(std::unique_lock<std::mutex>& lock) override;

  // For the link's thread, with its lock:

  bool has_room() const { return flights_.has_room(); }
  size_t under_way() const { return flights_.under_way(); }
  /// Whether what comes next here waits for kernels, so that the link carries nothing of it now.
  bool waits_for_kernels();
  /// The next chunk; there is one, and room.
  Status send(std::unique_lock<std::mutex>& lock);
  /// Whether the oldest chunk has arrived with this.
  Result<bool> look(std::unique_lock<std::mutex>& lock);
  /// Nothing is under way any more, and nothing will be.
  void finish(std::unique_lock<std::mutex>& lock);

 private:
  struct Part {
    uint64_t number = 0, bytes = 0;
    int32_t layer = -1;
    bool last = false;
    MoestroCudaEvent readers = nullptr;  ///< null: they have ended, or there are none
  };
  Part& part(uint64_t copy) { return parts_[copy % CudaCopies::kFlights]; }
  bool is_reached(MoestroCudaEvent readers) const;

  const CudaSlots device_;
  const CudaLaunches& launches_;
  const Clock& clock_;
  const std::function<void()> on_end_;
  uint64_t chunk_bytes_ = 0;
  CudaCopies flights_;
  std::array<Part, CudaCopies::kFlights> parts_{};
  Nanos last_arrival_{0};
  bool finished_ = false;
  std::condition_variable landed_;
};

}  // namespace moestro::device

#pragma once
// The KV of running sequences on their way between host memory and a CUDA device, on a stream of copies of each
// direction, beside those of experts. Host memory is pinned (kernels::Memory::host_side).
//
// A task's copies are queued at once, behind those of its lane's earlier tasks, and have ended when an event behind
// them has been reached. They wait for no kernel: the caller begins a task when what it needs has ended. So a demanded
// expert waits behind what was begun before it, which is at most the KV of lanes::kKvPlaces micro-batches
// (docs/decisions/0066).

#include <array>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "services/worker/device/cuda_slots.h"
#include "services/worker/engine/kv_link.h"

namespace moestro::device {

class CudaKv final : public engine::KvLink {
 public:
  /// `failed` is told of the first call that fails. `clock` outlives it.
  CudaKv(const CudaSlots& device, const Clock& clock, std::function<void(const Status&)> failed);
  ~CudaKv() override;
  CudaKv(const CudaKv&) = delete;
  CudaKv& operator=(const CudaKv&) = delete;
  /// kExhausted: the device has no streams to give.
  Status make();

  void begin(lanes::TaskId id, const lanes::Task& task, int32_t moe_layer,
             std::span<const engine::KvMove> moves) override;
  void end_elsewhere(lanes::TaskId id) override;
  void take_ended(std::vector<lanes::TaskId>& ended) override;
  void wait(std::chrono::milliseconds timeout) override;
  void abandon() override;
  void take_carried(std::vector<engine::KvCarried>& out) override;
  Status status() const override { return failure_; }

 private:
  struct Job {
    lanes::TaskId id = -1;
    engine::KvCarried carried;
    MoestroCudaEvent begin = nullptr, end = nullptr;
  };
  /// One direction.
  struct Way {
    MoestroCudaStream stream = nullptr;
    std::deque<Job> jobs;
    Nanos last_end{0};
  };
  Way& way_of(lanes::Lane lane) { return ways_[lane == lanes::Lane::kHostToDevice ? 0 : 1]; }
  bool call(const char* name, MoestroCudaResult result);
  MoestroCudaEvent obtain_event();
  void give_back(const Job& job);
  bool has_ended(const Way& way);
  void end_first(Way& way, std::vector<lanes::TaskId>& ended);

  const CudaSlots device_;
  const Clock& clock_;
  const std::function<void(const Status&)> on_failure_;
  std::array<Way, 2> ways_;  ///< in, out
  std::vector<MoestroCudaEvent> events_;  ///< timed; used by no job
  std::vector<engine::KvCarried> carried_;
  Status failure_;
  std::mutex mutex_;
  std::vector<lanes::TaskId> elsewhere_;  ///< under the lock
};

}  // namespace moestro::device

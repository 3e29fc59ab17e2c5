#pragma once
// The link of a CUDA device: a thread that lets the copy engine carry chunks directly out of the store's arena, on
// streams of its own: one for experts, one for dense weights that take turns (cuda_dense.h). The engine's thread queues
// the KV of running sequences on others (cuda_kv.h).
//
// Two chunks are in flight, so that the copy engine continues without the host; a demand overtakes after them. A chunk
// counts when its event has been reached. An expert's host memory is leased until the event of its last chunk.
//
// Queued kernels may still read a released slot. So the order is: queue the kernels, call launched(), release the
// leases. The first chunk into a slot then waits, only on the device, for the event of the last launch before the slot
// was released. The compute stream never waits for the stream of experts, because an expert is leased only when it is
// complete. So the two streams cannot wait for each other, and an engine that waits for a demand has queued nothing
// after what the copy waits for.

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "services/worker/device/cuda_copies.h"
#include "services/worker/device/cuda_dense.h"
#include "services/worker/device/cuda_kv.h"
#include "services/worker/device/cuda_launches.h"
#include "services/worker/device/expert_link.h"
#include "services/worker/device/slot_memory.h"

namespace moestro::device {

class CudaLink final : public ExpertLink {
 public:
  static constexpr int32_t kUnderWay = CudaCopies::kUnderWay;

  struct Options {
    uint32_t keys = 0, slots = 0;
    bool poison_slots = false;  ///< tests: a slot is filled with NaN when a copy begins
    bool kv = false;            ///< it carries the KV of running sequences too
    uint64_t layer_bytes = 0;   ///< of the longest layer whose dense weights take turns on the device; 0: none do
  };
  /// All outlive it; the tier gives kUnderWay chunks, as long as the device says. kExhausted: the device has no stream,
  /// events or staging memory to give.
  static Result<std::unique_ptr<CudaLink>> create(tier::DeviceTier& tier, const SlotMemory& slots,
                                                  const ArenaRegistration& arena, const CudaSlots& device,
                                                  const Options& options, const Clock& clock);
  /// Waits for copies in flight; slots, places and host memory are not used after that.
  ~CudaLink() override;

  bool is_copying(tier::Key key) const override;
  uint64_t staged_bytes() const override {
    return experts_.staged_bytes() + (dense_ == nullptr ? 0 : dense_->staged_bytes());
  }
  void released(tier::Slot slot) override { launch_of_[slot] = launches_.launches(); }
  DenseLink* dense() override { return dense_.get(); }
  engine::KvLink* kv() override { return kv_.get(); }
  void wake() override;
  /// Called by the thread that owns the compute stream, while it captures nothing. kUnavailable: the device has failed.
  Status launched() override;

 private:
  CudaLink(tier::DeviceTier& tier, const SlotMemory& slots, const ArenaRegistration& arena, const CudaSlots& device,
           const Options& options, const Clock& clock);
  Status make(const ArenaRegistration& arena);
  // For the engine's thread, which carries KV:
  void fail_by_kv(const Status& failure);
  /// Whether experts are on their way that a layer before this one waits for; not if only others are, or none, while
  /// what is waited for is read from the drive.
  bool kv_gives_way(int32_t moe_layer);
  // Its own thread:
  void run();
  bool send_next(std::unique_lock<std::mutex>& lock);
  Status send(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk);
  void look(std::unique_lock<std::mutex>& lock);
  Result<bool> has_arrived(std::unique_lock<std::mutex>& lock);
  void arrived(const tier::Chunk& chunk, Nanos took);
  size_t under_way() const { return experts_.under_way() + (dense_ == nullptr ? 0 : dense_->under_way()); }

  const MoestroCudaFunctions& cuda_;
  const SlotMemory& slots_;
  const CudaSlots device_;
  const Options options_;
  CudaLaunches launches_;
  CudaCopies experts_;
  std::array<tier::Chunk, CudaCopies::kFlights> chunks_{};  ///< copy n has n % kFlights
  std::unique_ptr<CudaDense> dense_;  ///< null: none take turns
  std::unique_ptr<CudaKv> kv_;        ///< null: none moves
  Nanos last_arrival_{0};
  std::vector<uint64_t> launch_of_;  ///< by slot: the last launch before it was released; 0: none
  std::atomic<bool> woken_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace moestro::device

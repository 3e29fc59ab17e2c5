#pragma once
// The link of a CUDA device: a thread that lets the copy engine carry chunks directly out of the store's arena, on its
// own stream.
//
// Two chunks are in flight, so that the copy engine continues without the host; a demand overtakes after them. A chunk
// counts when its event has been reached. An expert's host memory is leased until the event of its last chunk.
//
// Queued kernels may still read a released slot. So the order is: queue the kernels, call launched(), release the
// leases. The first chunk into a slot then waits, only on the device, for the event of the last launch before the slot
// was released. The compute stream never waits for the copy stream, because an expert is leased only when it is
// complete. So the two streams cannot wait for each other, and an engine that waits for a demand has queued nothing
// after what the copy waits for.

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "services/worker/device/arena_registration.h"
#include "services/worker/device/expert_link.h"
#include "services/worker/device/slot_memory.h"

namespace moestro::device {

class CudaLink final : public ExpertLink {
 public:
  static constexpr int32_t kUnderWay = 2;

  struct Options {
    uint32_t keys = 0, slots = 0;
    bool poison_slots = false;  ///< tests: a slot is filled with NaN when a copy begins
  };
  /// All outlive it; the tier gives kUnderWay chunks, as long as the device says. kExhausted: the device has no stream,
  /// events or staging memory to give.
  static Result<std::unique_ptr<CudaLink>> create(tier::DeviceTier& tier, const SlotMemory& slots,
                                                  const ArenaRegistration& arena, const CudaSlots& device,
                                                  const Options& options, const Clock& clock);
  /// Waits for copies in flight; slots and host memory are not used after that.
  ~CudaLink() override;

  bool is_copying(tier::Key key) const override;
  uint64_t staged_bytes() const override { return staged_bytes_.load(std::memory_order_relaxed); }
  void released(tier::Slot slot) override { launch_of_[slot] = launches_; }
  void wake() override;
  /// Called by the thread that owns the compute stream, while it captures nothing. kUnavailable: the device has failed.
  Status launched() override;

 private:
  /// Events of the last launches. A slot that was released earlier waits for the oldest of them, which is later.
  static constexpr uint64_t kLaunches = 64;
  /// One more than can be in flight: the end of the chunk before is known until a chunk has arrived.
  static constexpr size_t kFlights = kUnderWay + 1;
  struct Flight {
    tier::Chunk chunk;
    MoestroCudaEvent begin = nullptr, end = nullptr;  ///< timed; their own
    MoestroCudaEvent since = nullptr;                 ///< when the copy begins: `begin`, or the end of the one before
    void* staging = nullptr;                          ///< pinned, of staging_; free again when `end` has been reached
  };

  CudaLink(tier::DeviceTier& tier, const SlotMemory& slots, const ArenaRegistration& arena, const CudaSlots& device,
           const Options& options, const Clock& clock);
  Status make();
  void run();
  void send(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk);
  Status queue(const Flight& flight, const std::byte* source, MoestroCudaEvent readers);
  Status queue_copies(const Flight& flight, const std::byte* source);
  void look_at_oldest(std::unique_lock<std::mutex>& lock);
  void arrived(const Flight& flight, float ms);
  /// The event that the slot must wait for before it is written; null: none.
  MoestroCudaEvent readers_of(tier::Slot slot) const;
  Status call(const char* name, MoestroCudaResult result) const { return fell_off(device_, name, result); }

  const MoestroCudaFunctions& cuda_;
  const SlotMemory& slots_;
  const ArenaRegistration& arena_;
  std::atomic<uint64_t> staged_bytes_{0};
  const CudaSlots device_;
  const Options options_;
  MoestroCudaStream stream_ = nullptr;
  std::array<Flight, kFlights> flights_{};  ///< a ring, guarded but for what the thread queues
  std::array<void*, kUnderWay> staging_{};  ///< used in turn
  size_t oldest_ = 0, under_way_ = 0;
  uint64_t sent_ = 0;
  Nanos last_arrival_{0};
  std::array<MoestroCudaEvent, kLaunches> launch_events_{};  ///< launch n has n % kLaunches; the first is 1
  uint64_t launches_ = 0;
  std::vector<uint64_t> launch_of_;  ///< by slot: the last launch before it was released; 0: none
  std::atomic<bool> woken_{false};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace moestro::device

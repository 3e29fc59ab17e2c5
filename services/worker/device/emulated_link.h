#pragma once
// The link of an emulated device: a thread that carries chunks from host memory into slots, one at a time, as fast as
// the link would.
//
// A copy begins after the link's latency, and its bytes follow at the link's rate. A waiting thread wakes late, so a
// copy is timed from the call of wake(). A chunk that was available when the previous one ended follows it without a
// gap, so delays do not add up.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "services/worker/device/emulated_dense.h"
#include "services/worker/device/emulated_kv.h"
#include "services/worker/device/expert_link.h"
#include "services/worker/device/slot_memory.h"

namespace moestro::device {

struct LinkOptions {
  uint64_t bytes_per_s = 0;
  Nanos latency{0};
  bool poison_slots = false;  ///< tests: a slot is filled with NaN when a copy begins
  bool kv = false;            ///< it carries the KV of running sequences too
  bool dense = false;         ///< the same: dense weights that take turns on the device
};

class EmulatedLink final : public ExpertLink {
 public:
  /// All outlive it.
  EmulatedLink(tier::DeviceTier& tier, const SlotMemory& slots, const LinkOptions& options, const Clock& clock,
               uint32_t keys);
  ~EmulatedLink() override;

  bool is_copying(tier::Key key) const override { return copying_ == key; }
  bool kv_has_ended() const override { return kv_ && kv_->has_ended(); }
  engine::KvLink* kv() override { return kv_.get(); }
  EmulatedDense* dense() override { return dense_.get(); }
  void wake() override;

 private:
  static constexpr tier::Key kNone = UINT32_MAX;
  void run();
  bool carry_next(std::unique_lock<std::mutex>& lock, Nanos from);
  void carry(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk, Nanos from);

  const SlotMemory& slots_;
  const LinkOptions options_;
  tier::Key copying_ = kNone;
  Nanos free_at_{0};
  std::atomic<int64_t> woken_ns_{0};       ///< when wake() was first called since the link began to wait; 0: not called
  bool stop_ = false;
  std::unique_ptr<EmulatedDense> dense_;
  std::unique_ptr<EmulatedKv> kv_;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace moestro::device

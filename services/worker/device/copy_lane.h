#pragma once
// The link of an emulated device: a thread that carries chunks from host memory into slots, one at a time, as fast as the link would.
//
// A copy begins after the link's latency, and its bytes follow at the link's rate. A thread that waits wakes late, so a
// copy counts from when the lane was woken, not from when it did wake; a chunk that was there
// when the one before it ended follows that one without a gap, so lateness never adds up.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/tier/device_tier.h"
#include "services/worker/device/slot_memory.h"

namespace moestro::device {

struct LinkOptions {
  uint64_t bytes_per_s = 0;
  Nanos latency{0};
  bool poison_slots = false;  ///< tests: a slot is NaN from the begin of a copy on
};

/// A copy that has ended, for the timeline.
struct Copied {
  tier::Key key = 0;
  bool demand = false;
  Nanos begin{0}, end{0};
};

class CopyLane {
 public:
  /// All outlive it.
  CopyLane(tier::DeviceTier& tier, const SlotMemory& slots, const LinkOptions& options, const Clock& clock, uint32_t keys);
  ~CopyLane();
  CopyLane(const CopyLane&) = delete;
  CopyLane& operator=(const CopyLane&) = delete;

  /// Guards the tier and everything below. The lane lets go of it while it copies.
  std::mutex& mutex() { return mutex_; }

  // With the lock held:

  /// Where a key's bytes lie in host memory; null: nowhere, and no copy of it begins. May not change while the lane copies the key. A copy's
  /// end makes it null.
  void set_source(tier::Key key, const std::byte* data);
  bool is_copying(tier::Key key) const { return copying_ == key; }
  /// Keys whose copies have ended since the last call: their sources may go.
  void take_ended(std::vector<Copied>& out);

  /// There may be something to carry. Without the lock.
  void wake();
  /// Waits until a copy has ended since `seen` (its value then), or until `until`.
  void wait_for_end(std::unique_lock<std::mutex>& lock, uint64_t& seen, Nanos until);
  uint64_t ends() const { return ends_; }

 private:
  static constexpr tier::Key kNone = UINT32_MAX;
  void run();
  void carry(std::unique_lock<std::mutex>& lock, const tier::Chunk& chunk, Nanos from);

  tier::DeviceTier& tier_;
  const SlotMemory& slots_;
  const LinkOptions options_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable work_, ended_;
  std::vector<const std::byte*> sources_;  ///< by key
  std::vector<Nanos> began_;               ///< by key: the copy under way
  std::vector<Copied> done_;
  tier::Key copying_ = kNone;
  Nanos free_at_{0};
  uint64_t ends_ = 0;
  std::atomic<int64_t> woken_ns_{0};       ///< when wake() was first called since the lane began to wait; 0: it was not
  bool stop_ = false;
  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace moestro::device

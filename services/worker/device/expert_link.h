#pragma once
// Carries experts from host memory into the slots of a device: a thread that asks the tier for chunks. This is the
// common part; each link copies chunks in its own way.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "common/tier/device_tier.h"

namespace moestro::device {

/// A copy that has ended, for the timeline.
struct Copied {
  tier::Key key = 0;
  bool demand = false;
  Nanos begin{0}, end{0};
};

class ExpertLink {
 public:
  /// All outlive it.
  ExpertLink(tier::DeviceTier& tier, const Clock& clock, uint32_t keys)
      : tier_(tier), clock_(clock), sources_(keys, nullptr), began_(keys) {}
  virtual ~ExpertLink() = default;  ///< derived destructors end the thread; nothing is read or written afterwards
  ExpertLink(const ExpertLink&) = delete;
  ExpertLink& operator=(const ExpertLink&) = delete;

  /// Guards the tier and everything below. The link releases it while it copies.
  std::mutex& mutex() { return mutex_; }

  // With the lock held:

  /// Sets the place of a key's bytes in host memory; null: none, so no copy of it begins. It must not change while the
  /// link copies the key. The end of a copy sets it to null.
  void set_source(tier::Key key, const std::byte* data);
  virtual bool is_copying(tier::Key key) const = 0;
  /// Keys whose copies have ended since the last call; their sources may be released.
  void take_ended(std::vector<Copied>& out);
  /// No more work that reads the slot will be queued before it is leased again. Queued work may still read it: see
  /// launched().
  virtual void released(tier::Slot /*slot*/) {}
  /// Why the link carries nothing any more: the device has failed.
  const Status& failure() const { return failure_; }

  // Without the lock:

  /// There may be something to carry.
  virtual void wake() = 0;
  /// Work that reads slots has been queued on the device: slots released from now on are not written before it has
  /// ended.
  virtual Status launched() { return Status::ok(); }

  /// Waits until a copy has ended since `seen`, the link has failed, or `until`.
  virtual void wait_for_end(std::unique_lock<std::mutex>& lock, uint64_t& seen, Nanos until);
  uint64_t ends() const { return ends_; }

 protected:
  /// The last chunk of the copy that began at began_[key] has arrived.
  void copy_ended(tier::Key key, bool demand, Nanos end);
  /// Wakes all waiting threads. The first failure is kept.
  void fail(const Status& failure);

  tier::DeviceTier& tier_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable work_, ended_;
  std::vector<const std::byte*> sources_;  ///< by key
  std::vector<Nanos> began_;               ///< by key: begin of the copy in progress

 private:
  std::vector<Copied> done_;
  uint64_t ends_ = 0;
  Status failure_;
};

}  // namespace moestro::device

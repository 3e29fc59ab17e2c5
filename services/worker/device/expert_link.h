#pragma once
// Carries experts from host memory into the slots of a device: a thread that asks the tier for chunks. This is the
// common part; each link copies chunks in its own way.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "common/tier/device_tier.h"
#include "services/worker/engine/kv_link.h"

namespace moestro::device {

/// A stretch of time in which an expert, a layer's dense weights, or a part of them, was brought.
struct Copied {
  tier::Key key = 0;
  bool demand = false;  ///< a layer waited for it; false: a prefetch
  Nanos begin{0}, end{0};
  bool whole = false;   ///< the copy has ended with it
  uint32_t copy = 0;    ///< if it is whole: for which time, since the start
  bool drive = false;   ///< it was not the link: the store read it into host memory
  int32_t dense_layer = -1;  ///< of the model, whose dense weights it was; -1: an expert
  uint64_t dense_bytes = 0;  ///< of those
};

class DenseLink;

class ExpertLink {
 public:
  /// All outlive it.
  ExpertLink(tier::DeviceTier& tier, const Clock& clock, uint32_t keys)
      : tier_(tier), clock_(clock), sources_(keys) {}
  virtual ~ExpertLink() = default;  ///< derived destructors end the thread; nothing is read or written afterwards
  ExpertLink(const ExpertLink&) = delete;
  ExpertLink& operator=(const ExpertLink&) = delete;

  /// Guards the tier and everything below. The link releases it while it copies.
  std::mutex& mutex() { return mutex_; }

  // With the lock held:

  /// Sets the place of a key's bytes in host memory; null: none, so no copy of it begins. It must not change while the
  /// link copies the key. The end of a copy sets it to null.
  void set_source(tier::Key key, const std::byte* data, uint64_t length);
  virtual bool is_copying(tier::Key key) const = 0;
  /// What the link has done since the last call. Sources of keys whose copies have ended may be released.
  void take_ended(std::vector<Copied>& out);
  /// No more work that reads the slot will be queued before it is leased again. Queued work may still read it: see
  /// launched().
  virtual void released(tier::Slot /*slot*/) {}
  /// Bytes whose source the device cannot read by itself, so that a thread copied them first.
  virtual uint64_t staged_bytes() const { return 0; }
  /// Why the link carries nothing any more: the device has failed.
  const Status& failure() const { return failure_; }

  /// Whether KV has moved, and whoever waits for it has not taken that.
  virtual bool kv_has_ended() const { return false; }

  /// What carries dense weights beside the experts. Null: the link does not.
  virtual DenseLink* dense() { return nullptr; }

  // Without the lock:

  /// What carries the KV of running sequences beside the experts. Null: the link does not.
  virtual engine::KvLink* kv() { return nullptr; }
  /// There may be something to carry.
  virtual void wake() = 0;
  /// Work that reads slots has been queued on the device: slots released from now on are not written before it has
  /// ended.
  virtual Status launched() { return Status::ok(); }

  /// Waits until a copy has ended since `seen`, the link has failed, or `until`.
  virtual void wait_for_end(std::unique_lock<std::mutex>& lock, uint64_t& seen, Nanos until);
  uint64_t ends() const { return ends_; }

 protected:
  /// A chunk has arrived, which took the link this time. Chunks of one expert in a row become one `Copied`.
  void carried(const tier::Chunk& chunk, Nanos begin, Nanos end);
  /// With the lock held: something else than an expert has arrived.
  void note_end();
  /// Wakes the thread that waits. The first failure is kept.
  void fail(const Status& failure);

  tier::DeviceTier& tier_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable work_, ended_;
  /// Where an expert is in host memory. A chunk ends with it where it is shorter than the longest expert.
  struct Source {
    const std::byte* data = nullptr;
    uint64_t length = 0;
    uint64_t bytes_of(const tier::Chunk& chunk) const {
      return std::min(chunk.bytes, length - std::min(length, chunk.offset));
    }
  };
  std::vector<Source> sources_;  ///< by key

 private:
  std::vector<Copied> done_;
  std::optional<Copied> open_;  ///< the last one, while more chunks may follow
  uint64_t ends_ = 0;
  Status failure_;
};

}  // namespace moestro::device

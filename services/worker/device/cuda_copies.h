#pragma once
// A stream of copies from host memory to a CUDA device. Two are under way at a time, so that the copy engine continues
// without the host. What is not registered is copied to pinned memory first.

#include <array>
#include <atomic>
#include <mutex>
#include <optional>

#include "common/clock.h"
#include "services/worker/device/arena_registration.h"

namespace moestro::device {

class CudaCopies {
 public:
  static constexpr int32_t kUnderWay = 2;
  /// One more than can be in flight: the end of the copy before is known until a copy has arrived.
  static constexpr size_t kFlights = kUnderWay + 1;

  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    uint64_t bytes = 0;
    MoestroCudaEvent readers = nullptr;  ///< it begins behind this event; null: behind the copy before it
    std::byte* poison = nullptr;         ///< tests: memory that becomes NaN before it
    uint64_t poison_bytes = 0;
  };

  /// `arena` outlives it.
  CudaCopies(const CudaSlots& device, const ArenaRegistration& arena) : device_(device), arena_(arena) {}
  ~CudaCopies();
  CudaCopies(const CudaCopies&) = delete;
  CudaCopies& operator=(const CudaCopies&) = delete;
  /// kExhausted: the device has no stream, events or staging memory to give, "for the copies of experts".
  Status make(uint64_t copy_bytes_max, const char* what_for);

  /// Bytes that were not registered.
  uint64_t staged_bytes() const { return staged_bytes_.load(std::memory_order_relaxed); }

  // With the link's lock held. Copies have numbers, from 0:

  uint64_t sent() const { return sent_; }
  uint64_t ended() const { return ended_; }
  size_t under_way() const { return static_cast<size_t>(sent_ - ended_); }
  bool has_room() const { return under_way() < kUnderWay; }
  /// An event behind a copy that has not ended; null: it is still being queued.
  MoestroCudaEvent end_of(uint64_t copy) const { return copy < queued_ ? flights_[copy % kFlights].end : nullptr; }

  // For the link's thread; the lock is released meanwhile:

  /// Queues a copy; there is room.
  Status send(std::unique_lock<std::mutex>& lock, const Copy& copy);
  /// How long the oldest copy has taken, which has ended with that; nullopt: it has not. `waits`: until it has.
  Result<std::optional<Nanos>> look(std::unique_lock<std::mutex>& lock, bool waits);
  /// Without the lock: what is under way has ended, unless the device has failed, which then touches nothing.
  void finish() { (void)device_.functions->wait_stream(stream_); }

 private:
  struct Flight {
    MoestroCudaEvent begin = nullptr, end = nullptr;  ///< timed; their own
    MoestroCudaEvent since = nullptr;                 ///< when the copy begins: `begin`, or the end of the one before
  };
  Status queue(const Flight& flight, const Copy& copy, void* staging);
  Status queue_parts(const Copy& copy, void* staging);
  Status call(const char* name, MoestroCudaResult result) const { return fell_off(device_, name, result); }

  const CudaSlots device_;
  const ArenaRegistration& arena_;
  std::atomic<uint64_t> staged_bytes_{0};
  MoestroCudaStream stream_ = nullptr;
  std::array<Flight, kFlights> flights_{};  ///< copy n has n % kFlights
  std::array<void*, kUnderWay> staging_{};  ///< pinned; used in turn, free again when the copy has ended
  uint64_t sent_ = 0, queued_ = 0, ended_ = 0;
};

}  // namespace moestro::device

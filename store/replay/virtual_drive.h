#pragma once
// A drive on a virtual clock. It reads one chunk at a time: of the oldest read that somebody waits for, else of the
// oldest one.

#include <cstdint>
#include <deque>
#include <optional>

#include "common/clock.h"

namespace moestro::store {

struct DriveSpeed {
  double bytes_per_s = 0;  ///< more than 0
  Nanos latency{0};        ///< of each read, before its first byte
};

class VirtualDrive {
 public:
  /// All reads are of `read_bytes`.
  VirtualDrive(const DriveSpeed& speed, uint64_t read_bytes, uint64_t chunk_bytes)
      : speed_(speed), read_bytes_(read_bytes), chunk_bytes_(chunk_bytes) {}

  void begin(uint64_t load, uint32_t entry, bool demand) { reads_.push_back({load, entry, demand}); }
  void promote(uint64_t load);
  /// The read ends with the chunk that is being read, unless it is demanded.
  void cancel(uint64_t load);

  struct Ended {
    uint64_t load = 0;
    uint32_t entry = 0;
    uint64_t bytes = 0;  ///< that were read of it
    bool whole = false;
  };
  /// A cancelled read of which nothing is being read now.
  std::optional<Ended> take_cancelled();
  /// An idle drive begins the next chunk at `now`.
  void poke(Nanos now);
  /// When the current chunk ends. nullopt: the drive is idle.
  std::optional<Nanos> ends() const { return reading_ ? std::optional(ends_) : std::nullopt; }
  /// Completes the current chunk. The read, if it has ended with it.
  std::optional<Ended> finish();

  uint64_t bytes() const { return bytes_; }  ///< carried so far
  Nanos busy() const { return busy_; }       ///< time that it took

 private:
  struct Read {
    uint64_t load = 0;
    uint32_t entry = 0;
    bool demand = false, cancelled = false;
    uint64_t done = 0;  ///< bytes
  };
  Read* find(uint64_t load);
  Ended end(uint64_t load);

  const DriveSpeed speed_;
  const uint64_t read_bytes_, chunk_bytes_;
  std::deque<Read> reads_;           ///< begun and not ended, in that order
  std::optional<uint64_t> reading_;  ///< load whose chunk is being read
  Nanos ends_{0}, took_{0};
  uint64_t bytes_ = 0;
  Nanos busy_{0};
};

}  // namespace moestro::store

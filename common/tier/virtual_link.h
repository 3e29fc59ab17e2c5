#pragma once
// A link on a virtual clock. It carries the chunks of a tier, one after another.

#include <functional>
#include <utility>

#include "common/tier/device_tier.h"

namespace moestro::tier {

/// 0 if the rate is: it is unlimited.
inline Nanos time_of_bytes(uint64_t bytes, double bytes_per_s) {
  const double seconds = bytes_per_s > 0 ? static_cast<double>(bytes) / bytes_per_s : 0;
  return Nanos(static_cast<int64_t>(seconds * 1e9));
}

/// Chooses what the link carries next, in place of DeviceTier::next_chunk().
using NextChunk = std::function<std::optional<Chunk>(DeviceTier& tier)>;

class VirtualLink {
 public:
  /// `arrived`: of each chunk, when the tier knows of it. `next` null: the tier chooses.
  VirtualLink(DeviceTier& tier, double bytes_per_s, Nanos latency,
              std::function<void(const Chunk&, Nanos end)> arrived = nullptr, NextChunk next = nullptr)
      : tier_(tier),
        bytes_per_s_(bytes_per_s),
        latency_(latency),
        arrived_(std::move(arrived)),
        next_(std::move(next)) {}

  /// Something has changed at `now`: an idle link checks whether there is work.
  void poke(Nanos now) {
    if (chunk_) return;
    chunk_ = next_ ? next_(tier_) : tier_.next_chunk(now);
    if (!chunk_) return;
    took_ = time_of_bytes(chunk_->bytes, bytes_per_s_) + (chunk_->offset == 0 ? latency_ : Nanos{0});
    ends_ = now + took_;
  }
  /// Completes everything that ends until `now`.
  void advance(Nanos now) {
    while (chunk_ && ends_ <= now) finish();
  }
  /// When the current chunk ends. nullopt: the link is idle.
  std::optional<Nanos> ends() const { return chunk_ ? std::optional(ends_) : std::nullopt; }
  /// What it carries.
  std::optional<Chunk> chunk() const { return chunk_; }
  /// Completes the current chunk and returns its end. nullopt: the link is idle.
  std::optional<Nanos> finish() {
    if (!chunk_) return std::nullopt;
    const Nanos end = ends_;
    const Chunk done = *chunk_;
    chunk_.reset();
    tier_.chunk_done(end, done, took_);
    if (arrived_) arrived_(done, end);
    poke(end);
    return end;
  }

 private:
  DeviceTier& tier_;
  double bytes_per_s_;
  Nanos latency_;
  std::function<void(const Chunk&, Nanos)> arrived_;
  NextChunk next_;
  std::optional<Chunk> chunk_;
  Nanos took_{0}, ends_{0};
};

}  // namespace moestro::tier

#pragma once
// A link on a virtual clock. It carries the chunks of a tier, one after another.

#include "common/tier/device_tier.h"

namespace moestro::tier {

class VirtualLink {
 public:
  VirtualLink(DeviceTier& tier, double bytes_per_s, Nanos latency)
      : tier_(tier), bytes_per_s_(bytes_per_s), latency_(latency) {}

  /// Something has changed at `now`: an idle link checks whether there is work.
  void poke(Nanos now) {
    if (chunk_) return;
    chunk_ = tier_.next_chunk(now);
    if (!chunk_) return;
    took_ = time_of(*chunk_);
    ends_ = now + took_;
  }
  /// Completes everything that ends until `now`.
  void advance(Nanos now) {
    while (chunk_ && ends_ <= now) finish();
  }
  /// Completes the current chunk and returns its end. nullopt: the link is idle.
  std::optional<Nanos> finish() {
    if (!chunk_) return std::nullopt;
    const Nanos end = ends_;
    const Chunk done = *chunk_;
    chunk_.reset();
    tier_.chunk_done(end, done, took_);
    poke(end);
    return end;
  }

 private:
  Nanos time_of(const Chunk& chunk) const {
    const double seconds = bytes_per_s_ > 0 ? static_cast<double>(chunk.bytes) / bytes_per_s_ : 0;
    return Nanos(static_cast<int64_t>(seconds * 1e9)) + (chunk.offset == 0 ? latency_ : Nanos{0});
  }
  DeviceTier& tier_;
  double bytes_per_s_;
  Nanos latency_;
  std::optional<Chunk> chunk_;
  Nanos took_{0}, ends_{0};
};

}  // namespace moestro::tier

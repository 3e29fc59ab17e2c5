#pragma once
// Dense weights on an emulated link, in chunks between those of experts and KV.

#include <condition_variable>
#include <functional>
#include <mutex>

#include "services/worker/device/dense_link.h"

namespace moestro::device {

class EmulatedDense final : public DenseLink {
 public:
  struct Options {
    uint64_t bytes_per_s = 0;
    Nanos latency{0};  ///< of each layer, before its first byte
  };
  /// `ended`: a copy has ended; called with the link's lock.
  EmulatedDense(const Options& options, const Clock& clock, std::function<void()> ended)
      : options_(options), clock_(clock), on_end_(std::move(ended)) {}

  void abandon(std::unique_lock<std::mutex>& lock) override;
  /// For the link's thread: carries the next chunk; returns when it has arrived, which is in `free_at`. The link can
  /// begin at `from`.
  void carry_in(std::unique_lock<std::mutex>& lock, Nanos from, Nanos& free_at);

 private:
  const Options options_;
  const Clock& clock_;
  const std::function<void()> on_end_;
  bool carrying_ = false;
  std::condition_variable carried_chunk_;
};

}  // namespace moestro::device

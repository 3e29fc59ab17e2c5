#pragma once
// Dense weights on an emulated link: one layer after another, in the order in which steps use them, in chunks between
// those of experts and KV.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "services/worker/device/expert_link.h"

namespace moestro::device {

/// A layer on its way to a place of the device.
struct DenseCopy {
  uint64_t number = 0;    ///< counts the copies in the order of use
  int32_t layer = -1;     ///< of the model
  int32_t moe_layer = 0;  ///< the first MoE layer that is not before it
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

class EmulatedDense {
 public:
  struct Options {
    uint64_t bytes_per_s = 0;
    Nanos latency{0};  ///< of each layer, before its first byte
  };
  /// `ended`: a copy has ended; called with the link's lock.
  EmulatedDense(const Options& options, const Clock& clock, std::function<void()> ended)
      : options_(options), clock_(clock), on_end_(std::move(ended)) {}

  // All with the link's lock held. For the thread that runs the steps:

  /// Copies end in the order of these calls. The memory that it names stays as it is until then.
  void begin(const DenseCopy& copy) { copies_.push_back(copy); }
  /// The step at hand uses copies below this number; what comes later waits for everything else.
  void set_step_end(uint64_t number) { step_end_ = number; }
  /// Appends the numbers of copies that have ended since the last call.
  void take_ended(std::vector<uint64_t>& ended);
  /// Drops what has not been carried. On return the link touches no memory of any copy.
  void abandon(std::unique_lock<std::mutex>& lock);
  /// Appends what the link has carried since the last call.
  void take_carried(std::vector<Copied>& out);

  // For the link's thread:

  bool has_more() const { return !copies_.empty(); }
  /// Of the copy that is next.
  int32_t layer() const { return copies_.front().layer; }
  /// Whether it is for the step at hand, and comes before an expert that this MoE layer waits for (nullopt: none does).
  bool comes_first(std::optional<int32_t> waiting_layer) const;
  /// Carries the next chunk; returns when it has arrived, which is in `free_at`. The link can begin at `from`.
  void carry_in(std::unique_lock<std::mutex>& lock, Nanos from, Nanos& free_at);

 private:
  void note(const DenseCopy& copy, uint64_t bytes, Nanos begin, Nanos end);

  const Options options_;
  const Clock& clock_;
  const std::function<void()> on_end_;
  std::vector<DenseCopy> copies_;  ///< the first is under way; no more than places
  uint64_t offset_ = 0;           ///< in that one
  uint64_t step_end_ = 0;
  bool carrying_ = false;
  std::condition_variable carried_chunk_;
  std::vector<uint64_t> ended_;
  std::vector<Copied> carried_;
  bool open_ = false;  ///< more may follow the last of `carried_`
};

}  // namespace moestro::device

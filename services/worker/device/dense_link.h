#pragma once
// What carries dense weights that take turns to a device's memory, beside the experts of a link: one layer after
// another, in the order in which steps use them, in chunks.

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "common/status.h"
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
  uint64_t after = 0;         ///< DenseLink::launches() when kernels that read the place had been queued
  uint64_t poison_bytes = 0;  ///< tests: so much of the place is NaN before the first byte
};

class DenseLink {
 public:
  virtual ~DenseLink() = default;

  // All with the link's lock held. For the thread that runs the steps:

  /// Copies end in the order of these calls. The memory that it names stays as it is until then.
  void begin(const DenseCopy& copy) { copies_.push_back(copy); }
  /// The step at hand uses copies below this number; what comes later waits for everything else.
  void set_step_end(uint64_t number) { step_end_ = number; }
  /// Appends the numbers of copies that have ended since the last call.
  void take_ended(std::vector<uint64_t>& ended);
  /// Whether kernels that use a copy that has not ended may be queued: those queued from now on wait for it on the
  /// device. An error: the device has failed.
  virtual Result<bool> kernels_may_follow(uint64_t /*number*/) { return false; }
  /// Calls of ExpertLink::launched() so far, on devices that queue kernels.
  virtual uint64_t launches() const { return 0; }
  /// Drops what has not been carried. On return the link touches no memory of any copy.
  virtual void abandon(std::unique_lock<std::mutex>& lock) = 0;
  /// Appends what the link has carried since the last call.
  void take_carried(std::vector<Copied>& out);

  // For the link's thread:

  bool has_more() const { return !copies_.empty(); }
  /// Of the copy that is next.
  int32_t layer() const { return copies_.front().layer; }
  /// Whether it is for the step at hand, and comes before an expert that this MoE layer waits for (nullopt: none does).
  bool comes_first(std::optional<int32_t> waiting_layer) const;

 protected:
  void note(int32_t layer, uint64_t bytes, Nanos begin, Nanos end);

  std::vector<DenseCopy> copies_;  ///< not carried to their ends; no more than places
  uint64_t offset_ = 0;            ///< in the first
  std::vector<uint64_t> ended_;

 private:
  uint64_t step_end_ = 0;
  std::vector<Copied> carried_;
  bool open_ = false;  ///< more may follow the last of `carried_`
};

}  // namespace moestro::device

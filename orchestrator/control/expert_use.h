#pragma once
// How often each expert was used recently, for the status page.

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/activation/eamc_view.h"
#include "common/clock.h"

namespace moestro::orchestrator {

/// By MoE layer, then expert: its share of the layer's uses. A layer adds up to 1, or to 0 if nothing was used yet.
struct ExpertShares {
  int32_t layers = 0, experts = 0;
  std::vector<float> cells;
};

/// Counts that halve with time. Counted on the control thread, read from any thread.
class ExpertUse {
 public:
  static constexpr std::chrono::seconds kHalfLife{60};

  /// A model of this shape is served from now on; counts of another shape are dropped.
  void begin(const activation::EamcShape& shape);
  /// Counts what one sequence's tokens have used. Cells that the model does not have are ignored.
  void count(std::span<const activation::ActivationCount> counts, Nanos now);
  ExpertShares shares() const;

 private:
  mutable std::mutex mutex_;
  int32_t layers_ = 0, experts_ = 0;
  Nanos since_{0};
  std::vector<double> cells_;  ///< a use at `since_` weighs 1, one a half-life later 2, so earlier counts need not be
                               ///< changed
};

}  // namespace moestro::orchestrator

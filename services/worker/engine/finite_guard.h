#pragma once
// After each layer: which sequences' activations have become NaN, infinite, or too large for the next norm. Such a
// sequence fails alone; its rows are out of the rest of the step. Costs one read of the residual stream, 4 bytes per
// value and layer, while it is in cache: 8 KiB for a token of hidden size 2048, beside the tens of MiB of experts that
// the layer reads for it.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "services/worker/engine/step_batch.h"

namespace moestro::engine {

class FiniteGuard {
 public:
  FiniteGuard(kernels::Ops& ops, int64_t hidden, int64_t step_tokens_max);

  /// Both live until the step has ended; `failed`: one Status per sequence of the plan.
  void begin(const StepBatch& batch, std::vector<Status>& failed);
  /// x: [rows, hidden] after `layer`. Rows that are not finite become zero, so that nothing spreads from them.
  void check(size_t layer, float* x);
  /// A backend that looks itself has found this row not finite after `layer`: `what` of it, as "3 of 2048 values are
  /// not finite", and `others` more rows of its sequence.
  void fail_row(size_t layer, int64_t row, const std::string& what, int64_t others);
  /// This sequence has failed with `why`, unless it had before.
  void fail(uint32_t sequence, const Status& why);

  /// One per row of the step: not 0 if its sequence has failed. Empty while none has.
  std::span<const uint8_t> left_out() const {
    return some_failed_ ? std::span<const uint8_t>(left_out_) : std::span<const uint8_t>();
  }
  /// Sequences of this step that check() has failed.
  uint32_t not_finite() const { return not_finite_; }

 private:
  int64_t bad_rows_of(uint32_t sequence) const;

  kernels::Ops& ops_;
  int64_t hidden_;
  const StepBatch* batch_ = nullptr;
  std::vector<Status>* failed_ = nullptr;
  std::vector<float> sums_;  ///< of squares, by row
  std::vector<uint8_t> left_out_;
  bool some_failed_ = false;
  uint32_t not_finite_ = 0;
};

}  // namespace moestro::engine

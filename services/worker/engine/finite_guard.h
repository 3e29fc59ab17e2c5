#pragma once
// Finds, after each layer, sequences whose activations have become NaN, infinite, or too large for the next norm. Such
// a sequence fails alone, and its rows are left out of the rest of the step. The cost is one read of the residual
// stream, 4 bytes per value and layer, while it is in cache: 8 KiB for a token of hidden size 2048, compared with the
// tens of MiB of experts that the layer reads for it.

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

  /// Both must live until the step has ended. `failed`: one Status per sequence of the plan.
  void begin(const StepBatch& batch, std::vector<Status>& failed);
  /// x: the stream after `layer`, from the step's first row on; `rows`: which are looked at. Rows that are not finite
  /// become zero, so that they cannot affect others.
  void check(size_t layer, TokenRange rows, float* x);
  /// For a backend that checks by itself: this row is not finite after `layer`. `what`: "3 of 2048 values are not
  /// finite"; `others`: further such rows of its sequence.
  void fail_row(size_t layer, int64_t row, const std::string& what, int64_t others);
  /// Fails this sequence with `why`, unless it has failed before.
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

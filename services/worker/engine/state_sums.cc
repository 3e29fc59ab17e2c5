#include "services/worker/engine/state_sums.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace moestro::engine {
namespace {

/// Added and subtracted again, it rounds a double below 2^21 to a multiple of 2^-30: the sum is between 2^22 and 2^23,
/// where doubles are 2^-30 apart. Larger values of f32 are multiples of it already.
constexpr double kRounding = 1.5 * (1 << 22);

}  // namespace

void StateSums::add(const StepBatch& batch, int64_t tile_rows, const NormRows& norm_rows) {
  sums_.resize(batch.summed_rows.size());
  for (size_t i = 0; i < sums_.size(); ++i) {
    const SummedRows& rows = batch.summed_rows[i];
    sums_[i].assign(static_cast<size_t>(hidden_), 0.0);
    for (int64_t done = 0; done < rows.count; done += tile_rows) {
      const int64_t n = std::min(tile_rows, rows.count - done);
      add_rows(norm_rows(rows.first + done, n), n, sums_[i]);
    }
  }
}

void StateSums::add_rows(const float* rows, int64_t n, std::vector<double>& sum) const {
  for (int64_t r = 0; r < n; ++r, rows += hidden_)
    for (int64_t i = 0; i < hidden_; ++i)
      sum[static_cast<size_t>(i)] += (static_cast<double>(rows[i]) + kRounding) - kRounding;
}

uint32_t StateSums::finish(const StepBatch& batch, std::vector<Status>& failed,
                           std::vector<SequenceOutcome>& outcomes) {
  uint32_t not_finite = 0;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const SummedRows& rows = batch.summed_rows[i];
    if (!failed[rows.sequence].is_ok()) continue;
    const auto bad = std::count_if(sums_[i].begin(), sums_[i].end(), [](double v) { return !std::isfinite(v); });
    if (bad == 0) {
      outcomes[rows.sequence].state_sum = std::move(sums_[i]);
      continue;
    }
    ++not_finite;
    const int32_t from = batch.positions[static_cast<size_t>(rows.first)];
    failed[rows.sequence] = internal_error(
        "last norm: " + std::to_string(bad) + " of " + std::to_string(hidden_) +
        " values of the hidden states at positions " + std::to_string(from) + " to " +
        std::to_string(from + rows.count - 1) +
        " are not finite; its weights are damaged or out of range: `moestro inspect PACK --verify` looks at them");
  }
  return not_finite;
}

}  // namespace moestro::engine

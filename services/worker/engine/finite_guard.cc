#include "services/worker/engine/finite_guard.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace moestro::engine {
namespace {

/// "12 of 2048 values are not finite", or how large they are where all are and only their squares are not.
std::string describe(std::span<const float> row) {
  const auto bad = std::count_if(row.begin(), row.end(), [](float v) { return !std::isfinite(v); });
  const std::string of = " of " + std::to_string(row.size()) + " values ";
  if (bad > 0) return std::to_string(bad) + of + (bad == 1 ? "is" : "are") + " not finite";
  float largest = 0;
  for (const float v : row) largest = std::max(largest, std::abs(v));
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", static_cast<double>(largest));
  return "the largest" + of + "is " + text + ", more than a norm in f32 can hold,";
}

}  // namespace

FiniteGuard::FiniteGuard(kernels::Ops& ops, int64_t hidden, int64_t step_tokens_max) : ops_(ops), hidden_(hidden) {
  sums_.resize(static_cast<size_t>(step_tokens_max));
  left_out_.reserve(static_cast<size_t>(step_tokens_max));
}

void FiniteGuard::begin(const StepBatch& batch, std::vector<Status>& failed) {
  batch_ = &batch;
  failed_ = &failed;
  some_failed_ = false;
  not_finite_ = 0;
}

void FiniteGuard::check(size_t layer, TokenRange rows, float* x) {
  const int64_t first = rows.first;
  ops_.sum_squares(x + first * hidden_, rows.count, hidden_, sums_.data() + first);
  for (int64_t r = first; r < first + rows.count; ++r) {
    if (std::isfinite(sums_[static_cast<size_t>(r)])) continue;
    if (const uint32_t sequence = batch_->sequence_of[static_cast<size_t>(r)]; (*failed_)[sequence].is_ok())
      fail_row(layer, r, describe({x + r * hidden_, static_cast<size_t>(hidden_)}), bad_rows_of(sequence) - 1);
    std::fill_n(x + r * hidden_, hidden_, 0.0f);
  }
}

void FiniteGuard::fail_row(size_t layer, int64_t row, const std::string& what, int64_t others) {
  const uint32_t sequence = batch_->sequence_of[static_cast<size_t>(row)];
  if (!(*failed_)[sequence].is_ok()) return;
  ++not_finite_;
  fail(sequence, internal_error("layer " + std::to_string(layer) + ": " + what + " at position " +
                                std::to_string(batch_->positions[static_cast<size_t>(row)]) +
                                (others > 0 ? " and at " + std::to_string(others) + " more of this step" : "") +
                                "; the weights of this layer or of one before it are damaged or out of range: `moestro "
                                "inspect PACK --verify` looks at them"));
}

int64_t FiniteGuard::bad_rows_of(uint32_t sequence) const {
  const TokenRange range = batch_->rows_of[sequence];
  const auto first = sums_.begin() + range.first;
  return std::count_if(first, first + range.count, [](float s) { return !std::isfinite(s); });
}

void FiniteGuard::fail(uint32_t sequence, const Status& why) {
  Status& status = (*failed_)[sequence];
  if (status.is_ok()) status = why;
  if (!some_failed_) left_out_.assign(static_cast<size_t>(batch_->rows()), 0);
  some_failed_ = true;
  const TokenRange range = batch_->rows_of[sequence];
  std::fill_n(left_out_.begin() + range.first, range.count, uint8_t{1});
}

}  // namespace moestro::engine

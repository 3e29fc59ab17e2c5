#pragma once
// Bounds the part of a sequence's choices (tokens x experts) that low copies serve, or none (--mixed-max-share).
//
// A choice counts as soon as its layer is routed, and what is unused of a layer is left to later ones. What is unused
// of a row is left to the rows after it, and not to those before: other requests may go on behind any part of a prompt,
// so no part of it has more than the share, also within the chunk that a step computes.

#include <cstdint>
#include <span>
#include <vector>

#include "common/expert_copy.h"
#include "kernels/ops.h"

namespace moestro::engine {

/// Of the sequences of a step.
class LowShares {
 public:
  void clear();
  /// The next rows of the step are of one sequence, of whose choices up to `most` (0 to 1) may be low or skipped;
  /// `before`: of its earlier steps.
  void add(uint32_t rows, double most, const CopyCounts& before);
  /// Each row has chosen `top_k` more experts.
  void add_choices(int64_t top_k) { choices_of_row_ += static_cast<uint64_t>(top_k); }
  /// Nothing of this row may be low.
  bool is_full_only(int64_t row) const { return of(row).most == 0; }
  /// Whether a choice of each of these rows, which ascend, may be low or skipped. If so, it counts as that.
  bool take(std::span<const kernels::RoutedRow> rows);

 private:
  struct Account {
    double most = 1;
    uint32_t first = 0, rows = 0;
    uint64_t choices = 0, low = 0;  ///< of earlier steps
  };
  const Account& of(int64_t row) const { return accounts_[account_of_[static_cast<size_t>(row)]]; }
  bool is_within(const Account& account) const;

  std::vector<Account> accounts_;
  std::vector<uint32_t> account_of_;  ///< by row
  std::vector<uint32_t> low_;         ///< by row, in this step
  uint64_t choices_of_row_ = 0;       ///< the same, of each
};

}  // namespace moestro::engine

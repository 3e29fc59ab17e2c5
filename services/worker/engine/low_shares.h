#pragma once
// Bounds the part of a sequence's choices (tokens x experts) that low copies serve, or none (--mixed-max-share).
//
// A choice counts as soon as its layer is routed, and what is unused of a layer is left to later ones. So no layer of a
// step ends with more than the share, whatever the number of layers and tokens. Among the rows of one step it is not
// divided: the first tokens of a chunk of a prompt may have more than the last.

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
  void add_choices(int64_t top_k);
  /// Nothing of this row may be low.
  bool is_full_only(int64_t row) const { return of(row).most == 0; }
  /// Whether a choice of each of these rows may be low or skipped. If so, it counts as that.
  bool take(std::span<const kernels::RoutedRow> rows);

 private:
  struct Account {
    double most = 1;
    uint64_t rows = 0, choices = 0, low = 0;
  };
  const Account& of(int64_t row) const { return accounts_[account_of_[static_cast<size_t>(row)]]; }
  Account& of(int64_t row) { return accounts_[account_of_[static_cast<size_t>(row)]]; }

  std::vector<Account> accounts_;
  std::vector<uint32_t> account_of_;  ///< by row
};

}  // namespace moestro::engine

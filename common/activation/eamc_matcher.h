#pragma once
// Finds the past requests that a sequence resembles, row by row.
//
// The query is what the sequence has used so far, plus the rows of the current iteration. Earlier iterations count as
// at most `request_tokens` tokens. So layer 0 is matched with the request's matrix so far, and later layers with more
// and more of the current token. If there are no earlier iterations, an entry's first rows are compared with the
// query's first rows, each with its own norm.
//
// There is one matcher for each sequence and collection. A row costs reading the columns of its experts.
//
// The collection may change at any moment. An entry counts as it was at the beginning of an iteration. An entry that
// changes during an iteration is ignored until its end, and read again at the beginning of the next one.

#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/activation/eamc_view.h"

namespace moestro::activation {

struct EamcMatch {
  int32_t entry = 0;
  float score = 0;  ///< cosine times the query's length: comparable within one ranking
};

class EamcMatcher {
 public:
  static constexpr int32_t kMatchesMax = 32;
  /// `request_tokens`: the most that earlier iterations weigh, in tokens of the current one. `eamc` outlives this; it
  /// may be assigned another view between iterations.
  EamcMatcher(const EamcView& eamc, float request_tokens);

  void begin_iteration();
  /// What the sequence's `tokens` tokens chose at `layer`; layers in order.
  void add_row(int32_t layer, std::span<const ActivationCount> counts, int32_t tokens);
  /// The iteration's rows are part of the request's matrix from here on.
  void end_iteration();

  /// The best `count` (at most kMatchesMax) entries, best first. Fewer, if fewer entries share anything with the query.
  std::span<const EamcMatch> best(int32_t count);
  /// Copies a row of one of these matches to `out`. False: the entry has changed since it was matched.
  bool read_row(const EamcMatch& match, int32_t layer, std::span<uint8_t> out) const;

 private:
  void catch_up();
  void keep(EamcMatch match, size_t count);
  float iteration_weight() const;

  size_t rounded() const { return eamc_rounded(static_cast<uint64_t>(entries_)); }

  const EamcView& eamc_;
  const float request_tokens_max_;
  uint64_t view_ = 0;            ///< id of the view that these entries belong to
  uint64_t changes_ = 0;         ///< changes() of the view when the entries were last read
  int32_t entries_ = 0;
  int32_t layer_ = -1;           ///< the last row of the iteration
  int32_t tokens_ = 0;           ///< of the iteration
  float request_tokens_ = 0;     ///< of earlier iterations
  size_t ranked_ = 0;            ///< this many entries are in best_
  std::vector<uint64_t> versions_;  ///< [entry]: what is matched
  std::vector<uint32_t> sums_;   ///< [entry]: rows of this iteration times the entry's
  std::vector<float> base_;      ///< [entry]: earlier iterations
  std::vector<float> request_;   ///< [layer][expert]: earlier iterations
  std::vector<uint8_t> iteration_;  ///< [layer][expert]: in units of weight()
  std::vector<const uint8_t*> columns_;
  std::vector<EamcMatch> best_;
};

}  // namespace moestro::activation

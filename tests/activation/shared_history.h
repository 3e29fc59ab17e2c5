#pragma once
// Entries whose contents show whether they are consistent: in content c, every row has only expert c.

#include <unistd.h>

#include <cmath>
#include <vector>

#include "common/activation/eamc_matcher.h"
#include "common/activation/history.h"
#include "common/activation/history_mapping.h"
#include "common/check.h"

namespace moestro::activation::testing {

inline std::vector<uint8_t> content(const EamcShape& shape, uint32_t c) {
  std::vector<uint8_t> cells(shape.cells());
  for (size_t at = c; at < cells.size(); at += static_cast<size_t>(shape.experts)) cells[at] = 255;
  return cells;
}

inline std::vector<ActivationCount> chosen(int32_t layer, uint32_t expert) {
  return {{MoeLayerId(static_cast<uint32_t>(layer)), ExpertId(expert), 1}};
}

inline ActivationHistory shared_history(const EamcShape& shape, int32_t capacity, uint64_t pack = 7,
                                        uint64_t segment = 70) {
  auto made = ActivationHistory::shared(shape, capacity, pack, segment);
  MOESTRO_CHECK(made.is_ok(), made.status().message());
  return std::move(*made);
}

inline Result<HistoryMapping> map(const ActivationHistory& history, const HistoryExpected& expected) {
  return HistoryMapping::of(shm::UniqueFd(::dup(history.memory()->fd())), expected);
}

/// Matches one token that chooses `expert` everywhere with a new matcher. Every entry that is found must have that
/// content, and so must each of its rows that can still be read. Returns how many were found.
inline size_t match_whole_entries(const EamcView& view, uint32_t expert) {
  const EamcShape& shape = view.shape();
  EamcMatcher matcher(view, 1);
  matcher.begin_iteration();
  for (int32_t layer = 0; layer < shape.layers; ++layer) matcher.add_row(layer, chosen(layer, expert), 1);
  const std::span<const EamcMatch> best = matcher.best(EamcMatcher::kMatchesMax);
  std::vector<uint8_t> row(static_cast<size_t>(shape.experts));
  for (const EamcMatch& m : best) {
    MOESTRO_CHECK(std::abs(m.score - std::sqrt(static_cast<float>(shape.layers))) < 1e-4, "the score of a whole entry");
    for (int32_t layer = 0; layer < shape.layers; ++layer) {
      if (!matcher.read_row(m, layer, row)) continue;
      for (size_t e = 0; e < row.size(); ++e)
        MOESTRO_CHECK(row[e] == (e == expert ? 255 : 0), "a row of a whole entry");
    }
  }
  return best.size();
}

}  // namespace moestro::activation::testing

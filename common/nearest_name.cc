#include "common/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace moestro {
namespace {

constexpr size_t kTypedMax = 64, kEditsMax = 3;

/// The edit distance of Damerau and Levenshtein in which no part is edited twice ("optimal string alignment").
size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above, row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names) {
  typed = typed.substr(0, kTypedMax);
  const std::string* best = nullptr;
  size_t best_edits = std::min(kEditsMax, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    const size_t edits = edits_between(typed, name);
    if (edits < best_edits) best = &name, best_edits = edits;
  }
  return best == nullptr ? std::nullopt : std::optional(*best);
}

}  // namespace moestro

#include "common/tier/visits.h"

#include <algorithm>

namespace moestro::tier {

VisitIndex::VisitIndex(std::span<const Visit> visits, size_t keys) : visits_(keys) {
  for (size_t v = 0; v < visits.size(); ++v)
    for (const Key key : visits[v].keys) visits_[key].push_back(v);
}

size_t VisitIndex::next(Key key, size_t from) const {
  const auto& of = visits_[key];
  const auto it = std::ranges::lower_bound(of, from);
  return it == of.end() ? kNever : *it;
}

}  // namespace moestro::tier

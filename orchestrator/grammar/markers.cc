#include "orchestrator/grammar/markers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace moestro::grammar {

namespace {

/// Markers that may be under way, each with the number of its bytes that have been said; sorted.
using Begun = std::vector<std::pair<size_t, size_t>>;

/// What is under way behind one more byte. False: a marker has ended.
bool step(const std::vector<Marker>& markers, const Begun& fresh, const Begun& from, char byte, Begun& to) {
  to = fresh;
  for (const auto& [marker, said] : from) {
    const std::string& text = markers[marker].text;
    if (text[said] != byte) continue;
    if (said + 1 == text.size()) return false;
    to.emplace_back(marker, said + 1);
  }
  std::ranges::sort(to);
  return true;
}

}  // namespace

Markers::Markers(const std::vector<Marker>& markers) {
  Begun all, fresh;
  for (size_t i = 0; i < markers.size(); ++i) {
    all.emplace_back(i, 0);
    if (!markers[i].at_start) fresh.emplace_back(i, 0);
    ends_[static_cast<unsigned char>(markers[i].text.back())] = true;
  }
  std::map<Begun, State> known;
  std::vector<Begun> sets;
  const auto state_of = [&](const Begun& set) {
    const auto [at, added] = known.emplace(set, static_cast<State>(sets.size()));
    if (added) sets.push_back(set);
    return at->second;
  };
  state_of(all);
  inside_ = state_of(fresh);
  for (size_t i = 0; i < sets.size(); ++i) {
    table_.emplace_back();
    for (int byte = 0; byte < 256; ++byte) {
      Begun to;
      const bool open = step(markers, fresh, Begun(sets[i]), static_cast<char>(byte), to);
      table_[i][static_cast<size_t>(byte)] = open ? state_of(to) : kFound;
    }
  }
}

}  // namespace moestro::grammar

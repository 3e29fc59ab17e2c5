#include "orchestrator/tokenizer/code_point_set.h"

#include <algorithm>

namespace moestro::tok {

void CodePointSet::append(char32_t first, char32_t last) {
  if (!ranges_.empty() && ranges_.back().last + 1 >= first)
    ranges_.back().last = std::max(ranges_.back().last, last);
  else
    ranges_.push_back({first, last});
}

void CodePointSet::add(const CodePointSet& other) {
  std::vector<Range> sorted;
  sorted.reserve(ranges_.size() + other.ranges_.size());
  std::merge(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(), std::back_inserter(sorted),
             [](const Range& a, const Range& b) { return a.first < b.first; });
  ranges_.clear();
  for (const Range& range : sorted) append(range.first, range.last);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) out.append(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kCodePointMax) out.append(next, kCodePointMax);
  return out;
}

CodePointSet CodePointSet::intersection(const CodePointSet& other) const {
  CodePointSet outside = complement();
  outside.add(other.complement());
  return outside.complement();
}

bool CodePointSet::contains(char32_t c) const {
  const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), c,
                                      [](char32_t value, const Range& range) { return value < range.first; });
  return after != ranges_.begin() && c <= std::prev(after)->last;
}

CodePointBitmap::CodePointBitmap(const CodePointSet& set) : bits_(std::make_unique<std::bitset<kCodePointMax + 1>>()) {
  for (const auto& range : set.ranges()) {
    for (char32_t c = range.first; c <= range.last; ++c) bits_->set(c);
  }
}

}  // namespace moestro::tok

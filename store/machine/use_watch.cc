#include "store/machine/use_watch.h"

#include <algorithm>

#include "store/layout/pins_layout.h"

namespace moestro::store {
namespace {
constexpr double kParts = 16;  ///< UseWeight::kWhole
}

void UseTime::sample(uint64_t stamp, double uses) {
  if (!samples_.empty() && stamp <= samples_.back().stamp) return;
  const size_t count = samples_.size();
  if (count > 1 && uses <= samples_[count - 1].uses && samples_[count - 1].uses <= samples_[count - 2].uses) {
    samples_.back().stamp = stamp;  // nobody does anything: only the end of the idle time moves
    return;
  }
  if (count > 0) uses = std::max(uses, samples_.back().uses);
  if (samples_.size() == kSamplesMax) {
    size_t kept = 0;
    for (size_t i = 0; i < samples_.size(); i += 2) samples_[kept++] = samples_[i];
    samples_.resize(kept);
  }
  samples_.push_back({stamp, uses});
}

double UseTime::at(uint64_t stamp) const {
  const auto after = std::ranges::upper_bound(samples_, stamp, {}, &Sample::stamp);
  if (after == samples_.end()) return now();
  if (after == samples_.begin()) return after->uses;
  const Sample& before = *std::prev(after);
  const double part = static_cast<double>(stamp - before.stamp) / static_cast<double>(after->stamp - before.stamp);
  return before.uses + part * (after->uses - before.uses);
}

void UseWatch::resize(size_t entries) {
  seen_.resize(entries);
  stamps_.resize(entries);
}

void UseWatch::tick() { time_.sample(shared_.stamp_now(), static_cast<double>(shared_.uses_of_all()) / kParts); }

std::optional<policy::Use> UseWatch::news(uint32_t entry) {
  const UseNote note = shared_.uses(entry);
  const uint32_t added = (note.sixteenths - seen_[entry]) & PinWord::kUsesMask;
  if (added == 0) return std::nullopt;
  seen_[entry] = static_cast<uint16_t>(note.sixteenths & PinWord::kUsesMask);
  const bool scan = note.stamp <= stamps_[entry];
  stamps_[entry] = std::max(stamps_[entry], note.stamp);
  return policy::Use{scan ? now() : time_.at(note.stamp), added / kParts, scan};
}

void UseWatch::rebase() {
  for (uint32_t entry = 0; entry < seen_.size(); ++entry)
    seen_[entry] = static_cast<uint16_t>(shared_.uses(entry).sixteenths & PinWord::kUsesMask);
}

}  // namespace moestro::store

#include "store/arena/segment_allocator.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace moestro::store {

uint64_t SegmentAllocator::rounded(uint64_t length) {
  return std::max<uint64_t>((length + kGranule - 1) / kGranule * kGranule, kGranule);
}

uint64_t choose_segment_bytes(std::span<const SizeShare> sizes, uint64_t region_bytes) {
  constexpr uint64_t kMultiples = 64;
  const auto whole = [](uint64_t length) {
    return (length + SegmentAllocator::kGranule - 1) / SegmentAllocator::kGranule * SegmentAllocator::kGranule;
  };
  uint64_t longest = SegmentAllocator::kGranule, total = 0;
  std::set<uint64_t> lengths;
  for (const SizeShare& size : sizes) {
    longest = std::max(longest, whole(size.length));
    total += size.total_bytes;
    lengths.insert(whole(size.length));
  }
  if (lengths.empty()) return std::max(longest, whole(region_bytes / kMultiples));
  if (lengths.size() == 1) return longest;
  // What a candidate wastes, as a share of the region: the tails, weighted by how much of the memory each size is
  // likely to have, and half a segment for each class that is not full.
  const auto waste = [&](uint64_t segment) {
    double share = static_cast<double>(lengths.size()) * static_cast<double>(segment) / 2 /
                   static_cast<double>(std::max<uint64_t>(region_bytes, 1));
    for (const SizeShare& size : sizes)
      share += static_cast<double>(size.total_bytes) / static_cast<double>(std::max<uint64_t>(total, 1)) *
               static_cast<double>(segment % whole(size.length)) / static_cast<double>(segment);
    return share;
  };
  uint64_t best = longest;
  for (const uint64_t length : lengths)
    for (uint64_t n = std::max<uint64_t>(1, (longest + length - 1) / length);
         n <= std::max(kMultiples, longest / length + 1); ++n)
      if (n * length >= longest && n * length <= std::max(longest, region_bytes) && waste(n * length) < waste(best))
        best = n * length;
  return best;
}

SegmentAllocator::SegmentAllocator(uint64_t base, uint64_t size, uint64_t segment_bytes)
    : base_(base), segment_bytes_(rounded(segment_bytes)), segments_(size / segment_bytes_) {
  for (uint32_t i = 0; i < segments(); ++i) free_.insert(free_.end(), i);
}

uint32_t SegmentAllocator::span_of(uint64_t length) const {
  return static_cast<uint32_t>((rounded(length) + segment_bytes_ - 1) / segment_bytes_);
}

uint32_t SegmentAllocator::slots_of(uint64_t length) const {
  return static_cast<uint32_t>(span_of(length) * segment_bytes_ / rounded(length));
}

std::optional<uint32_t> SegmentAllocator::free_block(uint32_t span) const {
  if (span == 1) return free_.empty() ? std::nullopt : std::optional(*free_.rbegin());
  for (uint32_t block = segments() / span; block-- > 0;) {
    const uint32_t first = block * span;
    auto at = free_.lower_bound(first);
    uint32_t found = 0;
    while (found < span && at != free_.end() && *at == first + found) ++found, ++at;
    if (found == span) return first;
  }
  return std::nullopt;
}

void SegmentAllocator::open_block(uint32_t first, uint64_t slot_bytes) {
  for (uint32_t i = first; i < first + span_of(slot_bytes); ++i) {
    segments_[i].kind = Kind::kSlots, segments_[i].slot_bytes = slot_bytes, segments_[i].first = first;
    free_.erase(i);
  }
  segments_[first].keys.assign(slots_of(slot_bytes), kNobody);
  ++classes_[slot_bytes].blocks;
  classes_[slot_bytes].open.insert(first);
}

uint64_t SegmentAllocator::fill(uint32_t first, uint32_t slot, uint32_t key) {
  Segment& segment = segments_[first];
  segment.keys[slot] = key;
  used_bytes_ += segment.slot_bytes;
  if (++segment.used == segment.keys.size()) classes_[segment.slot_bytes].open.erase(first);
  return offset_of(first) + slot * segment.slot_bytes;
}

std::optional<uint64_t> SegmentAllocator::take(uint64_t length, uint32_t key) {
  const uint64_t slot_bytes = rounded(length);
  const auto own = classes_.find(slot_bytes);
  if (own == classes_.end() || own->second.open.empty()) {
    const auto first = free_block(span_of(length));
    if (!first) return std::nullopt;
    open_block(*first, slot_bytes);
  }
  const uint32_t first = *classes_[slot_bytes].open.rbegin();
  const auto& keys = segments_[first].keys;
  return fill(first, static_cast<uint32_t>(std::ranges::find(keys, kNobody) - keys.begin()), key);
}

bool SegmentAllocator::take_at(uint64_t offset, uint64_t length, uint32_t key) {
  const uint64_t slot_bytes = rounded(length);
  if (offset < base_ || (offset - base_) / segment_bytes_ >= segments() || slot_bytes > segments() * segment_bytes_)
    return false;
  const uint32_t span = span_of(length), first = static_cast<uint32_t>((offset - base_) / segment_bytes_) / span * span;
  if (first + span > segments() || (offset - offset_of(first)) % slot_bytes != 0) return false;
  const uint64_t slot = (offset - offset_of(first)) / slot_bytes;
  if (slot >= slots_of(length)) return false;
  const Segment& segment = segments_[first];
  if (segment.kind == Kind::kSlots) {
    if (segment.slot_bytes != slot_bytes || segment.first != first || segment.keys[slot] != kNobody) return false;
  } else {
    for (uint32_t i = first; i < first + span; ++i)
      if (!is_free(i)) return false;
    open_block(first, slot_bytes);
  }
  fill(first, static_cast<uint32_t>(slot), key);
  return true;
}

uint32_t& SegmentAllocator::key_at(uint64_t offset) {
  const auto index = static_cast<uint32_t>((offset - base_) / segment_bytes_);
  MOESTRO_CHECK(offset >= base_ && index < segments() && segments_[index].kind == Kind::kSlots,
                "a slot that was never taken");
  const uint32_t first = segments_[index].first;
  Segment& segment = segments_[first];
  const uint64_t slot = (offset - offset_of(first)) / segment.slot_bytes;
  MOESTRO_CHECK(offset == offset_of(first) + slot * segment.slot_bytes && segment.keys[slot] != kNobody,
                "a slot that is not taken any more");
  return segment.keys[slot];
}

void SegmentAllocator::rename(uint64_t offset, uint32_t key) { key_at(offset) = key; }

void SegmentAllocator::give_back(uint64_t offset) {
  key_at(offset) = kNobody;
  const uint32_t first = segments_[(offset - base_) / segment_bytes_].first;
  Segment& segment = segments_[first];
  const uint64_t slot_bytes = segment.slot_bytes;
  used_bytes_ -= slot_bytes;
  Class& own = classes_[slot_bytes];
  own.open.insert(first);
  if (--segment.used > 0) return;
  own.open.erase(first);
  if (--own.blocks == 0) classes_.erase(slot_bytes);
  for (uint32_t i = first; i < first + span_of(slot_bytes); ++i) {
    segments_[i] = Segment{};
    free_.insert(i);
  }
}

bool SegmentAllocator::lend(uint32_t first, uint32_t count) {
  for (uint32_t i = first; i < first + count; ++i)
    if (!is_free(i)) return false;
  for (uint32_t i = first; i < first + count; ++i) segments_[i].kind = Kind::kLent, free_.erase(i);
  lent_ += count;
  return true;
}

void SegmentAllocator::take_home(uint32_t segment) {
  MOESTRO_CHECK(segments_[segment].kind == Kind::kLent, "a segment taken home that was not lent");
  segments_[segment] = Segment{};
  free_.insert(segment);
  --lent_;
}

bool SegmentAllocator::has_others(uint64_t length) const {
  if (length == 0 || classes_.size() != 1) return !classes_.empty();
  return classes_.begin()->first != rounded(length);
}

uint32_t SegmentAllocator::free_slots(uint64_t length) const {
  const auto own = classes_.find(rounded(length));
  if (own == classes_.end()) return 0;
  size_t slots = 0;
  for (const uint32_t first : own->second.open) slots += segments_[first].keys.size() - segments_[first].used;
  return static_cast<uint32_t>(slots);
}

bool SegmentAllocator::occupants(uint32_t first, uint32_t count, uint64_t own_length,
                                 std::vector<Occupant>& found) const {
  found.clear();
  const uint64_t own = own_length == 0 ? 0 : rounded(own_length);
  std::optional<uint32_t> last;
  for (uint32_t i = first; i < first + count; ++i) {
    const Segment& segment = segments_[i];
    if (segment.kind == Kind::kLent) return false;
    if (segment.kind == Kind::kFree || last == segment.first) continue;
    if (segment.slot_bytes == own) return false;
    last = segment.first;
    for (const uint32_t key : segments_[segment.first].keys)
      if (key != kNobody) found.push_back({key, segment.first, segment.slot_bytes});
  }
  return true;
}

uint64_t SegmentAllocator::waste_bound(std::span<const uint64_t> lengths) const {
  uint64_t tail = 0, open = 0;
  for (const uint64_t length : lengths) {
    const uint32_t span = span_of(length);
    tail = std::max(tail, (span * segment_bytes_ % rounded(length) + span - 1) / span);
    open += span * segment_bytes_;
  }
  return (segments() - lent_) * tail + open;
}

}  // namespace moestro::store

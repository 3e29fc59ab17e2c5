#include "store/arena/segment_allocator.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace moestro::store {

uint64_t SegmentAllocator::rounded(uint64_t length) { return std::max<uint64_t>((length + kGranule - 1) / kGranule * kGranule, kGranule); }

uint64_t choose_segment_bytes(std::span<const SizeShare> sizes, uint64_t region_bytes) {
  constexpr uint64_t kMultiples = 64;
  const auto whole = [](uint64_t length) { return (length + SegmentAllocator::kGranule - 1) / SegmentAllocator::kGranule * SegmentAllocator::kGranule; };
  uint64_t longest = SegmentAllocator::kGranule, total = 0;
  std::set<uint64_t> lengths;
  for (const SizeShare& size : sizes) {
    longest = std::max(longest, whole(size.length));
    total += size.total_bytes;
    lengths.insert(whole(size.length));
  }
  if (lengths.size() <= 1) return longest;
  // What a candidate wastes, as a share of the region: the tails, weighted by how much of the memory each size is likely to have, and
  // half a segment for each class that is not full.
  const auto waste = [&](uint64_t segment) {
    double share = static_cast<double>(lengths.size()) * static_cast<double>(segment) / 2 / static_cast<double>(std::max<uint64_t>(region_bytes, 1));
    for (const SizeShare& size : sizes)
      share += static_cast<double>(size.total_bytes) / static_cast<double>(std::max<uint64_t>(total, 1)) * static_cast<double>(segment % whole(size.length)) /
               static_cast<double>(segment);
    return share;
  };
  uint64_t best = longest;
  for (const uint64_t length : lengths)
    for (uint64_t n = std::max<uint64_t>(1, (longest + length - 1) / length); n <= std::max(kMultiples, longest / length + 1); ++n)
      if (n * length >= longest && n * length <= std::max(longest, region_bytes) && waste(n * length) < waste(best)) best = n * length;
  return best;
}

SegmentAllocator::SegmentAllocator(uint64_t base, uint64_t size, uint64_t segment_bytes, uint64_t piece_bytes)
    : base_(base), segment_bytes_(rounded(segment_bytes)), piece_bytes_(piece_bytes), region_bytes_(size), segments_(size / segment_bytes_) {
  for (uint32_t i = 0; i < segments(); ++i) free_.insert(i);
}

uint32_t SegmentAllocator::span_of(uint64_t length) const {
  return static_cast<uint32_t>((rounded(length) + segment_bytes_ - 1) / segment_bytes_);
}

uint32_t SegmentAllocator::slots_of(uint64_t length) const {
  return static_cast<uint32_t>(span_of(length) * segment_bytes_ / rounded(length));
}

/// Slots follow one another; where the tail has room for it, they go on behind a border of pieces that one would lie across.
uint64_t SegmentAllocator::slot_offset(uint32_t first, uint64_t slot_bytes, uint32_t slot) const {
  const uint64_t begin = base_ + first * segment_bytes_, block = span_of(slot_bytes) * segment_bytes_;
  const uint64_t border = (begin / piece_bytes_ + 1) * piece_bytes_;
  const uint64_t offset = begin + slot * slot_bytes;
  if (border >= begin + block || offset + slot_bytes <= border) return offset;
  const uint64_t before = (border - begin) / slot_bytes * slot_bytes;  // slots that end before the border
  const uint64_t shift = border - begin - before;
  return shift <= block % slot_bytes ? offset + shift : offset;
}

std::optional<uint32_t> SegmentAllocator::free_block(uint32_t span) const {
  if (span == 1) return free_.empty() ? std::nullopt : std::optional(*free_.begin());
  for (auto at = free_.begin(); at != free_.end();) {
    const uint32_t first = (*at + span - 1) / span * span;
    uint32_t found = 0;
    for (auto next = free_.lower_bound(first); next != free_.end() && *next == first + found && found < span; ++next) ++found;
    if (found == span) return first;
    at = free_.lower_bound(std::max(first + found, *at + 1));
  }
  return std::nullopt;
}

void SegmentAllocator::open_block(uint32_t first, uint64_t slot_bytes) {
  for (uint32_t i = 0; i < span_of(slot_bytes); ++i) {
    segments_[first + i].slot_bytes = slot_bytes;
    segments_[first + i].first = first;
    free_.erase(first + i);
  }
  segments_[first].keys.assign(slots_of(slot_bytes), kNobody);
  open_[slot_bytes].insert(first);
}

uint64_t SegmentAllocator::fill(uint32_t first, uint32_t slot, uint32_t key) {
  Segment& segment = segments_[first];
  segment.keys[slot] = key;
  used_bytes_ += segment.slot_bytes;
  if (++segment.used == segment.keys.size()) open_[segment.slot_bytes].erase(first);
  return slot_offset(first, segment.slot_bytes, slot);
}

std::optional<uint64_t> SegmentAllocator::take(uint64_t length, uint32_t key) {
  const uint64_t slot_bytes = rounded(length);
  if (open_[slot_bytes].empty()) {
    const auto first = free_block(span_of(length));
    if (!first) return std::nullopt;
    open_block(*first, slot_bytes);
  }
  const uint32_t first = *open_[slot_bytes].begin();
  const auto& keys = segments_[first].keys;
  return fill(first, static_cast<uint32_t>(std::ranges::find(keys, kNobody) - keys.begin()), key);
}

bool SegmentAllocator::take_at(uint64_t offset, uint64_t length, uint32_t key) {
  const uint64_t slot_bytes = rounded(length);
  if (offset < base_ || (offset - base_) / segment_bytes_ >= segments()) return false;
  const uint32_t span = span_of(length), first = static_cast<uint32_t>((offset - base_) / segment_bytes_) / span * span;
  if (first + span > segments()) return false;
  uint32_t slot = 0;
  while (slot < slots_of(length) && slot_offset(first, slot_bytes, slot) != offset) ++slot;
  if (slot == slots_of(length)) return false;
  for (uint32_t i = 0; i < span; ++i)
    if (segments_[first + i].slot_bytes != 0 && (segments_[first + i].slot_bytes != slot_bytes || segments_[first + i].first != first)) return false;
  const bool fresh = segments_[first].slot_bytes == 0;
  if (!fresh && segments_[first].keys[slot] != kNobody) return false;
  for (uint32_t i = 0; fresh && i < span; ++i)
    if (!free_.contains(first + i)) return false;
  if (fresh) open_block(first, slot_bytes);
  fill(first, slot, key);
  return true;
}

void SegmentAllocator::give_back(uint64_t offset) {
  const auto index = static_cast<uint32_t>((offset - base_) / segment_bytes_);
  const uint32_t first = segments_[index].first;
  Segment& segment = segments_[first];
  const uint64_t slot_bytes = segment.slot_bytes;
  MOESTRO_CHECK(offset >= base_ && index < segments() && slot_bytes != 0, "a slot given back that was never taken");
  auto slot = static_cast<uint32_t>((offset - base_ - first * segment_bytes_) / slot_bytes);
  MOESTRO_CHECK(slot_offset(first, slot_bytes, slot) == offset && segment.keys[slot] != kNobody, "a slot given back twice");
  segment.keys[slot] = kNobody;
  used_bytes_ -= slot_bytes;
  open_[slot_bytes].insert(first);
  if (--segment.used > 0) return;
  open_[slot_bytes].erase(first);
  for (uint32_t i = 0; i < span_of(slot_bytes); ++i) {
    segments_[first + i] = Segment{};
    free_.insert(first + i);
  }
}

bool SegmentAllocator::occupants(uint64_t length, uint32_t block, std::vector<uint32_t>& keys) const {
  keys.clear();
  const uint32_t span = span_of(length);
  for (uint32_t i = block * span; i < (block + 1) * span; ++i) {
    const Segment& segment = segments_[i];
    if (segment.slot_bytes == rounded(length)) return false;
    if (segment.slot_bytes == 0 || (i > block * span && segment.first == segments_[i - 1].first && segments_[i - 1].slot_bytes != 0)) continue;
    for (const uint32_t key : segments_[segment.first].keys)
      if (key != kNobody) keys.push_back(key);
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
  return segments() * tail + open + (region_bytes_ - segments() * segment_bytes_);
}

}  // namespace moestro::store

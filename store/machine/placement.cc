#include "store/machine/placement.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::store {
namespace {
constexpr uint64_t kPlacementGranule = SegmentAllocator::kGranule;
uint64_t whole_granules(uint64_t bytes) { return bytes / kPlacementGranule * kPlacementGranule; }
}  // namespace

Placement::Placement(uint64_t arena_bytes, uint64_t segment_bytes)
    : arena_bytes_(whole_granules(arena_bytes)),
      segments_(arena_bytes_ % rounded(segment_bytes), arena_bytes_ - arena_bytes_ % rounded(segment_bytes),
                segment_bytes),
      dense_(arena_bytes_, kPlacementGranule) {
  const uint64_t rest = segments_.base();
  if (arena_bytes_ > rest) MOESTRO_CHECK(dense_.take(rest, arena_bytes_ - rest), "a new allocator is free");
}

uint64_t Placement::rounded(uint64_t length) {
  return std::max<uint64_t>((length + kPlacementGranule - 1) / kPlacementGranule * kPlacementGranule,
                            kPlacementGranule);
}

uint32_t Placement::segment_at(uint64_t offset) const {
  return static_cast<uint32_t>((offset - segments_.base()) / segments_.segment_bytes());
}

std::optional<uint64_t> Placement::place(bool dense, uint64_t length, uint32_t key) {
  return dense ? place_dense(length) : segments_.take(length, key);
}

std::optional<uint64_t> Placement::place_dense(uint64_t length) {
  auto offset = dense_.allocate(length, RangeAllocator::End::kLow);
  if (!offset && lend_run(rounded(length))) offset = dense_.allocate(length, RangeAllocator::End::kLow);
  if (offset) dense_bytes_ += rounded(length);
  return offset;
}

/// Lends the lowest free segments beside each other that, with what is free for dense weights just below and above
/// them, have `length` bytes.
bool Placement::lend_run(uint64_t length) {
  const uint64_t segment = segments_.segment_bytes();
  for (uint32_t first = 0; first < segments_.segments(); ++first) {
    const uint64_t begin = segments_.offset_of(first), below = dense_.free_before(begin);
    uint64_t run = below;
    for (uint32_t last = first; run < length && last < segments_.segments() && segments_.is_free(last); ++last) {
      run += segment;
      const uint64_t end = begin + (last - first + 1) * segment;
      if (run + dense_.free_after(end) < length) continue;
      MOESTRO_CHECK(segments_.lend(first, last - first + 1), "free segments");
      dense_.free(begin, end - begin);
      return true;
    }
  }
  return false;
}

bool Placement::claim(bool dense, uint64_t offset, uint64_t length, uint32_t key) {
  if (!dense) return segments_.take_at(offset, length, key);
  const uint64_t need = rounded(length);
  if (offset > arena_bytes_ || need > arena_bytes_ - offset) return false;
  const uint64_t end = offset + need;
  if (end > segments_.base())
    for (uint32_t i = segment_at(std::max(offset, segments_.base())); i <= segment_at(end - 1); ++i)
      if (segments_.lend(i, 1)) dense_.free(segments_.offset_of(i), segments_.segment_bytes());
  if (!dense_.take(offset, length)) return take_home(offset, need), false;
  dense_bytes_ += need;
  return true;
}

void Placement::hand_over(bool dense, uint64_t offset, uint32_t key) {
  if (!dense) segments_.rename(offset, key);
}

void Placement::give_back(bool dense, uint64_t offset, uint64_t length) {
  if (!dense) return segments_.give_back(offset);
  dense_.free(offset, length);
  dense_bytes_ -= rounded(length);
  take_home(offset, rounded(length));
}

/// Segments that dense weights leave empty are for experts again.
void Placement::take_home(uint64_t offset, uint64_t length) {
  const uint64_t end = offset + length;
  if (end <= segments_.base()) return;
  for (uint32_t i = segment_at(std::max(offset, segments_.base())); i <= segment_at(end - 1); ++i)
    if (dense_.take(segments_.offset_of(i), segments_.segment_bytes())) segments_.take_home(i);
}

std::optional<uint64_t> Placement::free_range(uint64_t length) const {
  uint64_t run = 0;
  for (uint32_t i = segments_.segments(); i-- > 0;) {
    run = segments_.is_free(i) ? run + segments_.segment_bytes() : 0;
    if (run >= length) return segments_.offset_of(i);
  }
  return dense_.find(length);
}

/// A block of one length lies in one block of another that is at least as long, or across at most so many shorter ones.
uint64_t Placement::pin_bytes_min(const std::set<uint64_t>& lengths) const {
  std::set<uint64_t> slots;
  std::set<uint32_t> spans;
  for (const uint64_t length : lengths) slots.insert(rounded(length)), spans.insert(span_of(length));
  if (slots.size() <= 1) return 0;
  uint64_t segments = 1;
  for (const uint64_t pinned : spans)
    for (const uint64_t wanted : spans)
      segments = std::max(segments, wanted * (pinned == 1                       ? 1
                                              : wanted == 1 || wanted == pinned ? (pinned + wanted - 1) / wanted
                                                                                : (pinned - 1) / wanted + 2));
  return segments * segments_.segment_bytes();
}

/// Each blob of dense weights takes at most the segments that it spans; put one into what is left of another's, all of
/// them together leave no two half empty.
uint64_t Placement::pin_bytes_max(const std::set<uint64_t>& lengths, std::span<const uint64_t> dense_to_come) const {
  uint64_t spans = 0, bytes = 0;
  for (const uint64_t length : dense_to_come) spans += span_of(length), bytes += rounded(length);
  const uint64_t packed =
      bytes == 0 ? 0 : 2 * ((bytes + segments_.segment_bytes() - 1) / segments_.segment_bytes()) + 1;
  const uint64_t lost = segments_.lent() + std::min(spans, packed),
                 left = segments_.segments() > lost ? segments_.segments() - lost : 0;
  uint64_t longest = 1;
  for (const uint64_t length : lengths) longest = std::max(longest, length);
  const uint64_t span = span_of(longest);
  if (pin_bytes_min(lengths) == 0) return left / span * segments_.slots_of(longest) * rounded(longest);
  return left >= span ? (left - (span - 1)) * segments_.segment_bytes() : 0;
}

}  // namespace moestro::store

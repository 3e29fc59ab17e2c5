#include "store/arena/range_allocator.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::store {

RangeAllocator::RangeAllocator(uint64_t size, uint64_t granule)
    : granule_(granule), free_bytes_(size / granule * granule) {
  if (free_bytes_ > 0) free_[0] = free_bytes_;
}

std::optional<uint64_t> RangeAllocator::allocate(uint64_t length, End end) {
  const uint64_t need = std::max(rounded(length), granule_);
  auto fits = [need](const auto& range) { return range.second >= need; };
  auto found = free_.end();
  if (end == End::kLow) {
    found = std::find_if(free_.begin(), free_.end(), fits);
  } else if (auto last = std::find_if(free_.rbegin(), free_.rend(), fits); last != free_.rend()) {
    found = std::prev(last.base());
  }
  if (found == free_.end()) return std::nullopt;
  const uint64_t left = found->second - need;
  const uint64_t offset = end == End::kLow ? found->first : found->first + left;
  const uint64_t rest = end == End::kLow ? offset + need : found->first;
  free_.erase(found);
  if (left > 0) free_[rest] = left;
  free_bytes_ -= need;
  return offset;
}

bool RangeAllocator::take(uint64_t offset, uint64_t length) {
  if (offset % granule_ != 0 || length > free_bytes_) return false;
  const uint64_t need = std::max(rounded(length), granule_);
  auto after = free_.upper_bound(offset);
  if (after == free_.begin()) return false;
  const auto [begin, bytes] = *std::prev(after);
  if (offset - begin > bytes || need > bytes - (offset - begin)) return false;
  free_.erase(std::prev(after));
  if (offset > begin) free_[begin] = offset - begin;
  if (const uint64_t end = offset + need; end < begin + bytes) free_[end] = begin + bytes - end;
  free_bytes_ -= need;
  return true;
}

void RangeAllocator::free(uint64_t offset, uint64_t length) {
  length = std::max(rounded(length), granule_);
  auto next = free_.lower_bound(offset);
  MOESTRO_CHECK(next == free_.end() || offset + length <= next->first, "a range given back twice");
  free_bytes_ += length;
  if (next != free_.end() && next->first == offset + length) {
    length += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    MOESTRO_CHECK(before->first + before->second <= offset, "a range given back twice");
    if (before->first + before->second == offset) {
      before->second += length;
      return;
    }
  }
  free_[offset] = length;
}

std::optional<uint64_t> RangeAllocator::find(uint64_t length) const {
  for (const auto& [offset, bytes] : free_)
    if (bytes >= length) return offset;
  return std::nullopt;
}

uint64_t RangeAllocator::free_before(uint64_t end) const {
  auto after = free_.lower_bound(end);
  if (after == free_.begin()) return 0;
  const auto [begin, bytes] = *std::prev(after);
  return begin + bytes == end ? bytes : 0;
}

uint64_t RangeAllocator::free_after(uint64_t begin) const {
  const auto at = free_.find(begin);
  return at == free_.end() ? 0 : at->second;
}

uint64_t RangeAllocator::largest_free() const {
  uint64_t largest = 0;
  for (const auto& [offset, length] : free_) largest = std::max(largest, length);
  return largest;
}

}  // namespace moestro::store

#pragma once
// The arena, cut into equal segments. A segment holds blobs of one length (its class) in slots, and may hold another
// class when it is empty. So an empty segment has room for a blob of any class, and blobs never have to be moved to
// make room: there are no holes of a wrong size.
//
//   base                                                            base + segments * segment_bytes = end of the arena
//   | lent (dense weights) | lent | free | slot | slot | tail | slot | slot | tail |
//                                        segment of class A    segment of class A
//
// A blob longer than a segment takes a block of consecutive segments, which begins at a multiple of their number.
// Segments can be lent to an allocator that divides them in another way. Unused bytes are the tail of each block (less
// than a slot; 0 if the slot divides the block) and, for each class, the free slots of one block. `waste_bound()` gives
// their maximum.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace moestro::store {

/// The total bytes of all blobs of one length.
struct SizeShare {
  uint64_t length = 0, total_bytes = 0;
};

/// The segment size for a region that holds these blobs: at least the longest, and chosen so that little is wasted.
/// With one length it is that length. All rounded to 4 KiB.
uint64_t choose_segment_bytes(std::span<const SizeShare> sizes, uint64_t region_bytes);

class SegmentAllocator {
 public:
  static constexpr uint64_t kGranule = 4096;
  static constexpr uint32_t kNobody = UINT32_MAX;

  SegmentAllocator(uint64_t base, uint64_t size, uint64_t segment_bytes);

  /// Takes a slot for a blob of `length` bytes that belongs to `key`: in a block of its class, otherwise in free
  /// segments from the high end. nullopt if there is neither.
  std::optional<uint64_t> take(uint64_t length, uint32_t key);
  /// Takes exactly the slot at `offset`, as take() with the same geometry gave it. False if there is no such slot, or
  /// it is not free.
  bool take_at(uint64_t offset, uint64_t length, uint32_t key);
  void give_back(uint64_t offset);
  /// The slot at `offset` belongs to `key` now.
  void rename(uint64_t offset, uint32_t key);
  /// Lends these segments. False, and nothing is lent, if they are not all free.
  bool lend(uint32_t first, uint32_t count);
  void take_home(uint32_t segment);

  uint32_t segments() const { return static_cast<uint32_t>(segments_.size()); }
  uint64_t segment_bytes() const { return segment_bytes_; }
  uint64_t base() const { return base_; }
  uint64_t offset_of(uint32_t segment) const { return base_ + segment * segment_bytes_; }
  uint32_t lent() const { return lent_; }
  uint32_t free_segments() const { return static_cast<uint32_t>(free_.size()); }
  bool is_free(uint32_t segment) const { return free_.contains(segment); }
  /// Segments that a blob of this length occupies; slots of this length in that many.
  uint32_t span_of(uint64_t length) const;
  uint32_t slots_of(uint64_t length) const;
  /// Bytes in slots that are taken.
  uint64_t used_bytes() const { return used_bytes_; }
  /// The most bytes of segments that are not lent that are unused when take() finds no room, whatever happened before,
  /// as long as slots that are freed one by one are taken again by their class: the tails, and one block per class.
  uint64_t waste_bound(std::span<const uint64_t> lengths) const;

  /// Whether some segment belongs to a class other than that of `length` (0: to any class).
  bool has_others(uint64_t length) const;
  uint32_t free_slots(uint64_t length) const;
  /// The blobs that must be evicted before [first, first + count) is free, with their lengths. False if part of it is
  /// lent, or already belongs to the class of `own_length`, so that nothing would be gained (0: no class).
  struct Occupant {
    uint32_t key = 0, block = 0;
    uint64_t slot_bytes = 0;
  };
  bool occupants(uint32_t first, uint32_t count, uint64_t own_length, std::vector<Occupant>& found) const;

 private:
  enum class Kind : uint8_t { kFree, kSlots, kLent };
  struct Segment {
    Kind kind = Kind::kFree;
    uint32_t first = 0;          ///< of its block
    uint32_t used = 0;           ///< slots, in the first of a block
    uint64_t slot_bytes = 0;     ///< class
    std::vector<uint32_t> keys;  ///< by slot, in the first of a block
  };
  struct Class {
    uint32_t blocks = 0;
    std::set<uint32_t> open;  ///< first segments of blocks that have free slots
  };
  static uint64_t rounded(uint64_t length);
  std::optional<uint32_t> free_block(uint32_t span) const;
  void open_block(uint32_t first, uint64_t slot_bytes);
  uint64_t fill(uint32_t first, uint32_t slot, uint32_t key);
  uint32_t& key_at(uint64_t offset);

  uint64_t base_, segment_bytes_, used_bytes_ = 0;
  uint32_t lent_ = 0;
  std::vector<Segment> segments_;
  std::set<uint32_t> free_;
  std::map<uint64_t, Class> classes_;  ///< by slot_bytes; those that have blocks
};

}  // namespace moestro::store

#pragma once
// The arena, cut into equal segments. A segment holds blobs of one length (its class) in slots, and is free to hold
// another class once it is empty. So whatever the lengths of the blobs, an empty segment is room for any of them, and
// nothing ever has to be moved to make room: holes of a wrong size cannot come about.
//
//   base                                                            base + segments * segment_bytes = end of the arena
//   | lent (dense weights) | lent | free | slot | slot | tail | slot | slot | tail |
//                                        segment of class A    segment of class A
//
// A blob longer than a segment takes a block of consecutive ones, which begins at a multiple of its own number.
// Segments can be lent to someone who cuts them up otherwise. Bytes that hold nothing: the tail of each block (less
// than a slot; 0 where the slot divides it) and for each class the free slots of one block; `waste_bound()` says how
// much that can be.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace moestro::store {

/// How many bytes of blobs of one length there are.
struct SizeShare {
  uint64_t length = 0, total_bytes = 0;
};

/// The segment size for a region that is to hold these: at least the longest, and such that little is wasted. With one
/// length it is that length. All rounded to 4 KiB.
uint64_t choose_segment_bytes(std::span<const SizeShare> sizes, uint64_t region_bytes);

class SegmentAllocator {
 public:
  static constexpr uint64_t kGranule = 4096;
  static constexpr uint32_t kNobody = UINT32_MAX;

  SegmentAllocator(uint64_t base, uint64_t size, uint64_t segment_bytes);

  /// A slot for a blob of `length` bytes that belongs to `key`: in a block of its class, else in free segments, from
  /// the high end; none if there is neither.
  std::optional<uint64_t> take(uint64_t length, uint32_t key);
  /// The slot at `offset` exactly, as an earlier take() of the same geometry gave it; false if that is not such a
  /// place, or not free.
  bool take_at(uint64_t offset, uint64_t length, uint32_t key);
  void give_back(uint64_t offset);
  /// The slot at `offset` belongs to `key` now.
  void rename(uint64_t offset, uint32_t key);
  /// Someone else's from now on; false, and nothing is lent, if they are not all free.
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
  /// At most so many bytes of what is not lent hold nothing when take() finds no room, whatever came before, as long as
  /// slots that are given back singly are taken again by their class: the tails, and one block a class.
  uint64_t waste_bound(std::span<const uint64_t> lengths) const;

  /// Whether some segment belongs to another class than that of `length` (0: to any).
  bool has_others(uint64_t length) const;
  uint32_t free_slots(uint64_t length) const;
  /// Who would have to go before [first, first + count) is free, each with its blob's length. False if part of it is
  /// lent, or belongs to the class of `own_length` already and is no gain (0: no class).
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

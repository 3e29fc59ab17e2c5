#pragma once
// The expert part of the arena, cut into equal segments. A segment holds blobs of one length (its class) in slots, and is free to hold
// another class once it is empty. So whatever the sizes of the blobs, an empty segment is room for any of them, and nothing ever has to
// be moved to make room: holes of a wrong size cannot come about.
//
//   base                                                          base + segments * segment_bytes
//   | slot | slot | slot | tail | slot | slot | slot | tail | free |
//   segment of class A            segment of class A
//
// A blob longer than a segment takes a block of consecutive ones, which begins at a multiple of its own number. Bytes that hold nothing:
// the tail of each segment (less than a slot; 0 where the slot divides the segment), what is left of the region, and for each class the
// free slots of segments that are not full. `waste_bound()` says how much that can be.

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

/// The segment size for a region that is to hold these: at least the longest, and such that little is wasted. With one length it is
/// that length. All rounded to 4 KiB.
uint64_t choose_segment_bytes(std::span<const SizeShare> sizes, uint64_t region_bytes);

class SegmentAllocator {
 public:
  static constexpr uint64_t kGranule = 4096;
  static constexpr uint32_t kNobody = UINT32_MAX;

  /// `piece_bytes`: slots lie across a multiple of it only where that costs a slot (readers register memory in such pieces).
  SegmentAllocator(uint64_t base, uint64_t size, uint64_t segment_bytes, uint64_t piece_bytes = 1ULL << 30);

  /// A slot for a blob of `length` bytes that belongs to `key`: in a segment of its class, else in free ones; none if there is neither.
  std::optional<uint64_t> take(uint64_t length, uint32_t key);
  /// The slot at `offset` exactly, as an earlier take() of the same geometry gave it; false if that is not such a place, or not free.
  bool take_at(uint64_t offset, uint64_t length, uint32_t key);
  void give_back(uint64_t offset);

  uint32_t segments() const { return static_cast<uint32_t>(segments_.size()); }
  uint64_t segment_bytes() const { return segment_bytes_; }
  uint32_t free_segments() const { return static_cast<uint32_t>(free_.size()); }
  uint64_t base() const { return base_; }
  /// Segments that a blob of this length occupies; slots of this length in that many.
  uint32_t span_of(uint64_t length) const;
  uint32_t slots_of(uint64_t length) const;
  /// Bytes in slots that are taken.
  uint64_t used_bytes() const { return used_bytes_; }
  /// At most so many bytes hold nothing when a take() for one class finds no room, whatever came before, as long as slots that are
  /// given back singly are taken again by their class: tails, the rest of the region, and one segment (or block) a class.
  uint64_t waste_bound(std::span<const uint64_t> lengths) const;

  /// Places where a blob of `length` could lie if they were empty.
  uint32_t blocks(uint64_t length) const { return segments() / span_of(length); }
  /// Who would have to go. False if the block already belongs to the class of `length`: then it is no gain.
  bool occupants(uint64_t length, uint32_t block, std::vector<uint32_t>& keys) const;

 private:
  struct Segment {
    uint64_t slot_bytes = 0;      ///< class; 0: free
    uint32_t first = 0;           ///< of its block
    uint32_t used = 0;            ///< slots, in the first of a block
    std::vector<uint32_t> keys;   ///< by slot, in the first of a block
  };
  static uint64_t rounded(uint64_t length);
  uint64_t slot_offset(uint32_t first, uint64_t slot_bytes, uint32_t slot) const;
  std::optional<uint32_t> free_block(uint32_t span) const;
  void open_block(uint32_t first, uint64_t slot_bytes);
  uint64_t fill(uint32_t first, uint32_t slot, uint32_t key);

  uint64_t base_, segment_bytes_, piece_bytes_, region_bytes_, used_bytes_ = 0;
  std::vector<Segment> segments_;
  std::set<uint32_t> free_;
  std::map<uint64_t, std::set<uint32_t>> open_;  ///< class -> first segments of blocks that have free slots
};

}  // namespace moestro::store

#pragma once
// Where blobs are in the arena. Experts are in segments (store/arena/segment_allocator.h), which end where the arena
// ends. Dense weights grow from the low end, in the rest below the first segment and in segments that are lent to them.
//
//   0                                                                                     arena_bytes
//   | rest | dense weights ........ | segment | segment | segment | segment | ... | segment |
//
// Which blobs always find room, so that workers can be limited to those (model_shares.cc does so):
//
// Pins of other workers cannot keep a blob from being placed as long as there are fewer pins than blocks of its length.
// The reason: every blob is in one block, and only pins keep a block from being emptied (reads in flight end by
// themselves). So with experts of several lengths, each pin counts as a whole block of the longest, `pin_bytes_min()`,
// however short the blob. With one length it counts as its own length. The exception: dense weights longer than a
// segment, of a pack that is added while others are used, need adjacent segments, and lasting pins can keep free
// segments apart.
//
// At most so many bytes are unused while a blob waits for room that evicting would not make:
//   one length   less than one expert (the rest below the first segment), and less than one where dense weights end in
//                a segment
//   several      SegmentAllocator::waste_bound(): the tails, and one block per class; everything else is pinned

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "store/arena/range_allocator.h"
#include "store/arena/segment_allocator.h"

namespace moestro::store {

class Placement {
 public:
  /// `segment_bytes`: a multiple of 4 KiB, at most `arena_bytes`.
  Placement(uint64_t arena_bytes, uint64_t segment_bytes);

  static uint64_t rounded(uint64_t length);

  /// Takes a place for it; nullopt if there is no free room.
  std::optional<uint64_t> place(bool dense, uint64_t length, uint32_t key);
  /// Takes exactly the place that a store of the same geometry gave it. False: there is no such place, or it is not
  /// free.
  bool claim(bool dense, uint64_t offset, uint64_t length, uint32_t key);
  void give_back(bool dense, uint64_t offset, uint64_t length);
  /// The blob at this place belongs to another key now.
  void hand_over(bool dense, uint64_t offset, uint32_t key);

  uint64_t used_bytes() const { return segments_.used_bytes() + dense_bytes_; }
  const SegmentAllocator& segments() const { return segments_; }
  /// Offset of `length` bytes that are free now; they stay free.
  std::optional<uint64_t> free_range(uint64_t length) const;
  /// Adjacent segments that a blob needs: of its class, or (dense) lent.
  uint32_t span_of(uint64_t length) const { return segments_.span_of(length); }
  /// Bytes of a block for blobs of this length.
  uint64_t block_bytes(uint64_t length) const { return span_of(length) * segments_.segment_bytes(); }

  /// What each pinned expert counts at least, if experts of these lengths are served. 0 for a single length.
  uint64_t pin_bytes_min(const std::set<uint64_t>& lengths) const;
  /// The maximum for all workers' pins together, if dense weights of these lengths must still be placed.
  uint64_t pin_bytes_max(const std::set<uint64_t>& lengths, std::span<const uint64_t> dense_to_come) const;

 private:
  std::optional<uint64_t> place_dense(uint64_t length);
  bool lend_run(uint64_t length);
  void take_home(uint64_t offset, uint64_t length);
  uint32_t segment_at(uint64_t offset) const;

  uint64_t arena_bytes_;
  SegmentAllocator segments_;
  RangeAllocator dense_;  ///< free: the rest, and what is free of the segments lent
  uint64_t dense_bytes_ = 0;
};

}  // namespace moestro::store

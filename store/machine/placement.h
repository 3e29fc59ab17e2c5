#pragma once
// Where blobs lie in the arena: experts in segments (store/arena/segment_allocator.h), which end where the arena ends;
// dense weights from the low end up, in the rest below the first segment and in segments that are lent to them.
//
//   0                                                                                     arena_bytes
//   | rest | dense weights ........ | segment | segment | segment | segment | ... | segment |
//
// What cannot be placed is named here, so that workers can be kept from it (model_shares.cc does so):
//
// No pins of others keep a blob from being placed, as long as they are fewer than blocks of its length. For every blob
// lies in one block, and pins are what keeps a block from being emptied (reads under way end by themselves). So with
// experts of several lengths each pin counts as a whole block of the longest, `pin_bytes_min()`, however short the
// blob; with one length it counts as what it is. The exception: dense weights longer than a segment, of a pack that is
// added while others are used, need segments beside each other, which pins that stay can keep apart.
//
// Worst case, in bytes, of what holds nothing while a blob waits for room that evicting would not make:
//   one length      less than one expert (the rest below the first segment), and less than one where dense weights end
//   in a segment several         SegmentAllocator::waste_bound(): the tails, and one block a class; what is pinned is
//   all there is besides

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

  /// Where it lies from now on; none if there is no room that is free.
  std::optional<uint64_t> place(bool dense, uint64_t length, uint32_t key);
  /// The very place that a store of the same geometry gave it. False: it is not one, or not free.
  bool claim(bool dense, uint64_t offset, uint64_t length, uint32_t key);
  void give_back(bool dense, uint64_t offset, uint64_t length);
  /// What lies there belongs to another key now.
  void hand_over(bool dense, uint64_t offset, uint32_t key);

  uint64_t used_bytes() const { return segments_.used_bytes() + dense_bytes_; }
  const SegmentAllocator& segments() const { return segments_; }
  /// Where `length` bytes hold nothing now; they stay free.
  std::optional<uint64_t> free_range(uint64_t length) const;
  /// Segments that a blob needs beside each other: of its class, or (dense) lent.
  uint32_t span_of(uint64_t length) const { return segments_.span_of(length); }
  /// A block of this length, in bytes.
  uint64_t block_bytes(uint64_t length) const { return span_of(length) * segments_.segment_bytes(); }

  /// As what each pinned expert counts at least, if experts of these lengths are served: 0 for one length.
  uint64_t pin_bytes_min(const std::set<uint64_t>& lengths) const;
  /// What workers' pins may count together, if dense weights of these lengths are still to be placed.
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

#pragma once
// The two files of a worker slot. `pins/SLOT` is written by the worker that holds the slot (the store removes it when
// that worker is gone). `bell/SLOT` is written by the store only.
//
// The epoch in both is that of the store that made the files. A store that adopts them leaves it unchanged.
//
//   pins/SLOT  0     | magic | version | entries | epoch |             PinsHeader, one page
//              64    | uses | hits | misses |
//              4096  | word of table entry 0 | of entry 1 | ...        8 bytes each, 8 to a cache line: there is only
//                                                                      one writer
//
//   bell/SLOT  0     | magic | version | ring_entries | epoch |        BellHeader, one page
//              64    | doorbell |                                      futex: grows with every completion
//              128   | head |                                          completions ever written
//              192   | incarnation | model | client | pack |           the slot's holder, for a store that adopts it
//              4096  | completion 0 | ... | completion kBellRing-1 |   {outcome, table entry}; number n is at
//                                                                      n % kBellRing

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "store/layout/table_layout.h"

namespace moestro::store {

inline constexpr uint64_t kPinsMagic = 0x31534e4950534f4dULL;  // "MOSPINS1"
inline constexpr uint64_t kBellMagic = 0x314c4c4542534f4dULL;  // "MOSBELL1"
inline constexpr uint64_t kBellRing = 1024;
inline constexpr size_t kSlotNameMax = 256;  ///< bytes of a model's or a client's name, including the final 0

/// A worker's word for one table entry: {pinned:1, uses:15, stamp:48}. A hit sends no message, so the store learns from
/// this word what is hot. The worker increases its count when it pins, in a write that it makes anyway.
///   uses    in sixteenths of one token's use (UseWeight), modulo 2^15; the store adds up the differences that it sees
///   stamp   of the last whole use (common/shm/use_clock.h); a prompt's leaves it as it is
struct PinWord {
  static constexpr uint64_t kPinned = uint64_t{1} << 63;
  static constexpr int kStampBits = 48;
  static constexpr uint64_t kStampMask = (uint64_t{1} << kStampBits) - 1;
  static constexpr uint32_t kUsesMask = (1 << 15) - 1;
  static constexpr bool pinned(uint64_t word) { return (word & kPinned) != 0; }
  static constexpr uint64_t stamp(uint64_t word) { return word & kStampMask; }
  static constexpr uint32_t uses(uint64_t word) { return static_cast<uint32_t>(word >> kStampBits) & kUsesMask; }
  static constexpr uint64_t unpinned(uint64_t word) { return word & ~kPinned; }
  /// `word` as pinned, with one more use.
  static constexpr uint64_t used(uint64_t word, uint32_t sixteenths, uint64_t stamp) {
    return kPinned | uint64_t{(uses(word) + sixteenths) & kUsesMask} << kStampBits | stamp;
  }
};

struct alignas(64) PinsHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t entries;
  uint64_t epoch;
  uint8_t reserved0[40];
  std::atomic<uint64_t> uses;  ///< uses of experts by this worker so far, in sixteenths: the clock by which frequencies
                               ///< age
  std::atomic<uint64_t> hits,
      misses;  ///< experts that were, and were not, resident when the worker needed them; for status only
  uint8_t reserved1[kSharedPage - 88];
};
static_assert(sizeof(PinsHeader) == kSharedPage && offsetof(PinsHeader, epoch) == 16 &&
              offsetof(PinsHeader, uses) == 64);

constexpr uint64_t pins_bytes(uint64_t entries) { return kSharedPage + entries * sizeof(uint64_t); }

struct alignas(64) BellHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t ring_entries;
  uint64_t epoch;
  uint8_t reserved0[40];
  std::atomic<uint32_t> doorbell;
  uint8_t reserved1[60];
  std::atomic<uint64_t> head;
  uint8_t reserved2[56];
  uint64_t incarnation;
  char model[kSlotNameMax];   ///< ends with a 0
  char client[kSlotNameMax];
  uint64_t pack_identity;     ///< version of the pack that it attached with; the name may now mean another one
  uint64_t pack_first_entry;
  uint8_t reserved3[kSharedPage - 216 - 2 * kSlotNameMax];
};
static_assert(sizeof(BellHeader) == kSharedPage);
static_assert(offsetof(BellHeader, doorbell) == 64 && offsetof(BellHeader, head) == 128 &&
              offsetof(BellHeader, incarnation) == 192 && offsetof(BellHeader, pack_identity) == 712);
static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex word");

/// {outcome:32, table entry:32}; outcome 0: resident, else a moestro::Code.
struct Completion {
  static constexpr uint64_t pack(uint32_t entry, uint32_t outcome) { return uint64_t{outcome} << 32 | entry; }
  static constexpr uint32_t entry(uint64_t word) { return static_cast<uint32_t>(word); }
  static constexpr uint32_t outcome(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
};

constexpr uint64_t bell_bytes() { return kSharedPage + kBellRing * sizeof(uint64_t); }

}  // namespace moestro::store

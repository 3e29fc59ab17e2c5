#pragma once
// The residency table: file `table` of the arena directory. Written by the store only; workers map it read-only.
//
//   0     | magic | version | entries | epoch | arena_bytes | closed | incarnations |   TableHeader, one page
//   48    | pin_bytes_min | found_wrong |
//   512   | share_bytes of worker slot 0, 1, ... 63 |
//   1024  | window_share of worker slot 0, 1, ... 63 |
//   4096  | entry 0 | entry 1 | ...                                                 TableEntry, one cache line each
//
// A read-modify-write on a read-only mapping is a SIGSEGV even if it changes nothing, so workers use plain loads here.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moestro::store {

inline constexpr uint32_t kSharedVersion = 10;  ///< of all segments together
inline constexpr uint64_t kTableMagic = 0x31454c4254534f4dULL;  // "MOSTBLE1"
inline constexpr uint32_t kWorkerSlotsMax = 64;
inline constexpr uint64_t kSharedPage = 4096;
inline constexpr uint64_t kNoPlace =
    UINT64_MAX;  ///< TableEntry::offset of a blob that could not be read and has no range

/// Values are in shared memory: never renumber.
enum class Residency : uint8_t {
  kAbsent = 0,
  kLoading = 1,   ///< being read; a range is reserved for it
  kResident = 2,  ///< complete and verified: may be used by a worker that pins it
  kEvicting = 3,  ///< the store is checking whether a worker has it pinned
  kBad = 4,       ///< cannot be read, or its bytes do not match their checksum
  kAlias = 5,  ///< another entry has the same content: TableEntry::alias names it as long as this entry's pack is
               ///< served
  kAdopted = 6,  ///< was RESIDENT under a killed store, and this store has not checked its bytes yet. Earlier leases
                 ///< stay valid. A new request is a miss, which is answered by a check instead of a read
};

/// {generation:56, state:8}. The generation grows each time the blob becomes resident.
struct ResidencyWord {
  static constexpr uint64_t pack(Residency state, uint64_t generation) {
    return generation << 8 | static_cast<uint64_t>(state);
  }
  static constexpr Residency state(uint64_t word) { return static_cast<Residency>(word & 0xff); }
  static constexpr uint64_t generation(uint64_t word) { return word >> 8; }
};

struct alignas(64) TableEntry {
  std::atomic<uint64_t> word;    ///< ResidencyWord
  std::atomic<uint64_t> offset;  ///< in the arena; read it after pinning, meaningful only while pinned. Set before
                                 ///< LOADING, so that a successor knows where a blob was being read to
  std::atomic<uint64_t> length;  ///< bytes; constant
  std::atomic<uint64_t> content_low, content_high;  ///< ContentHash of its bytes, set when first resident, 0 before;
                                                    ///< does not change while the entry belongs to one blob
  std::atomic<uint32_t> alias;  ///< 0, or 1 + the entry that has the same content; set before the word says kAlias
  /// Increased when its bytes are found wrong: after the word no longer says RESIDENT, and before they are read again.
  /// A lease loads it before it sees RESIDENT. If the count at the end of the lease differs, the bytes were wrong.
  std::atomic<uint32_t> found_wrong;
  uint64_t reserved[2];
};
static_assert(sizeof(TableEntry) == 64 && alignof(TableEntry) == 64);
static_assert(offsetof(TableEntry, offset) == 8 && offsetof(TableEntry, length) == 16 &&
              offsetof(TableEntry, content_low) == 24);
static_assert(offsetof(TableEntry, alias) == 40 && offsetof(TableEntry, found_wrong) == 44);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

/// TableHeader::closed. Anything but kOpen: this table will not be used again. A worker that maps it releases
/// everything and attaches again.
enum class Closed : uint32_t {
  kOpen = 0,
  kShutDown = 1,  ///< the store was shut down cleanly
  kReplaced = 2,  ///< the store was killed, and its successor could not adopt the arena: it waits until this memory is
                  ///< released
};

struct alignas(64) TableHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t entries;
  std::atomic<uint64_t> epoch;  ///< of the running store; a successor that adopts the arena sets its own
  uint64_t arena_bytes;
  std::atomic<uint32_t> closed;        ///< Closed
  std::atomic<uint64_t> incarnations;  ///< number of holders of its slots so far, under all its stores
  /// 0, or what each pinned expert counts at least. If the arena has experts of several lengths, a pin blocks the whole
  /// block that contains the expert.
  std::atomic<uint64_t> pin_bytes_min;
  /// Increased after that of an entry: who sees it unchanged need not look at the entries.
  std::atomic<uint64_t> found_wrong;
  uint8_t reserved0[448];
  /// The bytes of experts that the worker in each slot may pin at once. The shares of all workers fit in the arena
  /// together.
  std::atomic<uint64_t> share_bytes[kWorkerSlotsMax];
  /// The places of dense weights that take turns which the worker in each slot may pin at once.
  std::atomic<uint32_t> window_share[kWorkerSlotsMax];
  uint8_t reserved1[2816];
};
static_assert(sizeof(TableHeader) == kSharedPage);
static_assert(offsetof(TableHeader, epoch) == 16 && offsetof(TableHeader, closed) == 32 &&
              offsetof(TableHeader, incarnations) == 40 && offsetof(TableHeader, pin_bytes_min) == 48 &&
              offsetof(TableHeader, found_wrong) == 56 && offsetof(TableHeader, share_bytes) == 512 &&
              offsetof(TableHeader, window_share) == 1024);

constexpr uint64_t table_bytes(uint64_t entries) { return kSharedPage + entries * sizeof(TableEntry); }

}  // namespace moestro::store

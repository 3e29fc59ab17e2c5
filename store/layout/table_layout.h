#pragma once
// The residency table: file `table` of the arena directory. Written by the store only; workers map it read-only.
//
//   0     | magic | version | entries | epoch | arena_bytes | closed | incarnations |   TableHeader, one page
//   48    | pin_bytes_min |
//   512   | share_bytes of worker slot 0, 1, ... 63 |
//   4096  | entry 0 | entry 1 | ...                                                 TableEntry, one cache line each
//
// A read-modify-write on a read-only mapping is SIGSEGV even where it fails to change anything: workers use plain loads
// here.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moestro::store {

inline constexpr uint32_t kSharedVersion = 9;  ///< of all segments together
inline constexpr uint64_t kTableMagic = 0x31454c4254534f4dULL;  // "MOSTBLE1"
inline constexpr uint32_t kWorkerSlotsMax = 64;
inline constexpr uint64_t kSharedPage = 4096;
inline constexpr uint64_t kNoPlace =
    UINT64_MAX;  ///< TableEntry::offset of a blob that could not be read and has no range

/// Values are in shared memory: never renumber.
enum class Residency : uint8_t {
  kAbsent = 0,
  kLoading = 1,   ///< being read; a range is set aside for it
  kResident = 2,  ///< whole and verified: may be used by whoever pins it
  kEvicting = 3,  ///< the store is asking whether anyone has it pinned
  kBad = 4,       ///< cannot be read, or its bytes do not match their checksum
  kAlias = 5,  ///< another entry has the same content: TableEntry::alias names it, for as long as this entry's pack is
               ///< served
  kAdopted = 6,  ///< was RESIDENT under a store that was killed; this one has not checked its bytes yet. Leases of
                 ///< before stay good; for whoever comes now it is a miss, which a check answers and no read
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
  std::atomic<uint64_t> offset;  ///< in the arena; read after pinning, meaningful only while pinned. Set before
                                 ///< LOADING, so that a successor knows what was being read where
  std::atomic<uint64_t> length;  ///< bytes; constant
  std::atomic<uint64_t> content_low, content_high;  ///< ContentHash of its bytes, set when first resident, 0 before;
                                                    ///< never changes while the entry stands for one blob
  std::atomic<uint32_t> alias;  ///< 0, or 1 + the entry that has the same content; set before the word says kAlias
  /// Grows when its bytes are found wrong: after the word has ceased to say RESIDENT, and before they are read again.
  /// So a lease whose count was loaded before the word said RESIDENT ends with the same count, or its holder is told.
  std::atomic<uint32_t> found_wrong;
  uint64_t reserved[2];
};
static_assert(sizeof(TableEntry) == 64 && alignof(TableEntry) == 64);
static_assert(offsetof(TableEntry, offset) == 8 && offsetof(TableEntry, length) == 16 &&
              offsetof(TableEntry, content_low) == 24);
static_assert(offsetof(TableEntry, alias) == 40 && offsetof(TableEntry, found_wrong) == 44);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

/// TableHeader::closed. Anything but kOpen: this table is over for good; whoever maps it lets go of everything and
/// attaches anew.
enum class Closed : uint32_t {
  kOpen = 0,
  kShutDown = 1,  ///< the store has shut down in good order
  kReplaced = 2,  ///< the store was killed, and its successor could not adopt the arena: it waits for this memory to be
                  ///< let go of
};

struct alignas(64) TableHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t entries;
  std::atomic<uint64_t> epoch;  ///< of the store that runs: a successor that adopts the arena sets its own
  uint64_t arena_bytes;
  std::atomic<uint32_t> closed;        ///< Closed
  std::atomic<uint64_t> incarnations;  ///< how many holders its slots have had under all its stores
  /// 0, or what each pinned expert counts, however short it is: where experts of several lengths lie in the arena, what
  /// a pin takes from the others is the block that it lies in.
  std::atomic<uint64_t> pin_bytes_min;
  uint8_t reserved0[456];
  /// How many bytes of experts the worker in each slot may pin at once. The shares of all workers fit in the arena
  /// together.
  std::atomic<uint64_t> share_bytes[kWorkerSlotsMax];
  uint8_t reserved1[3072];
};
static_assert(sizeof(TableHeader) == kSharedPage);
static_assert(offsetof(TableHeader, epoch) == 16 && offsetof(TableHeader, closed) == 32 &&
              offsetof(TableHeader, incarnations) == 40 && offsetof(TableHeader, pin_bytes_min) == 48 &&
              offsetof(TableHeader, share_bytes) == 512);

constexpr uint64_t table_bytes(uint64_t entries) { return kSharedPage + entries * sizeof(TableEntry); }

}  // namespace moestro::store

#pragma once
// The layout of one model's history in shared memory. Its owner (the orchestrator) writes it, and workers of the same
// host map it read-only. A collection in a process's own memory has the same layout, without the first page.
//
//   0     | magic | version | layers | experts | top_k | capacity |
//         | pack identity | segment | bytes | checksum |           HistoryHead, never changes
//   64    | changes | size |                                       EamcCounters of the prompts
//   128   | changes | size |                                       EamcCounters of the answers
//   4096  | prompts: versions      u64 [stride]                    even: whole; odd: being written; 0: never written
//         |          inverse norms f32 [layers][stride]            1 / the length of rows [0, layer] of every entry
//         |          by column     u8  [layers][experts][stride]   what a match reads
//         |          by entry      u8  [capacity][layers][experts] what a forecast and the owner read
//         | answers: the same |
//
// stride: the capacity, rounded up to 64. Every array begins at a multiple of 64 bytes. Bytes that were never written
// are zero.
//
// The one writer changes an entry in this order: version + 1 (odd); cells and norms, each with release; version + 2.
// Then size, then changes + 1, both with release. A reader loads the version, reads the entry, and loads the version
// again after an acquire fence. If it is the same even number, everything that was read belongs to that version.
// Otherwise the reader discards it. If the writer dies while it writes an entry, the version stays odd: no reader uses
// the entry, and none waits for it. The writer's successor makes another segment.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace moestro::activation {

inline constexpr uint64_t kHistoryMagic = 0x3153494853534f4dULL;  // "MOSSHIS1"
inline constexpr uint32_t kHistoryVersion = 1;
inline constexpr uint64_t kHistoryPage = 4096;
inline constexpr uint64_t kEamcBlock = 64;  ///< the length of a column is a multiple of this
// Limits on what is accepted as a history, here and in messages.
inline constexpr uint32_t kHistorySideMax = 1U << 16;  ///< layers, experts
inline constexpr uint32_t kHistoryCapacityMax = 1U << 17;
inline constexpr uint64_t kHistoryCellsMax = uint64_t{1} << 30;  ///< layers * experts * capacity: four times the bytes

struct alignas(64) HistoryHead {
  uint64_t magic;
  uint32_t version;
  uint32_t layers, experts, top_k;
  uint32_t capacity;
  uint32_t reserved;
  uint64_t pack_identity;
  uint64_t segment;   ///< different for every memory that is made
  uint64_t bytes;     ///< of all of it
  uint64_t checksum;  ///< XXH3-64 of the 56 bytes before
};
static_assert(sizeof(HistoryHead) == 64 && offsetof(HistoryHead, capacity) == 24 &&
              offsetof(HistoryHead, pack_identity) == 32 && offsetof(HistoryHead, segment) == 40 &&
              offsetof(HistoryHead, checksum) == 56);

struct alignas(64) EamcCounters {
  std::atomic<uint64_t> changes;  ///< increased after every change
  std::atomic<uint32_t> size;     ///< entries [0, size) have been written
  uint8_t reserved[52];
};
static_assert(sizeof(EamcCounters) == 64 && offsetof(EamcCounters, size) == 8);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free,
              "words of several processes");

struct HistoryFront {
  HistoryHead head;
  EamcCounters prompts, answers;
  uint8_t reserved[kHistoryPage - 192];
};
static_assert(sizeof(HistoryFront) == kHistoryPage && offsetof(HistoryFront, prompts) == 64 &&
              offsetof(HistoryFront, answers) == 128);

/// Offsets of the arrays of one collection, from the first array.
struct EamcLayout {
  uint64_t stride = 0;
  uint64_t versions = 0, inverse_norms = 0, by_column = 0, by_entry = 0, bytes = 0;
};
constexpr uint64_t eamc_rounded(uint64_t n) { return (n + kEamcBlock - 1) / kEamcBlock * kEamcBlock; }
/// Cannot overflow within the limits above.
constexpr EamcLayout eamc_layout(uint64_t layers, uint64_t experts, uint64_t capacity) {
  EamcLayout l;
  l.stride = eamc_rounded(capacity);
  l.inverse_norms = l.versions + l.stride * sizeof(uint64_t);
  l.by_column = l.inverse_norms + layers * l.stride * sizeof(float);
  l.by_entry = l.by_column + layers * experts * l.stride;
  l.bytes = eamc_rounded(l.by_entry + layers * experts * capacity);
  return l;
}
constexpr uint64_t history_bytes(const EamcLayout& l) { return kHistoryPage + 2 * l.bytes; }
static_assert(eamc_layout(48, 128, 512).bytes == 512 * (8 + 48 * 4 + 2 * 48 * 128));

}  // namespace moestro::activation

#pragma once
// The figures of a running store, for `doctor`, `top` and the status page.

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::store {

/// One drive, and the thread that reads it.
struct StoreDriveReport {
  std::string path, reader;
  uint32_t chunk_bytes = 0, depth = 0;
  uint64_t bytes_per_s = 0;  ///< as measured at start; 0: not measured
  uint64_t bytes_read = 0, retries = 0;
  bool registered = false;  ///< the arena is registered as its buffers: reads cost less CPU
};
struct StoreReadingReport {
  std::vector<StoreDriveReport> drives;
  uint64_t prefetches = 0;       ///< reads ahead that were begun
  uint64_t prefetches_used = 0;  ///< of them, used after they had arrived
  uint64_t prefetches_late = 0;  ///< demanded while they were being read
  uint64_t prefetches_wasted = 0;      ///< evicted before they were used
  uint64_t prefetch_wasted_bytes = 0;  ///< of them, and of reads that were cancelled
  uint64_t prefetches_dropped = 0;  ///< cancelled: no longer foreseen, or a demand needed their room
  // Foreseen blobs that were not resident and not read ahead, each counted once an outlook.
  uint64_t foreseen_below_floor = 0;  ///< not likely enough
  uint64_t foreseen_over_budget = 0;  ///< the drive would not have brought it in time
  uint64_t foreseen_early = 0;        ///< can wait, and so leave its room to what is in it
  uint64_t foreseen_guarded = 0;      ///< everything else is used sooner, or pinned
  uint64_t scrubbed_bytes = 0, scrub_mismatches = 0;
  std::array<uint32_t, 3> queued{}, loading{};  ///< blobs that wait to be read, and that are being read: demand,
                                                ///< prefetch (waiting: foreseen ones that wait only for the drives),
                                                ///< scrub
  uint64_t hits = 0, misses = 0;                ///< of all workers so far
};

/// Progress of reading again what was in memory at the last shutdown.
struct StoreWarmStartReport {
  uint64_t blobs = 0, bytes = 0, blobs_there = 0, bytes_there = 0;
  uint64_t left_out = 0;  ///< blobs that found no room, or could not be read
  double seconds = 0;     ///< so far, or in all
  bool running = false;
};

struct StoreStatusReport {
  struct Model {
    std::string name, pack;
    uint64_t dense_bytes = 0, expert_bytes = 0;
    uint32_t blobs = 0, resident_experts = 0, experts = 0;
    uint32_t workers = 0;
    uint64_t used_bytes = 0;  ///< of the arena; a blob of n models counts 1/n to each
    uint64_t guaranteed_bytes = 0, maximal_bytes = 0;  ///< store.shares; maximal 0: no limit
    bool retired = false;  ///< no longer served under a name; its last workers still use it
    uint32_t layers = 0, streamed_layers = 0;  ///< with dense weights; of them, those that take turns in memory
    uint64_t streamed_bytes = 0;               ///< of these, which each step reads
  };
  struct Worker {
    uint32_t slot = 0;
    std::string client, model;
    uint64_t fetches = 0, share_bytes = 0;
    uint32_t pinned = 0;
    uint64_t hits = 0, misses = 0;  ///< experts that were resident when the worker needed them, or not, as counted by
                                    ///< the worker
  };
  uint64_t epoch = 0, arena_bytes = 0, used_bytes = 0, huge_bytes = 0;
  std::string reader;  ///< "io_uring" or "pread"
  std::string policy;  ///< `store.policy`, which chooses the expert to evict
  std::string pages,
      pages_mend;  ///< the arena's pages, and how to get better ones; empty: nothing to change
  std::vector<Model> models;
  std::vector<Worker> workers;
  uint64_t fetches = 0;  ///< blobs requested by message: misses of the DRAM tier
  uint64_t joined = 0;   ///< of them, already being read
  uint64_t loads = 0, evictions = 0, bytes_read = 0, retries = 0;
  uint64_t bad_blobs = 0;   ///< given up so far, those that have been repaired since included
  uint64_t unreadable = 0;  ///< blobs that cannot be read now: requests that need them fail
  uint64_t segments_emptied = 0;  ///< to make room for experts of another length
  uint32_t window_places = 0;     ///< for dense weights that take turns; 0: all stay
  uint64_t streamed_loads = 0, streamed_loaded_bytes = 0;  ///< reads of such
  uint32_t queued = 0, loading = 0;
  StoreReadingReport reading;
  StoreWarmStartReport warm_start;
  uint64_t resident_bytes = 0;   ///< of complete blobs, each content once
  uint64_t reads_elsewhere = 0;  ///< reads that failed and were repeated from another pack with the same content
  uint64_t adopted = 0, adopted_bytes = 0;  ///< blobs adopted from a killed store
  double adopted_seconds = 0;               ///< until the store served
  uint64_t unchecked = 0, damaged = 0;      ///< of them: not yet compared with their checksums; changed and read again
  double memory_changed_s = -1;  ///< seconds since bytes in memory were last found changed; negative: never
  uint64_t refused = 0;          ///< messages that no client of Moestro would send
  double refused_s = -1;         ///< seconds since the last of them; negative: there was none
  uint32_t aliases = 0;          ///< blobs whose bytes are shared with another blob
};

enum class PackChange : uint8_t { kAdd, kRemove, kReplace };

/// Changes what a running store serves, and returns the store's description of what it did. `pack` is a path on the
/// store's host; kRemove needs none.
Result<std::string> change_packs(const std::string& endpoint, PackChange change, const std::string& name,
                                 const std::string& pack, std::chrono::milliseconds timeout);

/// kUnavailable if no store answers at `endpoint` in time.
Result<StoreStatusReport> query_store(const std::string& endpoint, std::chrono::milliseconds timeout);

}  // namespace moestro::store

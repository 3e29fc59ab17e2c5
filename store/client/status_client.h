#pragma once
// The figures of a running store, for `doctor`, `top` and the status page.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::store {

struct StoreStatusReport {
  struct Model {
    std::string name, pack;
    uint64_t dense_bytes = 0, expert_bytes = 0;
    uint32_t blobs = 0, resident_experts = 0, experts = 0;
    uint32_t workers = 0;
    bool retired = false;  ///< served under no name any more; its last workers still use it
  };
  struct Worker {
    uint32_t slot = 0;
    std::string client, model;
    uint64_t fetches = 0, share_bytes = 0;
    uint32_t pinned = 0;
  };
  uint64_t epoch = 0, arena_bytes = 0, used_bytes = 0, huge_bytes = 0;
  std::string reader;  ///< "io_uring" or "pread"
  std::vector<Model> models;
  std::vector<Worker> workers;
  uint64_t fetches = 0;  ///< blobs asked for by message: what the DRAM tier missed
  uint64_t joined = 0;   ///< of them, being read already
  uint64_t loads = 0, evictions = 0, bytes_read = 0, retries = 0, bad_blobs = 0;
  uint32_t queued = 0, loading = 0;
  uint64_t resident_bytes = 0;   ///< of blobs that are there whole, each content once
  uint64_t reads_elsewhere = 0;  ///< reads that failed and were made good from another pack with the same content
  uint32_t aliases = 0;          ///< blobs whose bytes another blob holds
};

enum class PackChange : uint8_t { kAdd, kRemove, kReplace };

/// Changes what a running store serves; returns what it says it has done. `pack` is a path on the store's host; kRemove needs none.
Result<std::string> change_packs(const std::string& endpoint, PackChange change, const std::string& name, const std::string& pack,
                                 std::chrono::milliseconds timeout);

/// kUnavailable if no store answers at `endpoint` in time.
Result<StoreStatusReport> query_store(const std::string& endpoint, std::chrono::milliseconds timeout);

}  // namespace moestro::store

#pragma once
// The options of a store.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/machine/numa.h"
#include "common/shm/file_access.h"
#include "store/reader/faulty_reader.h"
#include "store/reader/probe.h"

namespace moestro::store {

enum class IoKind : uint8_t { kAuto, kUring, kPread };

struct ModelSource {
  std::string name;
  std::filesystem::path pack;
  bool retired = false;  ///< the name means another pack by now, or none; only of a store that was killed
};

/// The part of the arena that a model is guaranteed, and its maximum.
struct NamedShare {
  std::string model;
  uint64_t guaranteed = 0;
  uint64_t maximal = UINT64_MAX;
};

struct StoreOptions {
  std::filesystem::path run_dir;    ///< the socket is RUN_DIR/store.sock
  std::filesystem::path arena_dir;
  std::string payload;              ///< place of the weights (store/arena/payload.h); empty: the arena directory
  machine::NodeChoice numa;         ///< NUMA nodes of the weights
  shm::FileAccess access;           ///< who may reach sockets and arena
  uint64_t others_bytes = 0;        ///< memory that the box's workers will take: KV caches, scratch
  uint32_t workers = 0;             ///< of the box
  std::optional<uint64_t> dram_bytes;  ///< nullopt: what the packs need, at most what is free
  std::vector<ModelSource> models;
  std::vector<NamedShare> shares;  ///< models that are not named have neither
  IoKind io = IoKind::kAuto;
  uint32_t read_chunk = 0;          ///< bytes of one read; 0: measured, 1 MiB for small packs
  uint32_t read_depth = 0;  ///< reads in flight per drive; 0: measured, 8 for small packs
  uint64_t probe_bytes_min = kProbeFilesMin;  ///< smaller packs are not measured
  uint64_t scrub_bytes_per_s = 0;   ///< bytes of resident blobs that are compared with their checksums when idle
  std::optional<FaultPlan> read_faults;  ///< for tests
  std::function<std::unique_ptr<Reader>(std::unique_ptr<Reader>)> wrap_reader = nullptr;  ///< for tests
  std::string policy = "interval";  ///< common/policy/make_policy.h
  bool poison_freed = false;        ///< freed ranges are filled with NaNs, so that a use after eviction shows
  bool warm_start = false;  ///< at shutdown, write a list of what is resident; at start, read that again in the
                            ///< background
};

}  // namespace moestro::store

#pragma once
// The memory of a host that a box takes in addition to the arena: the workers' KV caches, scratch and processes. One
// sum, so that the arena's size accounts for all of it.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "common/config/box_config.h"
#include "common/status.h"

namespace moestro::box {

/// Tokens of a worker's KV cache where the configuration says auto.
inline constexpr int64_t kAutoKvTokens = 8192;

struct WorkerMemory {
  uint64_t workers = 1;
  uint64_t kv_bytes = 0;       ///< of each
  uint64_t state_bytes = 0;    ///< of each: states of sequences, beside the KV cache
  uint64_t scratch_bytes = 0;  ///< of each: activations of the largest step
  uint64_t process_bytes = 0;  ///< of each: code, heap, thread stacks
  uint64_t device_bytes = 0;   ///< of each: the memory of an emulated device
  uint64_t total() const { return workers * (kv_bytes + state_bytes + scratch_bytes + process_bytes + device_bytes); }
};

/// For the workers of all these packs' models together, because each model has its own workers. A pack that cannot be
/// described counts as 0; the program that opens it refuses it.
uint64_t workers_bytes(const config::BoxConfig& box, std::span<const std::filesystem::path> packs);

/// For a pack's model (its copy of config.json). Errors are those of describing the model.
Result<WorkerMemory> worker_memory(const config::BoxConfig& box, const std::filesystem::path& pack);
Result<WorkerMemory> worker_memory(const config::BoxConfig& box, const std::string& config_json);

}  // namespace moestro::box

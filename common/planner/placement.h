#pragma once
// What lies in which memory.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/planner/model_sizes.h"

namespace moestro::planner {

/// What is there.
struct Memories {
  enum class Device : uint8_t {
    kHost,         ///< the CPU: it computes from host memory
    kExpertsOnly,  ///< an emulated device: its memory holds experts. Workspace is in host memory, and so are KV cache
                   ///< and dense weights where they do not count
    kWhole,        ///< a GPU: dense weights, KV cache and workspace are in its memory too
  } device = Device::kHost;
  uint64_t device_bytes = 0;            ///< that may be taken
  uint64_t host_bytes = 0;              ///< that may be taken, by everything together
  std::optional<uint64_t> arena_bytes = {};  ///< --dram: of that, for weights; nullopt: what is left
  bool counts_kv = false;  ///< kExpertsOnly: the KV cache takes the device's memory, as a GPU's; false: none of it
  bool counts_dense = false;  ///< dense weights of layers take turns on the device where not all have room. false:
                              ///< kExpertsOnly: all lie in host memory; kWhole: all have to have room
  double dense_share = 1;     ///< the same: of the layers' dense weights, the most that stays

  /// Whether the KV cache that is on the device takes memory of its own there.
  bool device_has_kv() const { return device == Device::kWhole || (device == Device::kExpertsOnly && counts_kv); }
};

/// What a run takes in addition to experts.
struct Needs {
  uint64_t dense_bytes = 0;
  uint64_t kv_bytes = 0;         ///< on the device that computes
  uint64_t workspace_bytes = 0;  ///< of the largest step, on the device that computes
  uint64_t process_bytes = 0;    ///< of the host: code, heap, driver
  uint64_t expert_bytes = 0;     ///< of one, in host memory and on the drive
  uint64_t slot_bytes = 0;       ///< of one, on the device
  int64_t experts = 0;           ///< of all layers
  uint64_t host_kv_bytes = 0;    ///< with its home in host memory, where the device has a memory for the KV cache
  std::optional<uint64_t> device_dense_bytes = {};  ///< of a GPU's memory, for weights that are not whole experts;
                                                    ///< nullopt: all dense weights
  uint64_t state_bytes = 0;      ///< of sequences: on a GPU that computes, otherwise in host memory
  uint64_t pipeline_workspace_bytes = 0;  ///< as workspace_bytes, for workers' steps in micro-batches; 0: the same
  uint64_t cgo_workspace_bytes = 0;       ///< the same with what the host attends to; 0: the same
  std::vector<uint64_t> dense_layer_bytes = {};  ///< of each layer; empty: they cannot take turns in a memory
  uint32_t experts_at_once = 1;  ///< that a memory has room for before layers stay there that could take turns
};

struct Part {
  std::string what;
  uint64_t bytes = 0;
};

struct Tier {
  std::string name;             ///< "device memory", "host memory", "drive"
  uint64_t capacity_bytes = 0;  ///< 0: not limited
  std::vector<Part> parts;
  uint64_t used_bytes() const;
};

struct Placement {
  int64_t device_experts = 0;  ///< slots; 0 if the device has no memory of its own
  int64_t host_experts = 0;    ///< in the arena
  int64_t experts = 0;
  uint64_t arena_bytes = 0;
  uint64_t streamed_bytes = 0;  ///< of dense weights that take turns in a memory: each step reads them
  uint32_t streamed_layers = 0;
  bool streamed_by_link = false;  ///< in the device's; false: in host memory
  double dense_share = 1;         ///< of the layers' dense weights, what stays where they are computed
  std::vector<Tier> tiers;     ///< fastest first
  /// Whether weights have to be read while it runs.
  bool needs_drive() const {
    return (streamed_bytes > 0 && !streamed_by_link) || (host_experts < experts && device_experts < experts);
  }
  double device_share() const { return share(device_experts); }
  double host_share() const { return share(host_experts); }

 private:
  double share(int64_t held) const {
    return experts > 0 ? static_cast<double>(held) / static_cast<double>(experts) : 0;
  }
};

/// Gives experts what the other parts leave. kExhausted names the memory that is too small, its parts, and the least
/// that would do.
Result<Placement> place(const Needs& needs, const Memories& memories);

}  // namespace moestro::planner

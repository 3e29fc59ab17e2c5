#pragma once
// How a GPU's memory is divided: dense weights, KV cache and workspace have fixed sizes, and experts get the rest.
// Layers whose dense weights have no room may take turns there (common/tier/dense_window.h).

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/tier/dense_window.h"

namespace moestro::cuda {

struct DeviceNeeds {
  uint64_t dense_bytes = 0;
  std::vector<uint64_t> dense_layers = {};  ///< of those: of each layer, what may take turns
  uint32_t experts_at_once = 1;  ///< that there is room for before layers stay that could take turns
  uint64_t kv_bytes = 0;         ///< of --kv-tokens
  uint64_t workspace_bytes = 0;  ///< of the largest step, --step-tokens
  uint64_t expert_bytes = 0;     ///< of one slot, as it is allocated
  uint64_t experts = 0;          ///< of the model
  uint64_t slots_min = 1;        ///< with fewer slots no step can finish
};

struct DeviceMemory {
  std::string name;             ///< for refusals: "NVIDIA H200"
  uint64_t free_bytes = 0;      ///< without what CUDA has taken for this process
  uint64_t total_bytes = 0;
  uint64_t vram_bytes = 0;      ///< the most that the worker may take in all; 0: what is free
  bool dense_in_turn = false;   ///< config::CudaDeviceSpec
  double dense_share = 1;
};

struct BudgetLine {
  std::string what;
  uint64_t bytes = 0;
  double share = 0;  ///< part of what may be taken
};

struct DeviceBudget {
  uint64_t slots = 0;
  uint64_t room_bytes = 0;    ///< that may be taken, by everything together
  bool all_resident = false;  ///< there is a slot for every expert
  tier::DenseWindow dense;    ///< of DeviceNeeds::dense_layers
  std::vector<BudgetLine> lines;
  /// `lines` in columns, for the log at start.
  std::vector<std::string> table() const;
};

/// The part of the free memory that is not used: kernels are loaded, and their local memory allocated, only when they
/// are first launched; graphs take some; and memory is given out in pages of 2 MiB. It is 1 % of the card, at least 128
/// MiB and at most 1 GiB. It does not count in vram=, which limits only the worker's own memory.
uint64_t driver_margin(uint64_t total_bytes);

/// kInvalidArgument: it can never fit, with what to change. kUnavailable: it would fit if other processes did not use
/// the memory.
Result<DeviceBudget> share_out(const DeviceNeeds& needs, const DeviceMemory& memory);

}  // namespace moestro::cuda

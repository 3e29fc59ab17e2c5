#pragma once
#include "common/model/model_spec.h"

namespace moestro::model {

/// How a family names what differs between checkpoints; the rest ("model.layers.N.self_attn.q_proj.weight") is shared.
struct CheckpointNames {
  const char* moe_block;                           ///< "mlp"
  const char *expert_gate, *expert_up, *expert_down;  ///< "gate_proj"
};

inline constexpr CheckpointNames kMixtralNames{"block_sparse_moe", "w1", "w3", "w2"};
inline constexpr CheckpointNames kMlpNames{"mlp", "gate_proj", "up_proj", "down_proj"};

/// Fills `dense` and `experts` from a finished spec.
void map_checkpoint(const CheckpointNames& names, ModelDescription& description);

}  // namespace moestro::model

#pragma once
#include "common/model/model_spec.h"

namespace moestro::model {

/// How a family names what differs between checkpoints; the rest ("model.layers.N.self_attn.q_proj.weight") is shared.
struct CheckpointNames {
  const char* moe_block;                           ///< "mlp"
  const char *expert_gate, *expert_up, *expert_down;  ///< "gate_proj"
  const char* shared_expert = "shared_expert";
  const char* router_bias = "gate.e_score_correction_bias";
};

inline constexpr CheckpointNames kMixtralNames{"block_sparse_moe", "w1", "w3", "w2"};
inline constexpr CheckpointNames kMlpNames{"mlp", "gate_proj", "up_proj", "down_proj"};
inline constexpr CheckpointNames kSharedExpertsNames{"mlp", "gate_proj", "up_proj", "down_proj", "shared_experts"};
inline constexpr CheckpointNames kMiniMaxNames{"block_sparse_moe", "w1", "w3", "w2", "", "e_score_correction_bias"};

/// Fills `dense` and `experts` from a finished spec.
void map_checkpoint(const CheckpointNames& names, ModelDescription& description);

}  // namespace moestro::model

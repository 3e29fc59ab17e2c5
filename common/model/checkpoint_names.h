#pragma once
#include "common/model/encoder_decoder_names.h"
#include "common/model/model_spec.h"

namespace moestro::model {

/// How a family names what differs between checkpoints.
struct CheckpointNames {
  const char* moe_block;                           ///< "mlp"
  const char *expert_gate, *expert_up, *expert_down;  ///< "gate_proj"; stacked: the names of whole tensors
  const char* shared_expert = "shared_expert";
  const char* router_bias = "gate.e_score_correction_bias";
  const char* router = "gate";
  ExpertStorage storage = {};
  const char* experts = "experts.";  ///< before the experts' names, in moe_block
  bool exact_router = false;         ///< the router is f32 whatever the other weights are, and packed so
  bool router_bias_is_row = false;   ///< [1, experts]
  // Around the layers and in them.
  const char *embed = "model.embed_tokens.weight", *norm = "model.norm", *layers = "model.layers.";
  const char* head = "lm_head";
  const char *input_norm = "input_layernorm", *post_norm = "post_attention_layernorm";
  const char *attention = "self_attn.", *output = "o_proj";
  const char* dense_mlp = "mlp.";  ///< of layers without experts
  const char *mlp_gate = "gate_proj", *mlp_up = "up_proj", *mlp_down = "down_proj";
  const char* fused_qkv = nullptr;    ///< q, k and v are rows of one tensor
  const char* fused_shared = nullptr; ///< gate and up of the shared expert are halves of FUSED.input_linear.weight
  const EncoderDecoderNames* stacks = nullptr;  ///< these instead of the above
  bool fused_delta = false;  ///< q, k, v and z of a gated delta rule are one tensor, b and a another, by heads of keys
};

inline constexpr CheckpointNames kMixtralNames{"block_sparse_moe", "w1", "w3", "w2"};
inline constexpr CheckpointNames kMlpNames{"mlp", "gate_proj", "up_proj", "down_proj"};
inline constexpr CheckpointNames kSharedExpertsNames{"mlp", "gate_proj", "up_proj", "down_proj", "shared_experts"};
inline constexpr CheckpointNames kMiniMaxNames{"block_sparse_moe", "w1", "w3", "w2", "", "e_score_correction_bias"};
/// gate_up_proj [experts, hidden, 2 ffn] with gate and up in turn, down_proj [experts, ffn, hidden], and their biases.
inline constexpr CheckpointNames kGptOssNames{
    .moe_block = "mlp",
    .expert_gate = "gate_up_proj",
    .expert_up = "gate_up_proj",
    .expert_down = "down_proj",
    .router = "router",
    .storage = {.stacked = true, .gate_up = ExpertStorage::GateUp::kInTurn, .transposed = true}};
inline constexpr CheckpointNames kErnieNames{.moe_block = "mlp",
                                             .expert_gate = "gate_proj",
                                             .expert_up = "up_proj",
                                             .expert_down = "down_proj",
                                             .shared_expert = "shared_experts",
                                             .router_bias = "moe_statics.e_score_correction_bias",
                                             .exact_router = true,
                                             .router_bias_is_row = true};
/// input_linear [experts, 2 ffn, hidden]: the rows of gate, then those of up. output_linear [experts, hidden, ffn].
inline constexpr CheckpointNames kGraniteNames{
    .moe_block = "block_sparse_moe",
    .expert_gate = "input_linear.weight",
    .expert_up = "input_linear.weight",
    .expert_down = "output_linear.weight",
    .router = "router.layer",
    .storage = {.stacked = true, .gate_up = ExpertStorage::GateUp::kHalves},
    .experts = "",
    .fused_shared = "shared_mlp"};
/// w1, v1, w2 [experts * ffn, hidden].
inline constexpr CheckpointNames kDbrxNames{.moe_block = "ffn",
                                            .expert_gate = "w1",
                                            .expert_up = "v1",
                                            .expert_down = "w2",
                                            .router = "router.layer",
                                            .storage = {.stacked = true, .transposed_down = true, .flat = true},
                                            .experts = "experts.mlp.",
                                            .embed = "transformer.wte.weight",
                                            .norm = "transformer.norm_f",
                                            .layers = "transformer.blocks.",
                                            .input_norm = "norm_attn_norm.norm_1",
                                            .post_norm = "norm_attn_norm.norm_2",
                                            .attention = "norm_attn_norm.attn.",
                                            .output = "out_proj",
                                            .fused_qkv = "Wqkv.weight"};

/// gate_up_proj [experts, hidden, 2 ffn]: the columns of gate, then those of up. down_proj [experts, ffn, hidden].
inline constexpr CheckpointNames kLlama4Names{
    .moe_block = "feed_forward",
    .expert_gate = "gate_up_proj",
    .expert_up = "gate_up_proj",
    .expert_down = "down_proj",
    .router = "router",
    .storage = {.stacked = true, .gate_up = ExpertStorage::GateUp::kHalves, .transposed = true},
    .dense_mlp = "feed_forward."};
/// The same, as the text part of a model that sees images.
inline constexpr CheckpointNames kLlama4TextPartNames = [] {
  CheckpointNames names = kLlama4Names;
  names.embed = "language_model.model.embed_tokens.weight";
  names.norm = "language_model.model.norm";
  names.layers = "language_model.model.layers.";
  names.head = "language_model.lm_head";
  return names;
}();

inline constexpr CheckpointNames kArcticNames{.moe_block = "block_sparse_moe",
                                              .expert_gate = "w1",
                                              .expert_up = "w3",
                                              .expert_down = "w2",
                                              .dense_mlp = "block_sparse_moe.mlp.",
                                              .mlp_gate = "w1",
                                              .mlp_up = "w3",
                                              .mlp_down = "w2"};

inline constexpr CheckpointNames kQwen3NextNames{
    .moe_block = "mlp", .expert_gate = "gate_proj", .expert_up = "up_proj", .expert_down = "down_proj",
    .fused_delta = true};
/// gate_up_proj [experts, 2 ffn, hidden], down_proj [experts, hidden, ffn]; or, as transformers 5 saves them, apart.
inline constexpr CheckpointNames kQwen35MoeTextNames{
    .moe_block = "mlp",
    .expert_gate = "gate_up_proj",
    .expert_up = "gate_up_proj",
    .expert_down = "down_proj",
    .storage = {.stacked = true, .gate_up = ExpertStorage::GateUp::kHalves, .perhaps_apart = true}};
/// The same beside a vision tower.
inline constexpr CheckpointNames kQwen35MoeNames{
    .moe_block = "mlp",
    .expert_gate = "gate_up_proj",
    .expert_up = "gate_up_proj",
    .expert_down = "down_proj",
    .storage = {.stacked = true, .gate_up = ExpertStorage::GateUp::kHalves, .perhaps_apart = true},
    .embed = "model.language_model.embed_tokens.weight",
    .norm = "model.language_model.norm",
    .layers = "model.language_model.layers."};

inline constexpr CheckpointNames kSwitchNames{
    .moe_block = "", .expert_gate = "", .expert_up = "", .expert_down = "", .stacks = &kSwitchStacks};
inline constexpr CheckpointNames kNllbNames{
    .moe_block = "", .expert_gate = "", .expert_up = "", .expert_down = "", .stacks = &kNllbStacks};

/// Fills `dense` and `experts` from a finished spec.
void map_checkpoint(const CheckpointNames& names, ModelDescription& description);

}  // namespace moestro::model

#pragma once
// Small config.json texts of every architecture, to be varied key by key.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/model_spec.h"

namespace moestro::model {

inline nlohmann::json tiny_config(const std::string& architecture) {
  if (architecture == "Qwen3_5MoeForConditionalGeneration") {
    nlohmann::json text = tiny_config("Qwen3_5MoeForCausalLM");
    text.erase("architectures");
    return {{"architectures", {architecture}}, {"text_config", text}, {"vision_config", {{"depth", 27}}},
            {"image_token_id", 90}, {"video_token_id", 91}, {"vision_start_token_id", 92},
            {"vision_end_token_id", 93}, {"tie_word_embeddings", false}};
  }
  if (architecture == "SwitchTransformersForConditionalGeneration")
    return {{"architectures", {architecture}}, {"is_encoder_decoder", true}, {"d_model", 32}, {"d_kv", 6}, {"d_ff", 24},
            {"num_heads", 4}, {"num_layers", 4}, {"num_decoder_layers", 3}, {"num_sparse_encoder_layers", 2},
            {"num_sparse_decoder_layers", 3}, {"num_experts", 4}, {"vocab_size", 100}, {"pad_token_id", 0},
            {"decoder_start_token_id", 0}, {"eos_token_id", 1}};
  if (architecture == "NllbMoeForConditionalGeneration")
    return {{"architectures", {architecture}}, {"is_encoder_decoder", true}, {"d_model", 32}, {"encoder_layers", 4},
            {"decoder_layers", 2}, {"encoder_ffn_dim", 24}, {"decoder_ffn_dim", 24}, {"encoder_attention_heads", 4},
            {"decoder_attention_heads", 2}, {"encoder_sparse_step", 2}, {"decoder_sparse_step", 2},
            {"num_experts", 4}, {"max_position_embeddings", 256}, {"vocab_size", 100}, {"pad_token_id", 1},
            {"decoder_start_token_id", 2}, {"eos_token_id", 2}};
  if (architecture == "DbrxForCausalLM")
    return {{"architectures", {architecture}}, {"d_model", 32}, {"n_layers", 3}, {"n_heads", 4}, {"vocab_size", 100},
            {"max_seq_len", 256}, {"attn_config", {{"kv_n_heads", 2}, {"clip_qkv", 8}, {"rope_theta", 10000}}},
            {"ffn_config", {{"ffn_hidden_size", 24}, {"moe_num_experts", 4}, {"moe_top_k", 2}}}};
  if (architecture == "Llama4ForConditionalGeneration")
    return {{"architectures", {architecture}}, {"image_token_index", 9}, {"vision_config", {{"hidden_size", 8}}},
            {"text_config", tiny_config("Llama4ForCausalLM")}};
  nlohmann::json c = {{"architectures", {architecture}}, {"hidden_size", 32},        {"num_hidden_layers", 3},
                      {"num_attention_heads", 4},        {"num_key_value_heads", 2}, {"vocab_size", 100},
                      {"max_position_embeddings", 256},  {"intermediate_size", 48},  {"num_experts_per_tok", 2},
                      {"torch_dtype", "bfloat16"}};
  const bool latent = architecture.starts_with("Deepseek") || architecture == "Glm4MoeLiteForCausalLM";
  const bool grouped = latent || architecture == "Glm4MoeForCausalLM" || architecture == "Dots1ForCausalLM" ||
                       architecture == "SolarOpenForCausalLM";
  const bool ernie = architecture == "Ernie4_5_MoeForCausalLM";
  const bool local = architecture == "MixtralForCausalLM" || architecture == "MiniMaxM2ForCausalLM" ||
                     architecture == "GptOssForCausalLM" || architecture.starts_with("Granite") ||
                     architecture.starts_with("Phi") || architecture.starts_with("Llama4") ||
                     architecture == "ArcticForCausalLM";
  c[grouped ? "n_routed_experts" : local ? "num_local_experts" : "num_experts"] = 4;
  if (grouped) c["moe_intermediate_size"] = 24, c["n_shared_experts"] = 2, c["first_k_dense_replace"] = 0;
  if (latent) {
    c["num_key_value_heads"] = 4, c["n_group"] = c["topk_group"] = 1;
    c["q_lora_rank"] = 20, c["kv_lora_rank"] = 12;
    c["qk_nope_head_dim"] = 10, c["qk_rope_head_dim"] = 6, c["v_head_dim"] = 14;
  }
  if (ernie) c.erase("num_experts"), c.erase("num_experts_per_tok");
  if (ernie) c["moe_num_experts"] = 4, c["moe_k"] = 2, c["moe_intermediate_size"] = 24, c["moe_layer_start_index"] = 0;
  if (architecture == "SolarOpenForCausalLM" || architecture == "MiniMaxM2ForCausalLM" ||
      architecture == "GptOssForCausalLM")
    c["head_dim"] = 8;
  if (architecture == "GptOssForCausalLM")
    c["sliding_window"] = 16, c["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 2.0}};
  if (architecture == "ArcticForCausalLM") c["moe_layer_frequency"] = 1;
  if (architecture.starts_with("Llama4")) c["intermediate_size_mlp"] = 40;
  if (architecture.starts_with("Qwen")) c["moe_intermediate_size"] = 24;
  if (architecture == "Qwen3NextForCausalLM" || architecture == "Qwen3_5MoeForCausalLM") {
    c["head_dim"] = 8, c["shared_expert_intermediate_size"] = 20;
    c["linear_num_key_heads"] = 2, c["linear_num_value_heads"] = 4;
    c["linear_key_head_dim"] = 6, c["linear_value_head_dim"] = 10;
    c["layer_types"] = {"full_attention", "linear_attention", "linear_attention"};
  }
  if (architecture == "Qwen2MoeForCausalLM") c["shared_expert_intermediate_size"] = 40;
  return c;
}

/// The config with the keys of `patch` set (to null, where it says null) and the keys `without` removed, described.
inline Result<ModelDescription> describe(const std::string& architecture, const std::string& patch = "{}",
                                         const std::vector<std::string>& without = {}) {
  nlohmann::json config = tiny_config(architecture);
  config.update(nlohmann::json::parse(patch));
  for (const std::string& key : without) config.erase(key);
  return describe_model(config.dump(), "");
}

/// By its canonical name; null if there is none.
inline const DenseTensor* find(const ModelDescription& d, const std::string& name) {
  for (const DenseTensor& t : d.dense)
    if (t.name == name) return &t;
  return nullptr;
}

}  // namespace moestro::model

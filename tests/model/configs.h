#pragma once
// Small config.json texts of every architecture, to be varied key by key.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/model_spec.h"

namespace moestro::model {

inline nlohmann::json tiny_config(const std::string& architecture) {
  nlohmann::json c = {{"architectures", {architecture}}, {"hidden_size", 32},        {"num_hidden_layers", 3},
                      {"num_attention_heads", 4},        {"num_key_value_heads", 2}, {"vocab_size", 100},
                      {"max_position_embeddings", 256},  {"intermediate_size", 48},  {"num_experts_per_tok", 2},
                      {"torch_dtype", "bfloat16"}};
  const bool latent = architecture.starts_with("Deepseek") || architecture == "Glm4MoeLiteForCausalLM";
  const bool grouped = latent || architecture == "Glm4MoeForCausalLM" || architecture == "Dots1ForCausalLM";
  const bool local = architecture == "MixtralForCausalLM" || architecture == "MiniMaxM2ForCausalLM";
  c[grouped ? "n_routed_experts" : local ? "num_local_experts" : "num_experts"] = 4;
  if (grouped) c["moe_intermediate_size"] = 24, c["n_shared_experts"] = 2, c["first_k_dense_replace"] = 0;
  if (latent) {
    c["num_key_value_heads"] = 4;
    c["q_lora_rank"] = 20, c["kv_lora_rank"] = 12;
    c["qk_nope_head_dim"] = 10, c["qk_rope_head_dim"] = 6, c["v_head_dim"] = 14;
  }
  if (architecture == "MiniMaxM2ForCausalLM") c["head_dim"] = 8;
  if (architecture.starts_with("Qwen")) c["moe_intermediate_size"] = 24;
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

}  // namespace moestro::model

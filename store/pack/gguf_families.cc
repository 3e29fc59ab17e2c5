#include "store/pack/gguf_families.h"

#include <nlohmann/json.hpp>

namespace moestro::store {
namespace {

using nlohmann::json;

// expert_gating_func
constexpr int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;

/// Of a family that rotates whole heads.
void expect_whole_rotation(GgufConfigReader& in, const json& config) {
  in.expect("rope.dimension_count", in.number_if_any("rope.dimension_count"), config["head_dim"].get<double>());
}

int64_t ffn_of_experts(GgufConfigReader& in) {
  const int64_t stacked = in.dimension_in_any_layer(".ffn_gate_exps.weight", 1);
  return in.integer_if_any("expert_feed_forward_length").value_or(stacked);
}

void read_experts(GgufConfigReader& in, json& config, const char* experts_key) {
  config[experts_key] = in.integer("expert_count");
  config["num_experts_per_tok"] = in.integer("expert_used_count");
}

void mixtral(GgufConfigReader& in, json& config) {
  if (in.integer_if_any("expert_count").value_or(0) == 0)
    return in.refuse(unsupported("the model has no experts; Moestro serves Mixture-of-Experts models"));
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_local_experts");
  config["intermediate_size"] = in.integer("feed_forward_length");
  if (const auto window = in.integer_if_any("attention.sliding_window"); window && *window > 0)
    config["sliding_window"] = *window;
  else config["sliding_window"] = nullptr;
}

/// Beside a shared expert; `normalised`: weights of the chosen, if the file does not say.
void read_qwen_experts(GgufConfigReader& in, json& config, bool normalised) {
  read_experts(in, config, "num_experts");
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer_if_any("feed_forward_length").value_or(ffn_of_experts(in));
  config["shared_expert_intermediate_size"] =
      in.integer_if_any("expert_shared_feed_forward_length")
          .value_or(in.dimension_in_any_layer(".ffn_up_shexp.weight", 0));
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(normalised);
}

void qwen2_moe(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  read_qwen_experts(in, config, false);
  config["qkv_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void qwen3_moe(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_experts");
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer_if_any("feed_forward_length").value_or(ffn_of_experts(in));
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(true);
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void olmoe(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_experts");
  config["intermediate_size"] = in.integer("feed_forward_length");
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(false);
  if (const auto clip = in.number_if_any("attention.clamp_kqv"); clip && *clip > 0) config["clip_qkv"] = *clip;
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void expect_sigmoid(GgufConfigReader& in) {
  in.expect("expert_gating_func", in.number_if_any("expert_gating_func"), kSigmoid);
}

/// Experts in groups and beside shared ones, as DeepSeek has them, after the first layers.
void read_grouped(GgufConfigReader& in, json& config) {
  read_experts(in, config, "n_routed_experts");
  config["n_shared_experts"] = in.integer("expert_shared_count");
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer("feed_forward_length");
  config["first_k_dense_replace"] = in.integer_if_any("leading_dense_block_count").value_or(0);
  config["routed_scaling_factor"] = in.number_if_any("expert_weights_scale").value_or(1.0);
  config["norm_topk_prob"] = in.flag_if_any("expert_weights_norm").value_or(false);
  config["n_group"] = in.integer_if_any("expert_group_count").value_or(1);
  config["topk_group"] = in.integer_if_any("expert_group_used_count").value_or(1);
}

/// The router of DeepSeek-V3's kind in families with whole heads.
void read_sigmoid_grouped(GgufConfigReader& in, json& config) {
  read_grouped(in, config);
  expect_sigmoid(in);
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
}

void glm4_moe(GgufConfigReader& in, json& config) {
  read_sigmoid_grouped(in, config);
  const double head_dim = config["head_dim"].get<double>();
  config["partial_rotary_factor"] = static_cast<double>(in.integer("rope.dimension_count")) / head_dim;
  config["use_qk_norm"] = in.has_tensor("blk.0.attn_q_norm.weight");
  if (!config.contains("num_nextn_predict_layers")) config["num_nextn_predict_layers"] = 0;
}

void dots1(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  read_sigmoid_grouped(in, config);
  config["sliding_window"] = nullptr;
}

void minimax_m2(GgufConfigReader& in, json& config) {
  read_experts(in, config, "num_local_experts");
  in.integer_if_any("feed_forward_length");
  config["intermediate_size"] = ffn_of_experts(in);
  config["rotary_dim"] = in.integer("rope.dimension_count");
  config["scoring_func"] = "sigmoid";
  expect_sigmoid(in);
}

// Of gpt-oss: nothing is rounded in YaRN's borders, whatever llama.cpp does.
void gpt_oss(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_local_experts");
  in.integer_if_any("feed_forward_length");
  config["intermediate_size"] = ffn_of_experts(in);
  config["sliding_window"] = in.integer("attention.sliding_window");
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
  in.expect("expert_gating_func", in.number_if_any("expert_gating_func"), static_cast<double>(kSoftmaxOfChosen));
  if (config.contains("rope_scaling")) config["rope_scaling"]["truncate"] = false;
  else config["rope_scaling"] = {{"rope_type", "default"}};
}

// Heads of a key for each latent, in files since the latent is what is cached; before that, whole heads.
void read_latents(GgufConfigReader& in, json& config) {
  const int64_t rank = in.integer("attention.kv_lora_rank"), rope = in.integer("rope.dimension_count");
  const auto key = in.integer_if_any("attention.key_length_mla");
  const auto value = in.integer_if_any("attention.value_length_mla");
  const int64_t key_length = in.integer("attention.key_length"), value_length = in.integer("attention.value_length");
  config["num_key_value_heads"] = config["num_attention_heads"];
  config["q_lora_rank"] = nullptr;
  if (const auto q_rank = in.integer_if_any("attention.q_lora_rank")) config["q_lora_rank"] = *q_rank;
  config["kv_lora_rank"] = rank;
  config["qk_rope_head_dim"] = rope;
  config["qk_nope_head_dim"] = key.value_or(key_length) - rope;
  config["v_head_dim"] = value.value_or(value_length);
  if (!config.contains("rope_scaling")) return;
  // What the scores are corrected by: 0.1 times mscale_all_dim, which every published model has as mscale.
  const double mscale = 10 * in.number_if_any("rope.scaling.yarn_log_multiplier").value_or(0.0);
  config["rope_scaling"]["mscale"] = config["rope_scaling"]["mscale_all_dim"] = mscale;
}

// DeepSeek-V2 with a softmax; V3, R1, Kimi-K2 and GLM-4.7-Flash with sigmoids, which alone have a bias of the choice.
void deepseek2(GgufConfigReader& in, json& config) {
  read_latents(in, config);
  read_grouped(in, config);
  const bool biased = in.dimension_in_any_layer(".exp_probs_b.bias", 0) > 0;
  const auto gating = in.integer_if_any("expert_gating_func").value_or(biased ? kSigmoid : kSoftmax);
  if (gating == kSigmoid) {
    config["architectures"] = {"DeepseekV3ForCausalLM"};
    if (!in.has("expert_group_count"))
      in.remark("the file does not say how many groups its experts have (" + in.full("expert_group_count") +
                "): they are routed as one group; DeepSeek-V3 and R1 have 8, so take a newer file of those");
    return;
  }
  in.expect("expert_gating_func", static_cast<double>(gating), static_cast<double>(kSoftmax));
  config["topk_method"] = config["n_group"] == 1 ? "greedy" : "group_limited_greedy";
}

void ernie4_5_moe(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  config["moe_num_experts"] = in.integer("expert_count");
  config["moe_k"] = in.integer("expert_used_count");
  config["moe_num_shared_experts"] = in.integer_if_any("expert_shared_count").value_or(0);
  in.integer_if_any("expert_shared_feed_forward_length");  // the converter makes it of numbers that have none to do
  config["moe_intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size"] = in.integer("feed_forward_length");
  config["moe_layer_interval"] = in.integer_if_any("interleave_moe_layer_step").value_or(1);
  config["moe_layer_start_index"] = in.integer_if_any("leading_dense_block_count").value_or(0);
}

void granitemoe(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_local_experts");
  config["intermediate_size"] = in.integer("feed_forward_length");
  config["attention_multiplier"] = in.number_if_any("attention.scale").value_or(1.0);
  config["embedding_multiplier"] = in.number_if_any("embedding_scale").value_or(1.0);
  config["residual_multiplier"] = in.number_if_any("residual_scale").value_or(1.0);
  config["logits_scaling"] = in.number_if_any("logit_scale").value_or(1.0);
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
  const auto shared = in.integer_if_any("expert_shared_feed_forward_length");
  if (!in.has_tensor("blk.0.ffn_up_shexp.weight")) return;
  config["architectures"] = {"GraniteMoeSharedForCausalLM"};
  config["shared_intermediate_size"] = shared.value_or(in.dimension_in_any_layer(".ffn_up_shexp.weight", 0));
}

// What the metadata do not say is as in the published models: chunks, layers without RoPE, the norm of rotated heads
// in all but the one with 128 experts.
void llama4(GgufConfigReader& in, json& config) {
  constexpr int64_t kWithNorm = 16, kWithoutNorm = 128;
  expect_whole_rotation(in, config);
  read_experts(in, config, "num_local_experts");
  config["intermediate_size"] = ffn_of_experts(in);
  config["intermediate_size_mlp"] = in.integer("feed_forward_length");
  config["interleave_moe_layer_step"] = in.integer_if_any("interleave_moe_layer_step").value_or(1);
  const auto experts = config["num_local_experts"].get<int64_t>();
  config["use_qk_norm"] = experts != kWithoutNorm;
  if (experts != kWithNorm && experts != kWithoutNorm)
    in.remark("the file does not say whether rotated heads are normed (use_qk_norm): they are, as in the published "
              "model with 16 experts; the one with 128 does not norm them, and this one has " +
              std::to_string(experts));
  config["attention_bias"] = in.has_tensor("blk.0.attn_q.bias");
  expect_sigmoid(in);
}

/// Which layers have the gated delta rule: by a list, or all but every nth.
void read_layer_types(GgufConfigReader& in, json& config) {
  const auto interval = in.integer_if_any("full_attention_interval");
  const std::vector<bool> recurrent = in.flags_if_any("attention.recurrent_layers");
  const auto layers = config["num_hidden_layers"].get<size_t>();
  if (recurrent.empty()) {
    config["full_attention_interval"] = interval.value_or(4);
    return;
  }
  if (recurrent.size() < layers)
    return in.refuse(invalid_argument("metadata " + model::in_quotes(in.full("attention.recurrent_layers")) +
                                      " does not name every layer"));
  for (size_t i = 0; i < layers; ++i)
    config["layer_types"].push_back(recurrent[i] ? "linear_attention" : "full_attention");
}

// The sections of rotated components are of images: in text, all have the same position.
void qwen3_hybrid(GgufConfigReader& in, json& config) {
  read_qwen_experts(in, config, true);
  read_layer_types(in, config);
  const int64_t value_heads = in.integer("ssm.time_step_rank"), values = in.integer("ssm.inner_size");
  if (value_heads < 1 || values % value_heads != 0)
    return in.refuse(invalid_argument("metadata " + model::in_quotes(in.full("ssm.inner_size")) + " (" +
                                      std::to_string(values) + ") must be a multiple of ssm.time_step_rank (" +
                                      std::to_string(value_heads) + ")"));
  config["linear_num_value_heads"] = value_heads;
  config["linear_value_head_dim"] = values / value_heads;
  config["linear_num_key_heads"] = in.integer("ssm.group_count");
  config["linear_key_head_dim"] = in.integer("ssm.state_size");
  config["linear_conv_kernel_dim"] = in.integer("ssm.conv_kernel");
  config["partial_rotary_factor"] =
      static_cast<double>(in.integer("rope.dimension_count")) / config["head_dim"].get<double>();
  in.integers_if_any("rope.dimension_sections");
  config["attention_bias"] = in.dimension_in_any_layer(".attn_q.bias", 0) > 0;
  config["weights_as_in_gguf"] = true;
  if (!config.contains("num_nextn_predict_layers")) return;
  config["mtp_num_hidden_layers"] = config["num_nextn_predict_layers"];
  config.erase("num_nextn_predict_layers");
}

void arctic(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  config.erase("head_dim");
  read_experts(in, config, "num_local_experts");
  config["intermediate_size"] = ffn_of_experts(in);
  in.integer_if_any("feed_forward_length");
  config["moe_layer_frequency"] = 1;
  config["parallel_attn_mlp_res"] = true;
}

// DBRX's config.json has names and sections of its own, and none for what its norms add.
void dbrx(GgufConfigReader& in, json& config) {
  expect_whole_rotation(in, config);
  for (const auto* key : {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"})
    in.expect(key, in.number_if_any(key), 1e-5);
  read_experts(in, config, "experts");
  json own = {{"architectures", config["architectures"]},
              {"d_model", config["hidden_size"]},
              {"n_heads", config["num_attention_heads"]},
              {"n_layers", config["num_hidden_layers"]},
              {"max_seq_len", config["max_position_embeddings"]},
              {"vocab_size", config["vocab_size"]},
              {"tie_word_embeddings", config["tie_word_embeddings"]},
              {"eos_token_id", config["eos_token_id"]},
              {"bos_token_id", config["bos_token_id"]},
              {"attn_config", {{"kv_n_heads", config["num_key_value_heads"]}, {"rope_theta", config["rope_theta"]}}},
              {"ffn_config",
               {{"ffn_hidden_size", in.integer("feed_forward_length")},
                {"moe_num_experts", config["experts"]},
                {"moe_top_k", config["num_experts_per_tok"]},
                {"moe_normalize_expert_weights", 1}}}};
  if (const auto clip = in.number_if_any("attention.clamp_kqv"); clip && *clip > 0)
    own["attn_config"]["clip_qkv"] = *clip;
  if (config.contains("rope_scaling")) own["rope_scaling"] = config["rope_scaling"];
  config = std::move(own);
}

constexpr GgufFamily kFamilies[] = {
    {"llama", "MixtralForCausalLM", mixtral},
    {"qwen2moe", "Qwen2MoeForCausalLM", qwen2_moe},
    {"qwen3moe", "Qwen3MoeForCausalLM", qwen3_moe},
    {"qwen3next", "Qwen3NextForCausalLM", qwen3_hybrid},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", qwen3_hybrid},
    {"olmoe", "OlmoeForCausalLM", olmoe},
    {"glm4moe", "Glm4MoeForCausalLM", glm4_moe},
    {"dots1", "Dots1ForCausalLM", dots1},
    {"minimax-m2", "MiniMaxM2ForCausalLM", minimax_m2},
    {"gpt-oss", "GptOssForCausalLM", gpt_oss},
    {"deepseek2", "DeepseekV2ForCausalLM", deepseek2, true},
    {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", ernie4_5_moe},
    {"granitemoe", "GraniteMoeForCausalLM", granitemoe},
    {"llama4", "Llama4ForCausalLM", llama4},
    {"arctic", "ArcticForCausalLM", arctic},
    {"dbrx", "DbrxForCausalLM", dbrx},
};

}  // namespace

std::span<const GgufFamily> gguf_families() { return kFamilies; }

}  // namespace moestro::store

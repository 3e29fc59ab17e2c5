// config.json of models as they are published, or saved again by later tools: every one is read, and the shapes that
// follow add up to the known size of the model.

#include <gtest/gtest.h>

#include "common/model/model_spec.h"

namespace moestro::model {
namespace {

struct Published {
  const char* name;
  double billions;  ///< of parameters
  const char* config;
  int64_t window = 0;  ///< of every second layer
};

const Published kPublished[] = {
    {"Mixtral-8x7B-v0.1", 46.70,
     R"({"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
      "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.36.0.dev0", "use_cache": true,
      "vocab_size": 32000})"},
    {"Mixtral-8x7B-Instruct-v0.1, saved with biases named", 46.70, R"({"architectures": ["MixtralForCausalLM"],
      "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": null,
      "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
      "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
      "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false,
      "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "router_jitter_noise": 0.0,
      "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.42.0",
      "use_cache": true, "vocab_size": 32000})"},
    {"Qwen1.5-MoE-A2.7B", 14.32,
     R"({"architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
      "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5632,
      "max_position_embeddings": 8192, "max_window_layers": 21, "model_type": "qwen2_moe", "num_attention_heads": 16,
      "num_hidden_layers": 24, "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.39.0.dev0", "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936, "decoder_sparse_step": 1, "moe_intermediate_size": 1408,
      "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60, "norm_topk_prob": false,
      "output_router_logits": false, "router_aux_loss_coef": 0.001})"},
    {"Qwen2-57B-A14B", 57.41,
     R"({"architectures": ["Qwen2MoeForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
      "decoder_sparse_step": 1, "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
      "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28, "mlp_only_layers": [],
      "model_type": "qwen2_moe", "moe_intermediate_size": 2560, "norm_topk_prob": false, "num_attention_heads": 28,
      "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 28, "num_key_value_heads": 4,
      "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001,
      "shared_expert_intermediate_size": 20480, "sliding_window": 131072, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_sliding_window": false,
      "vocab_size": 151936})"},
    {"Qwen3-30B-A3B", 30.53,
     R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144, "max_position_embeddings": 40960,
      "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
      "vocab_size": 151936})"},
    {"Qwen3-30B-A3B-Instruct-2507", 30.53, R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
      "max_position_embeddings": 262144, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
      "moe_intermediate_size": 768, "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
      "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000, "router_aux_loss_coef": 0.001,
      "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.51.0",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})"},
    {"Qwen3-235B-A22B", 235.09,
     R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 40960,
      "max_window_layers": 94, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 1536,
      "norm_topk_prob": true, "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 94,
      "num_key_value_heads": 4, "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false,
      "vocab_size": 151936})"},
    {"Qwen3-Coder-30B-A3B-Instruct", 30.53, R"({"architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false,
      "attention_dropout": 0.0, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5472, "max_position_embeddings": 262144,
      "max_window_layers": 28, "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 768,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "output_router_logits": false, "qkv_bias": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
      "rope_theta": 10000000, "router_aux_loss_coef": 0.0, "shared_expert_intermediate_size": 0, "sliding_window": null,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.52.3", "use_cache": true,
      "use_qk_norm": true, "use_sliding_window": false, "vocab_size": 151936})"},
    {"Qwen3-Next-80B-A3B-Instruct, without the layer that predicts further tokens", 79.67,
     R"({"architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval": 4,
      "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 5120,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
      "linear_value_head_dim": 128, "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_next",
      "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
      "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2, "output_router_logits": false,
      "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000000,
      "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.57.0.dev0", "use_cache": true,
      "use_sliding_window": false, "vocab_size": 151936})"},
    {"Qwen3.5-35B-A3B, the text model", 34.66,
     R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "image_token_id": 248056, "model_type": "qwen3_5_moe",
      "text_config": {"attention_bias": false, "attention_dropout": 0.0, "attn_output_gate": true, "dtype": "bfloat16",
       "eos_token_id": 248044, "full_attention_interval": 4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048,
       "initializer_range": 0.02, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
       "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
       "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_5_moe_text",
       "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
       "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40,
       "num_key_value_heads": 2, "output_router_logits": false, "rms_norm_eps": 1e-06,
       "rope_parameters": {"mrope_interleaved": true, "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25,
        "rope_theta": 10000000, "rope_type": "default"},
       "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512, "use_cache": true, "vocab_size": 248320},
      "tie_word_embeddings": false, "transformers_version": "4.57.0.dev0", "video_token_id": 248057,
      "vision_config": {"depth": 27, "hidden_size": 1152}, "vision_end_token_id": 248054,
      "vision_start_token_id": 248053})"},
    {"GLM-4.5-Air, without the layer that predicts further tokens", 106.85,
     R"({"architectures": ["Glm4MoeForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "pad_token_id": 151329,
      "eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
      "partial_rotary_factor": 0.5, "initializer_range": 0.02, "intermediate_size": 10944, "max_position_embeddings": 131072,
      "model_type": "glm4_moe", "moe_intermediate_size": 1408, "norm_topk_prob": true, "num_attention_heads": 96,
      "n_group": 1, "topk_group": 1, "n_routed_experts": 128, "n_shared_experts": 1, "routed_scaling_factor": 1.0,
      "num_experts_per_tok": 8, "first_k_dense_replace": 1, "num_hidden_layers": 46, "num_key_value_heads": 8,
      "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000, "num_nextn_predict_layers": 1,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.54.0", "use_cache": true,
      "use_qk_norm": false, "vocab_size": 151552})"},
    {"dots.llm1.inst", 142.77,
     R"({"architectures": ["Dots1ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "eos_token_id": 151649,
      "first_k_dense_replace": 1, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
      "intermediate_size": 10944, "max_position_embeddings": 32768, "max_window_layers": 62, "model_type": "dots1",
      "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 128, "n_shared_experts": 2,
      "norm_topk_prob": true, "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 62,
      "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000000,
      "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "sliding_window": null, "tie_word_embeddings": false,
      "topk_group": 1, "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.46.3",
      "use_cache": true, "use_sliding_window": false, "vocab_size": 152064})"},
    {"MiniMax-M2, dequantised", 228.69,
     R"({"architectures": ["MiniMaxM2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": null, "eos_token_id": null,
      "head_dim": 128, "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 1536,
      "layernorm_full_attention_beta": 1.0, "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta": 1.0,
      "max_position_embeddings": 196608, "mlp_intermediate_size": 8192, "model_type": "minimax_m2",
      "mtp_transformer_layers": 1, "num_attention_heads": 48, "num_experts_per_tok": 8, "num_hidden_layers": 62,
      "num_key_value_heads": 8, "num_local_experts": 256, "num_mtp_modules": 3, "output_router_logits": false,
      "qk_norm_type": "per_layer", "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64,
      "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "scoring_func": "sigmoid", "shared_intermediate_size": 0,
      "shared_moe_mode": "sigmoid", "sliding_window": null, "tie_word_embeddings": false, "transformers_version": "4.57.1",
      "use_cache": true, "use_mtp": true, "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200064})"},
    {"DeepSeek-V2-Lite", 15.71,
     R"({"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map": {},
      "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "first_k_dense_replace": 1,
      "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 10944, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1,
      "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 16,
      "num_experts_per_tok": 6, "num_hidden_layers": 27, "num_key_value_heads": 16, "pretraining_tp": 1, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_scaling": {"beta_fast": 32,
      "beta_slow": 1, "factor": 40, "mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096,
      "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "seq_aux": true,
      "tie_word_embeddings": false, "topk_group": 1, "topk_method": "greedy", "torch_dtype": "bfloat16",
      "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128, "vocab_size": 102400})"},
    {"DeepSeek-Coder-V2-Instruct", 235.74,
     R"({"architectures": ["DeepseekV2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "aux_loss_alpha": 0.001, "bos_token_id": 100000, "eos_token_id": 100001, "ep_size": 1, "first_k_dense_replace": 1,
      "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02, "intermediate_size": 12288, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v2", "moe_intermediate_size": 1536, "moe_layer_freq": 1,
      "n_group": 8, "n_routed_experts": 160, "n_shared_experts": 2, "norm_topk_prob": false, "num_attention_heads": 128,
      "num_experts_per_tok": 6, "num_hidden_layers": 60, "num_key_value_heads": 128, "pretraining_tp": 1,
      "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "routed_scaling_factor": 16.0, "scoring_func": "softmax",
      "seq_aux": true, "tie_word_embeddings": false, "topk_group": 3, "topk_method": "group_limited_greedy",
      "torch_dtype": "bfloat16", "transformers_version": "4.39.3", "use_cache": true, "v_head_dim": 128,
      "vocab_size": 102400})"},
    {"DeepSeek-V3 in bf16, without the layer that predicts further tokens", 671.03,
     R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map": {},
      "aux_loss_alpha": 0.001, "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3,
      "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 163840, "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1,
      "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 128,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
      "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 10000, "routed_scaling_factor": 2.5,
      "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
      "torch_dtype": "bfloat16", "transformers_version": "4.33.1", "use_cache": true, "v_head_dim": 128,
      "vocab_size": 129280})"},
    {"Kimi-K2-Instruct in bf16", 1026.41,
     R"({"architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "auto_map": {},
      "aux_loss_alpha": 0.001, "bos_token_id": 163584, "eos_token_id": 163585, "first_k_dense_replace": 1,
      "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 18432, "kv_lora_rank": 512,
      "max_position_embeddings": 131072, "model_type": "kimi_k2", "moe_intermediate_size": 2048, "moe_layer_freq": 1,
      "n_group": 1, "n_routed_experts": 384, "n_shared_experts": 1, "norm_topk_prob": true, "num_attention_heads": 64,
      "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 64, "num_nextn_predict_layers": 0,
      "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06,
      "rope_scaling": {"beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096, "type": "yarn"}, "rope_theta": 50000.0, "routed_scaling_factor": 2.827,
      "scoring_func": "sigmoid", "seq_aux": true, "tie_word_embeddings": false, "topk_group": 1, "topk_method": "noaux_tc",
      "torch_dtype": "bfloat16", "transformers_version": "4.48.3", "use_cache": true, "v_head_dim": 128,
      "vocab_size": 163840})"},
    {"GLM-4.7-Flash, without the layer that predicts further tokens", 29.94,
     R"({"architectures": ["Glm4MoeLiteForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "pad_token_id": 154820, "eos_token_id": [154820, 154827, 154829], "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 10240, "max_position_embeddings": 202752, "model_type": "glm4_moe_lite",
      "moe_intermediate_size": 1536, "topk_method": "noaux_tc", "norm_topk_prob": true, "num_attention_heads": 20,
      "n_group": 1, "topk_group": 1, "n_routed_experts": 64, "n_shared_experts": 1, "routed_scaling_factor": 1.8,
      "num_experts_per_tok": 4, "first_k_dense_replace": 1, "num_hidden_layers": 47, "num_key_value_heads": 20,
      "num_nextn_predict_layers": 1, "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 1000000, "tie_word_embeddings": false, "dtype": "bfloat16", "transformers_version": "5.0.0rc0",
      "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
      "vocab_size": 154880})"},
    {"gpt-oss-20b, as published in MXFP4", 20.91,
     R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
      "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
      "initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 8,
      "num_local_experts": 32, "output_router_logits": false, "pad_token_id": 199999,
      "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
       "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
       "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
      "swiglu_limit": 7.0, "tie_word_embeddings": false, "transformers_version": "4.55.0.dev0", "use_cache": true,
      "vocab_size": 201088})", 128},
    {"gpt-oss-120b, as published in MXFP4", 116.83,
     R"({"architectures": ["GptOssForCausalLM"], "attention_bias": true, "attention_dropout": 0.0, "eos_token_id": 200002,
      "experts_per_token": 4, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2880, "initial_context_length": 4096,
      "initializer_range": 0.02, "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss",
      "num_attention_heads": 64, "num_experts_per_tok": 4, "num_hidden_layers": 36, "num_key_value_heads": 8,
      "num_local_experts": 128, "output_router_logits": false, "pad_token_id": 199999,
      "quantization_config": {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
       "model.embed_tokens", "lm_head"], "quant_method": "mxfp4"}, "rms_norm_eps": 1e-05,
      "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
       "rope_type": "yarn", "truncate": false}, "rope_theta": 150000, "router_aux_loss_coef": 0.9, "sliding_window": 128,
      "swiglu_limit": 7.0, "tie_word_embeddings": false, "transformers_version": "4.55.0.dev0", "use_cache": true,
      "vocab_size": 201088})", 128},
    {"ERNIE-4.5-21B-A3B-PT", 21.83,
     R"({"architectures": ["Ernie4_5_MoeForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
      "hidden_size": 2560, "intermediate_size": 12288, "max_position_embeddings": 131072, "model_type": "ernie4_5_moe",
      "num_attention_heads": 20, "num_key_value_heads": 4, "num_hidden_layers": 28, "pad_token_id": 0,
      "rms_norm_eps": 1e-05, "use_cache": true, "vocab_size": 103424, "rope_theta": 500000, "use_bias": false,
      "moe_num_experts": 64, "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1,
      "moe_layer_interval": 1, "moe_intermediate_size": 1536, "moe_k": 6, "moe_gate": "topk", "moe_use_aux_free": true,
      "num_nextn_predict_layers": 1, "tie_word_embeddings": true, "torch_dtype": "bfloat16"})"},
    {"granite-3.0-1b-a400m-base", 1.33,
     R"({"architectures": ["GraniteMoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.1,
      "attention_multiplier": 0.015625, "bos_token_id": 0, "embedding_multiplier": 12.0, "eos_token_id": 0,
      "hidden_act": "silu", "hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 512,
      "logits_scaling": 6.0, "max_position_embeddings": 4096, "model_type": "granitemoe", "num_attention_heads": 16,
      "num_experts_per_tok": 8, "num_hidden_layers": 24, "num_key_value_heads": 8, "num_local_experts": 32,
      "output_router_logits": false, "pad_token_id": 0, "residual_multiplier": 0.22, "rms_norm_eps": 1e-06,
      "rope_scaling": null, "rope_theta": 10000, "router_aux_loss_coef": 0.0, "tie_word_embeddings": true,
      "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 49152})"},
    {"dbrx-instruct", 131.60,
     R"({"architectures": ["DbrxForCausalLM"], "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "model_type": "",
       "rope_theta": 500000}, "d_model": 6144, "emb_pdrop": 0.0, "ffn_config": {"ffn_hidden_size": 10752,
       "model_type": "", "moe_jitter_eps": 0, "moe_loss_weight": 0.05, "moe_num_experts": 16, "moe_top_k": 4},
      "initializer_range": 0.02, "max_seq_len": 32768, "model_type": "dbrx", "n_heads": 48, "n_layers": 40,
      "output_router_logits": false, "resid_pdrop": 0.0, "router_aux_loss_coef": 0.05, "tie_word_embeddings": false,
      "torch_dtype": "bfloat16", "transformers_version": "4.38.2", "use_cache": true, "vocab_size": 100352})"},
    {"snowflake-arctic-instruct", 478.58,
     R"({"architectures": ["ArcticForCausalLM"], "attention_dropout": 0, "auto_map": {}, "bos_token_id": 31998,
      "enable_expert_tensor_parallelism": false, "enc_index": [0], "eos_token_id": 31999, "hidden_act": "silu",
      "hidden_size": 7168, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 4096,
      "max_sequence_length": 4096, "model_type": "arctic", "moe_eval_capacity_factor": 1, "moe_layer_frequency": 1,
      "moe_min_capacity": 0, "moe_token_dropping": true, "moe_train_capacity_factor": 1, "num_attention_heads": 56,
      "num_experts_per_tok": 2, "num_hidden_layers": 35, "num_key_value_heads": 8, "num_local_experts": 128,
      "parallel_attn_mlp_res": true, "quantization": null, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 10000, "router_aux_loss_coef": 0.001, "sliding_window": null, "torch_dtype": "bfloat16",
      "transformers_version": "4.39.0.dev0", "use_cache": true, "use_residual": true, "vocab_size": 32000})"},
    // Their text models: the tower has about 0.86 more.
    {"Llama-4-Scout-17B-16E", 107.77,
     R"({"architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 200080, "eoi_token_index": 200081,
      "image_token_index": 200092, "model_type": "llama4", "text_config": {"_attn_implementation_autoset": true, "attention_bias": false, "attention_chunk_size": 8192,
      "attention_dropout": 0.0, "bos_token_id": 200000, "eos_token_id": [200001, 200007, 200008],
      "for_llm_compressor": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
      "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
      "max_position_embeddings": 10485760, "model_type": "llama4_text", "no_rope_layers": [], "num_attention_heads": 40,
      "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16,
      "output_router_logits": false, "pad_token_id": 200018, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0,
       "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
      "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "torch_dtype": "bfloat16",
      "use_cache": true, "use_qk_norm": true, "vocab_size": 202048}, "torch_dtype": "bfloat16",
      "transformers_version": "4.51.0.dev0", "vision_config": {"hidden_size": 1408, "image_size": 336,
       "intermediate_size": 5632, "model_type": "llama4_vision_model", "num_hidden_layers": 34}})"},
    {"Llama-4-Maverick-17B-128E", 400.71,
     R"({"architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 200080, "eoi_token_index": 200081,
      "image_token_index": 200092, "model_type": "llama4", "text_config": {"_attn_implementation_autoset": true, "attention_bias": false, "attention_chunk_size": 8192,
      "attention_dropout": 0.0, "attn_scale": 0.1,
      "attn_temperature_tuning": 4, "floor_scale": 8192, "bos_token_id": 200000, "eos_token_id": [200001, 200007, 200008],
      "for_llm_compressor": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120, "initializer_range": 0.02,
      "interleave_moe_layer_step": 2, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
      "max_position_embeddings": 1048576, "model_type": "llama4_text", "moe_layers": [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23,
       25, 27, 29, 31, 33, 35, 37, 39, 41, 43, 45, 47], "no_rope_layers": [], "num_attention_heads": 40,
      "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 128,
      "output_router_logits": false, "pad_token_id": 200018, "rms_norm_eps": 1e-05, "rope_scaling": null,
      "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "torch_dtype": "bfloat16",
      "use_cache": true, "use_qk_norm": false, "vocab_size": 202048}, "torch_dtype": "bfloat16",
      "transformers_version": "4.51.0.dev0", "vision_config": {"hidden_size": 1408, "image_size": 336,
       "intermediate_size": 5632, "model_type": "llama4_vision_model", "num_hidden_layers": 34}})"},
    {"OLMoE-1B-7B-0924", 6.92,
     R"({"architectures": ["OlmoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
      "clip_qkv": null, "eos_token_id": 50279, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
      "intermediate_size": 1024, "max_position_embeddings": 4096, "model_type": "olmoe", "norm_topk_prob": false,
      "num_attention_heads": 16, "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16, "num_key_value_heads": 16,
      "output_router_logits": false, "pad_token_id": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 10000.0,
      "router_aux_loss_coef": 0.01, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.43.0.dev0", "use_cache": true, "vocab_size": 50304})"},
};

double billions(const ModelDescription& d) {
  double sum = 0;
  for (const DenseTensor& t : d.dense) {
    double n = 1;
    for (const int64_t s : t.shape) n *= static_cast<double>(s);
    sum += n;
  }
  const ExpertSpec& expert = d.spec.moe().expert;
  const int64_t biases = expert.bias ? 2 * expert.ffn + expert.hidden : 0;
  return (sum + static_cast<double>(3 * expert.hidden * expert.ffn + biases) * static_cast<double>(d.experts.size())) /
         1e9;
}

TEST(PublishedConfigs, AreReadAndAddUp) {
  for (const Published& p : kPublished) {
    const auto d = describe_model(p.config, "");
    ASSERT_TRUE(d) << p.name << ": " << d.status().message();
    EXPECT_NEAR(billions(*d), p.billions, 0.01) << p.name;
    for (const LayerSpec& layer : d->spec.layers)
      EXPECT_EQ(layer.attention.sliding_window, layer.index.value % 2 == 0 ? p.window : 0) << p.name;
  }
}

TEST(PublishedConfigs, LayerTypesThatSayWhatHoldsAnyway) {
  const auto types = [](const std::string& type) {
    std::string text = "\"layer_types\": [";
    for (int i = 0; i < 48; ++i) text += (i > 0 ? ", \"" : "\"") + type + "\"";
    return text + "], ";
  };
  for (const bool sliding : {false, true}) {
    std::string config = kPublished[4].config;
    if (sliding) config.replace(config.find("\"use_sliding_window\": false"), 27, "\"use_sliding_window\": true ");
    if (sliding) config.replace(config.find("\"sliding_window\": null"), 22, "\"sliding_window\": 4096");
    config.insert(1, types(sliding ? "sliding_attention" : "full_attention"));
    const auto d = describe_model(config, "");
    ASSERT_TRUE(d) << d.status().message();
    EXPECT_EQ(d->spec.layers[3].attention.sliding_window, sliding ? 4096 : 0);
  }
}

// Its 64 factors of each kind are made up; the rest is as published.
TEST(PublishedConfigs, Phi35Moe) {
  std::string factors = "[1.0";
  for (int i = 1; i < 64; ++i) factors += ", " + std::to_string(1.0 + i);
  factors += "]";
  const auto d = describe_model(R"({"architectures": ["PhiMoEForCausalLM"], "attention_bias": true,
      "attention_dropout": 0.0, "auto_map": {}, "bos_token_id": 1, "eos_token_id": 32000, "hidden_act": "silu",
      "hidden_size": 4096, "initializer_range": 0.02, "input_jitter_noise": 0.01, "intermediate_size": 6400,
      "lm_head_bias": true, "max_position_embeddings": 131072, "model_type": "phimoe", "num_attention_heads": 32,
      "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 16,
      "original_max_position_embeddings": 4096, "output_router_logits": false, "rms_norm_eps": 1e-05,
      "rope_scaling": {"long_factor": )" + factors + R"(, "long_mscale": 1.243163121016122,
       "original_max_position_embeddings": 4096, "short_factor": )" + factors + R"(, "short_mscale": 1.243163121016122,
       "type": "longrope"}, "rope_theta": 10000.0, "router_aux_loss_coef": 0.0, "router_jitter_noise": 0.01,
      "sliding_window": 131072, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
      "transformers_version": "4.43.3", "use_cache": true, "vocab_size": 32064})", "");
  ASSERT_TRUE(d) << d.status().message();
  EXPECT_NEAR(billions(*d), 41.87, 0.01);
  EXPECT_EQ(d->spec.rope.original_max_position, 4096);
  EXPECT_EQ(d->spec.max_position, 131072);
}

}  // namespace
}  // namespace moestro::model

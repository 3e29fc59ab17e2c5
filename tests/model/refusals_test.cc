// What the engine lacks, and what makes no sense, is refused by name.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/configs.h"

namespace moestro::model {
namespace {

using testing::HasSubstr;

struct Refusal {
  const char* architecture;
  const char* patch;
  Code code;
  const char* says;
};

const Refusal kRefusals[] = {
    {"MixtralForCausalLM", R"({"architectures": ["LlamaForCausalLM"]})", Code::kUnsupported, "'LlamaForCausalLM'"},
    {"MixtralForCausalLM", R"({"architectures": null})", Code::kInvalidArgument, "architectures"},
    {"MixtralForCausalLM", R"({"architectures": ["MixtralForCausalLM", "X"]})", Code::kInvalidArgument,
     "architectures"},
    {"MixtralForCausalLM", R"({"hidden_size": null})", Code::kInvalidArgument, "hidden_size is null"},
    {"MixtralForCausalLM", R"({"hidden_size": "32"})", Code::kInvalidArgument, "hidden_size"},
    {"MixtralForCausalLM", R"({"hidden_size": 32.5})", Code::kInvalidArgument, "hidden_size"},
    {"MixtralForCausalLM", R"({"hidden_size": 0})", Code::kInvalidArgument, "hidden_size"},
    {"MixtralForCausalLM", R"({"hidden_size": -32})", Code::kInvalidArgument, "hidden_size"},
    {"MixtralForCausalLM", R"({"hidden_size": 18446744073709551615})", Code::kInvalidArgument, "hidden_size"},
    {"MixtralForCausalLM", R"({"hidden_size": 9223372036854775807})", Code::kInvalidArgument, "hidden_size"},
    {"MixtralForCausalLM", R"({"num_hidden_layers": 1000000})", Code::kInvalidArgument, "num_hidden_layers"},
    {"MixtralForCausalLM", R"({"num_hidden_layers": 1000, "num_local_experts": 8000})", Code::kUnsupported,
     "experts in all"},
    {"MixtralForCausalLM", R"({"num_key_value_heads": 3})", Code::kInvalidArgument, "num_key_value_heads (3)"},
    {"MixtralForCausalLM", R"({"num_key_value_heads": 8})", Code::kInvalidArgument, "num_key_value_heads (8)"},
    {"MixtralForCausalLM", R"({"num_attention_heads": 6})", Code::kInvalidArgument, "head_dim"},
    {"MixtralForCausalLM", R"({"head_dim": 7})", Code::kUnsupported, "head_dim"},
    {"MixtralForCausalLM", R"({"num_experts_per_tok": 5})", Code::kInvalidArgument, "num_experts_per_tok (5)"},
    {"MixtralForCausalLM", R"({"rms_norm_eps": 0})", Code::kInvalidArgument, "rms_norm_eps"},
    {"MixtralForCausalLM", R"({"tie_word_embeddings": 1})", Code::kInvalidArgument, "tie_word_embeddings"},
    {"MixtralForCausalLM", R"({"hidden_act": "gelu"})", Code::kUnsupported, "hidden_act 'gelu'"},
    {"MixtralForCausalLM", R"({"quantization_config": {"bits": 4}})", Code::kUnsupported, "quantization_config"},
    {"MixtralForCausalLM", R"({"is_encoder_decoder": true})", Code::kUnsupported, "is_encoder_decoder"},
    {"MixtralForCausalLM", R"({"partial_rotary_factor": 0.5})", Code::kUnsupported, "partial_rotary_factor"},
    {"MixtralForCausalLM", R"({"qk_layernorm": true})", Code::kUnsupported, "'qk_layernorm'"},
    {"MixtralForCausalLM", R"({"sliding_window": 0})", Code::kInvalidArgument, "sliding_window"},
    {"MixtralForCausalLM", R"({"eos_token_id": "a"})", Code::kInvalidArgument, "eos_token_id"},
    {"MixtralForCausalLM", R"({"eos_token_id": [1, -2]})", Code::kInvalidArgument, "eos_token_id"},
    {"Qwen3NextForCausalLM", R"({"layer_types": ["full_attention"]})", Code::kInvalidArgument, "layer_types"},
    {"Qwen3NextForCausalLM", R"({"layer_types": ["full_attention", "sliding_attention", "linear_attention"]})",
     Code::kUnsupported, "'sliding_attention'"},
    {"Qwen3NextForCausalLM", R"({"layer_types": ["linear_attention", "linear_attention", "linear_attention"]})",
     Code::kUnsupported, "no layer has full_attention"},
    {"Qwen3NextForCausalLM", R"({"linear_num_key_heads": 3})", Code::kInvalidArgument, "linear_num_value_heads (4)"},
    {"Qwen3NextForCausalLM", R"({"linear_conv_kernel_dim": 17})", Code::kInvalidArgument, "linear_conv_kernel_dim"},
    {"Qwen3NextForCausalLM", R"({"linear_key_head_dim": 0})", Code::kInvalidArgument, "linear_key_head_dim"},
    {"Qwen3_5MoeForCausalLM", R"({"mlp_only_layers": [1]})", Code::kUnsupported, "mlp_only_layers"},
    {"Qwen3_5MoeForCausalLM", R"({"attn_output_gate": false})", Code::kUnsupported, "attn_output_gate"},
    {"Qwen3_5MoeForCausalLM", R"({"mamba_ssm_dtype": "bfloat16"})", Code::kUnsupported, "mamba_ssm_dtype"},
    {"Qwen3_5MoeForConditionalGeneration", R"({"text_config": null})", Code::kInvalidArgument, "text_config"},
    {"Qwen3_5MoeForConditionalGeneration", R"({"text_config": {"hidden_size": 32}})", Code::kInvalidArgument,
     "text_config"},
    {"Qwen3_5MoeForConditionalGeneration", R"({"quantization_config": {"bits": 4}})", Code::kUnsupported,
     "quantization_config"},
    {"Qwen2MoeForCausalLM", R"({"layer_types": ["full_attention"]})", Code::kInvalidArgument, "layer_types"},
    {"GptOssForCausalLM", R"({"rope_scaling": null})", Code::kInvalidArgument, "gpt-oss needs rope_scaling"},
    {"GptOssForCausalLM", R"({"layer_types": ["full_attention"]})", Code::kInvalidArgument, "layer_types"},
    {"GptOssForCausalLM", R"({"layer_types": ["a", "b", "c"]})", Code::kUnsupported, "'a' is not supported"},
    {"GptOssForCausalLM", R"({"sliding_window": null})", Code::kInvalidArgument, "need a sliding_window"},
    {"GptOssForCausalLM", R"({"head_dim": null})", Code::kInvalidArgument, "head_dim"},
    {"GptOssForCausalLM", R"({"swiglu_limit": 0})", Code::kInvalidArgument, "swiglu_limit"},
    {"GptOssForCausalLM", R"({"experts_per_token": 3})", Code::kInvalidArgument, "experts_per_token differs"},
    {"GptOssForCausalLM", R"({"initial_context_length": 99})", Code::kInvalidArgument, "initial_context_length"},
    {"GptOssForCausalLM", R"({"quantization_config": {"quant_method": "fp8"}})", Code::kUnsupported,
     "quant_method 'fp8'"},
    {"GptOssForCausalLM", R"({"quantization_config": 4})", Code::kInvalidArgument, "quantization_config"},
    {"GptOssForCausalLM", R"({"quantization_config": {"quant_method": "mxfp4", "bits": 4}})", Code::kUnsupported,
     "'bits'"},
    {"GptOssForCausalLM",
     R"({"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.1.mlp.experts"]}})",
     Code::kUnsupported, "modules_to_not_convert"},
    {"GptOssForCausalLM", R"({"intermediate_size": 48, "quantization_config": {"quant_method": "mxfp4"}})",
     Code::kInvalidArgument, "multiples of 32"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "mxfp4"}})", Code::kUnsupported,
     "quantization_config"},
    {"Ernie4_5_MoeForCausalLM", R"({"use_bias": true})", Code::kUnsupported, "use_bias"},
    {"Ernie4_5_MoeForCausalLM", R"({"moe_k": 5})", Code::kInvalidArgument, "moe_k"},
    {"Ernie4_5_MoeForCausalLM", R"({"moe_gate": "hash"})", Code::kUnsupported, "moe_gate 'hash'"},
    {"Ernie4_5_MoeForCausalLM", R"({"moe_layer_start_index": 7})", Code::kUnsupported, "no layer has experts"},
    {"Ernie4_5_MoeForCausalLM", R"({"moe_layer_interval": 0})", Code::kInvalidArgument, "moe_layer_interval"},
    {"Ernie4_5_MoeForCausalLM", R"({"moe_norm_min": 0.5})", Code::kUnsupported, "moe_norm_min"},
    {"GraniteMoeForCausalLM", R"({"logits_scaling": 0})", Code::kInvalidArgument, "logits_scaling"},
    {"GraniteMoeForCausalLM", R"({"residual_multiplier": -1.0})", Code::kInvalidArgument, "residual_multiplier"},
    {"GraniteMoeForCausalLM", R"({"shared_intermediate_size": 8})", Code::kUnsupported, "shared_intermediate_size"},
    {"GraniteMoeSharedForCausalLM", R"({"position_embedding_type": "nope"})", Code::kUnsupported,
     "position_embedding_type"},
    {"PhimoeForCausalLM", R"({"num_experts_per_tok": 1})", Code::kUnsupported, "SparseMixer chooses two"},
    {"PhimoeForCausalLM", R"({"router_jitter_noise": -0.1})", Code::kInvalidArgument, "router_jitter_noise"},
    {"PhimoeForCausalLM", R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1], "long_factor": [1, 1]}})",
     Code::kInvalidArgument, "short_factor must have a number for each pair"},
    {"PhimoeForCausalLM",
     R"({"rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 0], "long_factor": [1, 1, 1, 1]}})",
     Code::kInvalidArgument, "short_factor must be numbers above 0"},
    {"DbrxForCausalLM", R"({"attn_config": null})", Code::kInvalidArgument, "attn_config is missing"},
    {"DbrxForCausalLM", R"({"attn_config": {"kv_n_heads": 3}})", Code::kInvalidArgument, "kv_n_heads"},
    {"DbrxForCausalLM", R"({"attn_config": {"alibi": true}})", Code::kUnsupported, "'alibi'"},
    {"DbrxForCausalLM", R"({"ffn_config": {"moe_normalize_expert_weights": 2.0}})", Code::kUnsupported,
     "moe_normalize_expert_weights"},
    {"DbrxForCausalLM", R"({"ffn_config": {"ffn_act_fn": {"name": "gelu"}}})", Code::kUnsupported, "'gelu'"},
    {"DbrxForCausalLM", R"({"ffn_config": {"moe_top_k": 9}})", Code::kInvalidArgument, "moe_top_k"},
    {"DbrxForCausalLM", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}})", Code::kInvalidArgument,
     "rope_theta in attn_config and in rope_parameters differ"},
    {"DbrxForCausalLM", R"({"num_key_value_heads": 4})", Code::kInvalidArgument, "kv_n_heads differs"},
    {"DbrxForCausalLM", R"({"n_heads": 5})", Code::kInvalidArgument, "d_model"},
    {"DbrxForCausalLM", R"({"quantization_config": {}})", Code::kUnsupported, "quantization_config"},
    {"SolarOpenForCausalLM", R"({"use_qk_norm": true})", Code::kUnsupported, "use_qk_norm"},
    {"SolarOpenForCausalLM", R"({"first_k_dense_replace": 1})", Code::kUnsupported, "first_k_dense_replace"},
    {"SolarOpenForCausalLM", R"({"head_dim": null})", Code::kInvalidArgument, "head_dim"},
    {"ArcticForCausalLM", R"({"use_residual": true})", Code::kUnsupported, "use_residual"},
    {"ArcticForCausalLM", R"({"moe_layer_frequency": 9})", Code::kUnsupported, "no layer has experts"},
    {"ArcticForCausalLM", R"({"quantization": {"q_bits": 8}})", Code::kUnsupported, "quantization"},
    {"ArcticForCausalLM", R"({"attention_bias": true})", Code::kUnsupported, "attention_bias"},
    {"Llama4ForCausalLM", R"({"attention_chunk_size": 24})", Code::kUnsupported, "attention_chunk_size"},
    {"Llama4ForCausalLM", R"({"no_rope_layers": [1, 0]})", Code::kInvalidArgument, "no_rope_layers must name"},
    {"Llama4ForCausalLM", R"({"no_rope_layers": [1, 0, 2]})", Code::kInvalidArgument, "no_rope_layers"},
    {"Llama4ForCausalLM", R"({"layer_types": ["full_attention", "full_attention"]})", Code::kInvalidArgument,
     "layer_types must name every layer"},
    {"Llama4ForCausalLM", R"({"layer_types": ["full_attention", "full_attention", "sliding_attention"]})",
     Code::kUnsupported, "layer_types 'sliding_attention'"},
    {"Llama4ForCausalLM", R"({"attention_chunk_size": null,
      "layer_types": ["chunked_attention", "full_attention", "full_attention"]})",
     Code::kInvalidArgument, "need an attention_chunk_size"},
    {"Llama4ForCausalLM", R"({"moe_layers": [9]})", Code::kUnsupported, "no layer has experts"},
    {"Llama4ForCausalLM", R"({"for_llm_compressor": true})", Code::kUnsupported, "for_llm_compressor"},
    {"Llama4ForConditionalGeneration", R"({"text_config": null})", Code::kInvalidArgument, "text_config is missing"},
    {"Llama4ForConditionalGeneration", R"({"text_config": {"hidden_size": 0}})", Code::kInvalidArgument,
     "text_config: hidden_size"},
    {"Llama4ForConditionalGeneration", R"({"tie_word_embeddings": true})", Code::kUnsupported, "tie_word_embeddings"},
    {"Llama4ForConditionalGeneration", R"({"hidden_size": 32})", Code::kUnsupported, "hidden_size"},
    {"Glm4MoeForCausalLM", R"({"scoring_func": "softmax"})", Code::kUnsupported, "scoring_func 'softmax'"},
    {"Glm4MoeForCausalLM", R"({"topk_method": "greedy"})", Code::kUnsupported, "topk_method 'greedy'"},
    {"Glm4MoeForCausalLM", R"({"n_group": 3})", Code::kInvalidArgument, "n_group (3)"},
    {"Glm4MoeForCausalLM", R"({"n_group": 4})", Code::kInvalidArgument, "at least 2"},
    {"Glm4MoeForCausalLM", R"({"n_group": 2, "topk_group": 3})", Code::kInvalidArgument, "topk_group (3)"},
    {"Glm4MoeForCausalLM", R"({"n_group": 2, "num_experts_per_tok": 3})", Code::kInvalidArgument, "topk_group (1)"},
    {"Glm4MoeForCausalLM", R"({"first_k_dense_replace": 3})", Code::kUnsupported, "no layer has experts"},
    {"Glm4MoeForCausalLM", R"({"moe_layer_freq": 2})", Code::kUnsupported, "moe_layer_freq"},
    {"Glm4MoeForCausalLM", R"({"n_shared_experts": null})", Code::kInvalidArgument, "n_shared_experts is null"},
    {"Glm4MoeForCausalLM", R"({"routed_scaling_factor": 0})", Code::kInvalidArgument, "routed_scaling_factor"},
    {"Glm4MoeForCausalLM", R"({"partial_rotary_factor": 0.0})", Code::kInvalidArgument, "partial_rotary_factor"},
    {"Glm4MoeForCausalLM", R"({"partial_rotary_factor": 0.4})", Code::kInvalidArgument, "partial_rotary_factor"},
    {"Glm4MoeForCausalLM", R"({"partial_rotary_factor": 1.5})", Code::kInvalidArgument, "partial_rotary_factor"},
    {"Dots1ForCausalLM", R"({"use_sliding_window": true})", Code::kUnsupported, "use_sliding_window"},
    {"Dots1ForCausalLM", R"({"sliding_window": null,
      "layer_types": ["full_attention", "sliding_attention", "full_attention"]})",
     Code::kInvalidArgument, "without a sliding_window"},
    {"DeepseekV2ForCausalLM", R"({"norm_topk_prob": true})", Code::kUnsupported, "norm_topk_prob"},
    {"DeepseekV2ForCausalLM", R"({"mlp_bias": true})", Code::kUnsupported, "mlp_bias"},
    {"DeepseekV2ForCausalLM", R"({"scoring_func": "sigmoid"})", Code::kUnsupported, "scoring_func 'sigmoid'"},
    {"DeepseekV2ForCausalLM", R"({"topk_method": "noaux_tc"})", Code::kUnsupported, "topk_method 'noaux_tc'"},
    {"DeepseekV2ForCausalLM", R"({"topk_method": "group_limited_greedy", "n_group": 3})", Code::kInvalidArgument,
     "n_group (3)"},
    {"DeepseekV2ForCausalLM", R"({"kv_lora_rank": null})", Code::kInvalidArgument, "kv_lora_rank"},
    {"DeepseekV2ForCausalLM", R"({"q_lora_rank": 0})", Code::kInvalidArgument, "q_lora_rank"},
    {"DeepseekV2ForCausalLM", R"({"qk_rope_head_dim": 5})", Code::kUnsupported, "qk_rope_head_dim"},
    {"DeepseekV2ForCausalLM", R"({"head_dim": 16})", Code::kInvalidArgument, "head_dim"},
    {"DeepseekV2ForCausalLM", R"({"num_key_value_heads": 2})", Code::kUnsupported, "num_key_value_heads"},
    {"DeepseekV2ForCausalLM", R"({"rope_scaling": {"type": "linear", "factor": 2.0}})", Code::kUnsupported,
     "rope_scaling"},
    {"DeepseekV3ForCausalLM", R"({"quantization_config": {"quant_method": "bitsandbytes"}})", Code::kUnsupported,
     "quant_method 'bitsandbytes' is not supported (fp8, gptq, awq, compressed-tensors, modelopt are)"},
    {"DeepseekV3ForCausalLM", R"({"quantization_config": {"quant_method": "fp8", "fmt": "e5m2"}})", Code::kUnsupported,
     "fmt 'e5m2'"},
    {"DeepseekV3ForCausalLM", R"({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 100]}})",
     Code::kUnsupported, "weight_block_size"},
    {"DeepseekV3ForCausalLM", R"({"quantization_config": {"quant_method": "fp8", "expert_dtype": "fp4"}})",
     Code::kUnsupported, "expert_dtype 'fp4'"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "gptq", "bits": 8}})", Code::kUnsupported,
     "bits 8"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 48}})",
     Code::kUnsupported, "group_size 48"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "new_setting": 1}})",
     Code::kUnsupported, "'new_setting'"},
    {"MixtralForCausalLM",
     R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*down.*": {"bits": 8}}}})",
     Code::kUnsupported, "dynamic"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "awq", "bits": 4, "version": "gemv"}})",
     Code::kUnsupported, "version 'gemv'"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "compressed-tensors"}})",
     Code::kInvalidArgument, "config_groups is missing"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "compressed-tensors", "format":
     "int-quantized", "config_groups": {"a": {"weights": {"num_bits": 8, "type": "int", "strategy": "channel"}}}}})",
     Code::kUnsupported, "num_bits 8 of type 'int'"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "compressed-tensors", "format":
     "pack-quantized", "config_groups": {"a": {"weights": {"num_bits": 4, "strategy": "channel"}}},
     "sparsity_config": {"format": null}}})",
     Code::kInvalidArgument, "sparsity_config: format is null"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "compressed-tensors", "format":
     "pack-quantized", "config_groups": {"a": {"weights": {"num_bits": 4, "strategy": "channel"}}},
     "sparsity_config": {"format": "sparse-24-bitmask"}}})",
     Code::kUnsupported, "sparsity_config is not supported"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "compressed-tensors", "format":
     "pack-quantized", "config_groups": {"a": {"weights": {"num_bits": 4, "strategy": "channel"}}},
     "transform_config": {"format": "dense"}}})",
     Code::kUnsupported, "transform_config is not supported"},
    {"MixtralForCausalLM", R"({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}})",
     Code::kUnsupported, "quant_algo 'FP8'"},
    {"DeepseekV3ForCausalLM", R"({"scoring_func": "softmax"})", Code::kUnsupported, "scoring_func 'softmax'"},
    {"DeepseekV3ForCausalLM", R"({"qk_head_dim": 17})", Code::kInvalidArgument, "qk_head_dim"},
    {"Glm4MoeLiteForCausalLM", R"({"mlp_layer_types": ["dense"]})", Code::kInvalidArgument, "mlp_layer_types"},
    {"Glm4MoeLiteForCausalLM", R"({"mlp_layer_types": ["dense", "moe", "sparse"]})", Code::kUnsupported,
     "mlp_layer_types 'moe'"},
    {"MiniMaxM2ForCausalLM", R"({"attn_type_list": [1, 0, 1]})", Code::kUnsupported, "attn_type_list"},
    {"MiniMaxM2ForCausalLM", R"({"use_routing_bias": false})", Code::kUnsupported, "use_routing_bias"},
    {"MiniMaxM2ForCausalLM", R"({"rotary_dim": 16})", Code::kInvalidArgument, "partial_rotary_factor"},
    {"MiniMaxM2ForCausalLM", R"({"head_dim": null})", Code::kInvalidArgument, "head_dim"},
    {"MiniMaxM2ForCausalLM", R"({"shared_intermediate_size": 8})", Code::kUnsupported, "shared_intermediate_size"},
    {"Qwen2MoeForCausalLM", R"({"layer_types": ["full_attention", "linear_attention", "full_attention"]})",
     Code::kUnsupported, "'linear_attention'"},
    {"Qwen2MoeForCausalLM", R"({"layer_types": ["sliding_attention", "full_attention", "full_attention"]})",
     Code::kInvalidArgument, "use_sliding_window is false"},
    {"Qwen2MoeForCausalLM", R"({"use_sliding_window": true, "sliding_window": 0})", Code::kInvalidArgument,
     "sliding_window"},
    {"Qwen2MoeForCausalLM", R"({"attention_bias": true})", Code::kUnsupported, "attention_bias true"},
    {"Qwen3MoeForCausalLM", R"({"decoder_sparse_step": 0})", Code::kInvalidArgument, "decoder_sparse_step"},
    {"Qwen3MoeForCausalLM", R"({"decoder_sparse_step": 9})", Code::kUnsupported, "no layer has experts"},
    {"Qwen3MoeForCausalLM", R"({"mlp_only_layers": [-1]})", Code::kInvalidArgument, "mlp_only_layers"},
    {"Qwen3MoeForCausalLM", R"({"mlp_only_layers": 1})", Code::kInvalidArgument, "mlp_only_layers"},
    {"Qwen3MoeForCausalLM", R"({"moe_intermediate_size": null})", Code::kInvalidArgument,
     "moe_intermediate_size is null"},
    {"Qwen2MoeForCausalLM", R"({"use_sliding_window": true, "sliding_window": null})", Code::kInvalidArgument,
     "sliding_window is null"},
    {"Qwen2MoeForCausalLM", R"({"max_window_layers": null})", Code::kInvalidArgument, "max_window_layers is null"},
    {"Qwen2MoeForCausalLM", R"({"qkv_bias": null})", Code::kInvalidArgument, "qkv_bias is null"},
    {"Qwen2MoeForCausalLM", R"({"shared_expert_intermediate_size": null})", Code::kInvalidArgument,
     "shared_expert_intermediate_size is null"},
    {"Qwen2MoeForCausalLM", R"({"use_qk_norm": true})", Code::kUnsupported, "use_qk_norm"},
    {"Qwen3MoeForCausalLM", R"({"use_sliding_window": null})", Code::kInvalidArgument, "use_sliding_window is null"},
    {"Qwen3MoeForCausalLM", R"({"norm_topk_prob": null})", Code::kInvalidArgument, "norm_topk_prob is null"},
    {"Qwen3MoeForCausalLM", R"({"decoder_sparse_step": null})", Code::kInvalidArgument, "decoder_sparse_step is null"},
    {"Qwen3MoeForCausalLM", R"({"rms_norm_eps": null})", Code::kInvalidArgument, "rms_norm_eps is null"},
    {"Qwen3MoeForCausalLM", R"({"hidden_act": null})", Code::kInvalidArgument, "hidden_act is null"},
    {"Qwen3MoeForCausalLM", R"({"tie_word_embeddings": null})", Code::kInvalidArgument, "tie_word_embeddings is null"},
    {"Qwen3MoeForCausalLM", R"({"rope_theta": null})", Code::kInvalidArgument, "rope_theta is null"},
    {"Qwen3MoeForCausalLM", R"({"qkv_bias": true})", Code::kUnsupported, "qkv_bias true"},
    {"Qwen3MoeForCausalLM", R"({"use_qk_norm": false})", Code::kUnsupported, "use_qk_norm false"},
    {"Qwen3MoeForCausalLM", R"({"shared_expert_intermediate_size": 64})", Code::kUnsupported,
     "shared_expert_intermediate_size other than 0"},
    {"Qwen3MoeForCausalLM", R"({"layer_types": ["full_attention", "sliding_attention", "full_attention"]})",
     Code::kUnsupported, "layer_types 'sliding_attention'"},
    {"Qwen3MoeForCausalLM", R"({"use_sliding_window": true, "sliding_window": 8,
      "layer_types": ["full_attention", "full_attention", "full_attention"]})",
     Code::kUnsupported, "layer_types 'full_attention'"},
    {"Qwen3MoeForCausalLM", R"({"layer_types": ["full_attention"]})", Code::kInvalidArgument,
     "layer_types must name every layer"},
    {"MixtralForCausalLM", R"({"attention_bias": true})", Code::kUnsupported, "attention_bias true"},
    {"OlmoeForCausalLM", R"({"clip_qkv": -1})", Code::kInvalidArgument, "clip_qkv"},
    {"OlmoeForCausalLM", R"({"sliding_window": 8})", Code::kUnsupported, "sliding_window"},
    {"OlmoeForCausalLM", R"({"head_dim": 16})", Code::kInvalidArgument, "head_dim"},
};

TEST(Refusals, NameTheSetting) {
  for (const Refusal& r : kRefusals) {
    const auto d = describe(r.architecture, r.patch);
    ASSERT_FALSE(d) << r.patch;
    EXPECT_EQ(d.status().code(), r.code) << r.patch << ": " << d.status().message();
    EXPECT_THAT(d.status().message(), HasSubstr(r.says)) << r.patch;
    EXPECT_EQ(d.status().message().find('\n'), std::string::npos) << r.patch;
  }
}

TEST(Refusals, KeysThatMustBeThere) {
  for (const char* key : {"hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads",
                          "max_position_embeddings", "num_experts_per_tok", "moe_intermediate_size", "num_experts"}) {
    const auto d = describe("Qwen3MoeForCausalLM", "{}", {key});
    ASSERT_FALSE(d) << key;
    EXPECT_THAT(d.status().message(), HasSubstr(std::string(key) + " is missing"));
  }
}

TEST(Refusals, TextThatIsNoConfig) {
  for (const char* text : {"", "{", "[]", "3", "null", "{\"a\": 1e999}", "{\"a\": \"\xff\"}", "{\"a\": 1} x"}) {
    EXPECT_EQ(describe_model(text, "").status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_THAT(describe_model(R"({"a": 1, "a": 2})", "").status().message(), HasSubstr("'a' is given twice"));
  const std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_EQ(describe_model(deep, "").status().code(), Code::kInvalidArgument);
  EXPECT_THAT(describe_model(tiny_config("MixtralForCausalLM").dump(), "[]").status().message(),
              HasSubstr("generation_config.json"));
}

TEST(Refusals, HarmlessKeysAreNone) {
  const auto d =
      describe("MixtralForCausalLM", R"({"output_router_logits": true, "router_jitter_noise": 0.1, "use_cache": false,
      "transformers_version": "5.0", "pad_token_id": 3, "attention_dropout": 0.1, "unheard_of": null})");
  EXPECT_TRUE(d) << d.status().message();
}

}  // namespace
}  // namespace moestro::model

#!/usr/bin/env python3
"""Makes tests/fixtures: tiny random models with what Hugging Face transformers says of them (models/), small
tokenizers with what Hugging Face tokenizers says of hard texts (tokenizers/, see scripts/python/tokenizer_fixtures.py),
GGUF files (gguf/, blocks/; see scripts/python/gguf_fixtures.py), and models in other quantised forms (quantised/; see
scripts/python/quantised_fixtures.py).

Two variants or three of each architecture, chosen so that every branch of its config is taken. The reference is
transformers (of Arctic, which it does not have, scripts/python/arctic_model.py; of encoder-decoder models
scripts/python/encoder_decoder_fixtures.py) in float32 with eager attention, over
the weights as stored ("f32") and over the weights rounded to bf16 ("bf16"). Seeds are tried until no router and no
greedy choice is closer than MARGIN_MIN to its runner-up, so that rounding cannot turn a decision.

  python3 -m venv build/venv-fixtures && build/venv-fixtures/bin/pip install -r scripts/python/requirements-train.txt
  build/venv-fixtures/bin/python scripts/make_fixtures.py [NAME ...]

reference.json: {"f32"|"bf16": {"prompts": [{"ids": [...], "logprobs": [log-probability of ids[1:]], "greedy": [32 ids],
                 "greedy_logprobs": [...]}]}, "transformers": version}
"""

import argparse
import json
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))

import arctic_model
import encoder_decoder_fixtures as encoder_decoder
import gguf_fixtures
import mxfp4
import quantised_fixtures
import tokenizer_fixtures

MARGIN_MIN = 1e-3
GREEDY_TOKENS = 32
PROMPT_LENGTHS = (1, 6, 21, 60)  # the last is beyond every window and every original context below
ROOT = pathlib.Path(__file__).resolve().parents[1]
OUT = ROOT / "tests" / "fixtures" / "models"
GGUF_OUT, BLOCKS_OUT = ROOT / "tests" / "fixtures" / "gguf", ROOT / "tests" / "fixtures" / "blocks"
QUANTISED_OUT = ROOT / "tests" / "fixtures" / "quantised"
TOKENIZERS_OUT = ROOT / "tests" / "fixtures" / "tokenizers"
BYTES_MAX = 300 * 1024

BASE = dict(vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=256, attention_dropout=0.0, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": more.pop("theta", 10000.0), **more}}


# dtype: of the stored weights. shards: files. old_rope: config.json in the spelling of transformers 4 (rope_theta,
# rope_scaling).
VARIANTS = {
    "mixtral_window": dict(
        arch="Mixtral", dtype="float32", old_rope=True, config=dict(intermediate_size=20, num_local_experts=4,
                                                                    num_experts_per_tok=2, sliding_window=16)),
    "mixtral_llama3": dict(
        arch="Mixtral", dtype="bfloat16", old_rope=True, config=dict(
            intermediate_size=40, num_local_experts=6, num_experts_per_tok=3, num_key_value_heads=4, head_dim=24,
            sliding_window=None, tie_word_embeddings=True,
            **rope("llama3", theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32))),
    "qwen2_moe_shared": dict(
        arch="Qwen2Moe", dtype="float32", old_rope=False,
        config=dict(intermediate_size=48, moe_intermediate_size=20, shared_expert_intermediate_size=28, num_experts=4,
                    num_experts_per_tok=2, norm_topk_prob=False, decoder_sparse_step=2,
                    **rope("yarn", factor=4.0, original_max_position_embeddings=32))),
    "qwen2_moe_window": dict(
        arch="Qwen2Moe", dtype="float16", old_rope=True,
        config=dict(num_hidden_layers=3, intermediate_size=40, moe_intermediate_size=24,
                    shared_expert_intermediate_size=16, num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
                    decoder_sparse_step=1, mlp_only_layers=[0], use_sliding_window=True, sliding_window=16,
                    max_window_layers=1, tie_word_embeddings=True, **rope("linear", factor=2.0))),
    "qwen2_moe_mscale": dict(
        arch="Qwen2Moe", dtype="float32", old_rope=False, config=dict(
            intermediate_size=48, moe_intermediate_size=16, shared_expert_intermediate_size=12, num_experts=4,
            num_experts_per_tok=2, qkv_bias=False, norm_topk_prob=True, max_position_embeddings=128,
            **rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False, mscale=1.5,
                   mscale_all_dim=0.5))),
    "qwen3_moe_window": dict(
        arch="Qwen3Moe", dtype="bfloat16", old_rope=True,
        config=dict(num_hidden_layers=3, intermediate_size=24, moe_intermediate_size=20, head_dim=16, num_experts=6,
                    num_experts_per_tok=2, norm_topk_prob=True, use_sliding_window=True, sliding_window=12,
                    max_window_layers=1, tie_word_embeddings=True)),
    "qwen3_moe_dynamic": dict(
        arch="Qwen3Moe", dtype="float32", old_rope=True,
        config=dict(intermediate_size=40, moe_intermediate_size=16, head_dim=24, num_experts=4, num_experts_per_tok=2,
                    norm_topk_prob=True, tie_word_embeddings=True, max_position_embeddings=32,
                    **rope("dynamic", factor=4.0))),
    "qwen3_moe_sharded": dict(
        arch="Qwen3Moe", dtype="float32", shards=2, old_rope=False, config=dict(
            num_hidden_layers=3, intermediate_size=24, moe_intermediate_size=16, head_dim=8, num_experts=5,
            num_experts_per_tok=3, norm_topk_prob=False, attention_bias=True, mlp_only_layers=[1],
            **rope("yarn", theta=1000.0, factor=8.0, original_max_position_embeddings=32, attention_factor=1.3,
                   beta_fast=16.0, beta_slow=2.0))),
    "glm4_moe_groups": dict(
        arch="Glm4Moe", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, intermediate_size=40, moe_intermediate_size=16, head_dim=16, n_routed_experts=8,
            num_experts_per_tok=3, n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.5,
            first_k_dense_replace=1, attention_bias=True, use_qk_norm=True, norm_topk_prob=True)),
    "glm4_moe_plain": dict(
        arch="Glm4Moe", dtype="float16", router_std=0.9, old_rope=False, config=dict(
            intermediate_size=32, moe_intermediate_size=20, head_dim=24, n_routed_experts=6, num_experts_per_tok=2,
            n_shared_experts=1, first_k_dense_replace=0, norm_topk_prob=False,
            **rope("yarn", factor=4.0, original_max_position_embeddings=32, partial_rotary_factor=0.75))),
    "solar_open_groups": dict(
        arch="SolarOpen", dtype="bfloat16", old_rope=True, config=dict(
            moe_intermediate_size=16, head_dim=16, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
            n_group=4, topk_group=2, routed_scaling_factor=1.5, attention_bias=True,
            **rope("yarn", factor=4.0, original_max_position_embeddings=32))),
    "solar_open_plain": dict(
        arch="SolarOpen", dtype="float16", router_std=0.9, old_rope=False, config=dict(
            moe_intermediate_size=20, head_dim=24, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
            norm_topk_prob=False, tie_word_embeddings=False)),
    "dots1_window": dict(
        arch="Dots1", dtype="float16", old_rope=True, config=dict(
            num_hidden_layers=3, intermediate_size=32, moe_intermediate_size=16, n_routed_experts=6,
            num_experts_per_tok=2, n_shared_experts=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
            norm_topk_prob=True, sliding_window=16, max_window_layers=2)),
    "dots1_bias": dict(
        arch="Dots1", dtype="bfloat16", old_rope=True, config=dict(
            intermediate_size=32, moe_intermediate_size=24, n_routed_experts=8, num_experts_per_tok=3,
            n_shared_experts=1, n_group=2, topk_group=1, attention_bias=True, sliding_window=None,
            **rope("linear", factor=2.0))),
    "deepseek_v2_groups": dict(
        arch="DeepseekV2", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, num_key_value_heads=4, intermediate_size=40, moe_intermediate_size=16, q_lora_rank=24,
            kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, n_routed_experts=8,
            num_experts_per_tok=3, n_shared_experts=2, topk_method="group_limited_greedy", n_group=4, topk_group=2,
            routed_scaling_factor=1.5, first_k_dense_replace=1, attention_bias=True, rms_norm_eps=1e-3,
            **rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek_v2_lite": dict(
        arch="DeepseekV2", dtype="float32", old_rope=True, config=dict(
            num_key_value_heads=4, intermediate_size=40, moe_intermediate_size=12, q_lora_rank=None, kv_lora_rank=32,
            qk_nope_head_dim=16, qk_rope_head_dim=4, v_head_dim=16, n_routed_experts=6, num_experts_per_tok=2,
            n_shared_experts=1, topk_method="greedy", first_k_dense_replace=0, tie_word_embeddings=True)),
    "deepseek_v3_yarn": dict(
        arch="DeepseekV3", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, num_key_value_heads=4, intermediate_size=40, moe_intermediate_size=16, q_lora_rank=20,
            kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=8,
            num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5,
            first_k_dense_replace=1, attention_bias=True, rms_norm_eps=1e-3,
            **rope("yarn", factor=4.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3_halves": dict(
        arch="DeepseekV3", dtype="float16", router_std=0.9, old_rope=False, config=dict(
            num_key_value_heads=4, intermediate_size=32, moe_intermediate_size=20, q_lora_rank=None, kv_lora_rank=16,
            qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=20, n_routed_experts=6, num_experts_per_tok=2,
            n_shared_experts=2, n_group=1, topk_group=1, first_k_dense_replace=0, norm_topk_prob=False,
            rope_interleave=False, num_mtp_layers=0)),
    "deepseek_v3_kimi_k2": dict(
        arch="DeepseekV3", dtype="bfloat16", old_rope=True, config=dict(
            num_attention_heads=2, num_key_value_heads=2, intermediate_size=24, moe_intermediate_size=12,
            q_lora_rank=16, kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
            n_routed_experts=12, num_experts_per_tok=4, n_shared_experts=1, n_group=1, topk_group=1,
            routed_scaling_factor=2.827, first_k_dense_replace=1,
            **rope("yarn", theta=50000.0, factor=8.0, original_max_position_embeddings=32, beta_fast=1.0,
                   beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0))),
    "glm4_moe_lite_flash": dict(
        arch="Glm4MoeLite", dtype="bfloat16", old_rope=False, config=dict(
            num_hidden_layers=3, num_key_value_heads=4, intermediate_size=40, moe_intermediate_size=16, q_lora_rank=24,
            kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=4, v_head_dim=16, n_routed_experts=8,
            num_experts_per_tok=3, n_shared_experts=1, routed_scaling_factor=1.8)),
    "glm4_moe_lite_types": dict(
        arch="Glm4MoeLite", dtype="float16", router_std=0.9, old_rope=False, config=dict(
            num_hidden_layers=3, num_key_value_heads=4, intermediate_size=24, moe_intermediate_size=12,
            q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=6, qk_rope_head_dim=6, v_head_dim=14,
            n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, n_group=2, topk_group=1,
            attention_bias=True, norm_topk_prob=False, rope_interleave=False,
            mlp_layer_types=["sparse", "dense", "sparse"])),
    "minimax_m2_partial": dict(
        arch="MiniMaxM2", dtype="bfloat16", old_rope=False, config=dict(
            intermediate_size=20, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
            **rope("default", theta=1000.0, partial_rotary_factor=0.5))),
    "minimax_m2_rotary_dim": dict(
        arch="MiniMaxM2", dtype="float16", router_std=0.9, old_rope=True, rotary_dim=12, config=dict(
            intermediate_size=16, head_dim=24, num_local_experts=5, num_experts_per_tok=3,
            **rope("default", theta=10000.0, partial_rotary_factor=0.5))),
    # The clamp bites, and the sinks take a good part of the softmax.
    "gpt_oss_yarn": dict(
        arch="GptOss", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, intermediate_size=16, head_dim=16, num_local_experts=6, num_experts_per_tok=2,
            sliding_window=16, swiglu_limit=1.0,
            **rope("yarn", theta=1000.0, factor=8.0, original_max_position_embeddings=32, truncate=False))),
    "gpt_oss_mxfp4": dict(
        arch="GptOss", dtype="bfloat16", old_rope=False, mxfp4=True, config=dict(
            num_hidden_layers=3, intermediate_size=32, head_dim=16, num_local_experts=5, num_experts_per_tok=3,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"], sliding_window=12,
            attention_bias=False, swiglu_alpha=1.3, **rope("default", theta=10000.0))),
    "ernie4_5_moe_shared": dict(
        arch="Ernie4_5_Moe", dtype="bfloat16", old_rope=True, bias_std=0.05, config=dict(
            num_hidden_layers=3, intermediate_size=40, moe_intermediate_size=16, moe_num_experts=6, moe_k=2,
            moe_num_shared_experts=2, moe_layer_start_index=1, tie_word_embeddings=True)),
    "ernie4_5_moe_interval": dict(
        arch="Ernie4_5_Moe", dtype="float16", old_rope=False, bias_std=0.05, config=dict(
            num_hidden_layers=4, intermediate_size=32, moe_intermediate_size=20, moe_num_experts=5, moe_k=3,
            moe_num_shared_experts=0, moe_layer_start_index=1, moe_layer_end_index=2, moe_layer_interval=2,
            tie_word_embeddings=False, **rope("linear", factor=2.0))),
    # As Granite's: the embedding is small, and the multiplier of q.k is not head_dim^-1/2.
    "granitemoe_factors": dict(
        arch="GraniteMoe", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, intermediate_size=16, num_local_experts=6, num_experts_per_tok=2,
            embedding_multiplier=3.0, attention_multiplier=0.1, residual_multiplier=0.4, logits_scaling=2.5,
            tie_word_embeddings=True)),
    "granitemoe_bias": dict(
        arch="GraniteMoe", dtype="float16", old_rope=False, config=dict(
            intermediate_size=20, num_local_experts=5, num_experts_per_tok=3, attention_bias=True,
            attention_multiplier=0.25, tie_word_embeddings=False)),
    "granitemoeshared_shared": dict(
        arch="GraniteMoeShared", dtype="bfloat16", old_rope=False, config=dict(
            intermediate_size=16, num_local_experts=6, num_experts_per_tok=2, shared_intermediate_size=28,
            embedding_multiplier=2.0, attention_multiplier=0.2, residual_multiplier=0.5, logits_scaling=0.5)),
    "granitemoeshared_none": dict(
        arch="GraniteMoeShared", dtype="float16", old_rope=True, config=dict(
            intermediate_size=20, num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=0,
            attention_bias=True, attention_multiplier=0.25, **rope("linear", factor=3.0))),
    "phimoe_short": dict(
        arch="Phimoe", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, intermediate_size=16, num_local_experts=6, num_experts_per_tok=2, sliding_window=16,
            attention_bias=True, lm_head_bias=True, router_jitter_noise=0.1,
            **rope("longrope", short_factor=[1.0 + 0.1 * j for j in range(8)], long_factor=[2.0 + j for j in range(8)],
                   short_mscale=1.1, long_mscale=1.3, original_max_position_embeddings=256))),
    # Beyond the original length, with the long factors at every position.
    "phimoe_long": dict(
        arch="Phimoe", dtype="float16", old_rope=False, config=dict(
            intermediate_size=20, num_local_experts=5, num_experts_per_tok=2, router_jitter_noise=0.05,
            **rope("longrope", short_factor=[1.0] * 8, long_factor=[1.5 + 0.5 * j for j in range(8)],
                   short_mscale=1.0, long_mscale=1.25, original_max_position_embeddings=32))),
    "dbrx_clip": dict(
        arch="Dbrx", dtype="bfloat16", old_rope=False, base=False, config=dict(
            vocab_size=128, d_model=64, n_heads=4, n_layers=3, max_seq_len=256, bos_token_id=1, eos_token_id=2,
            attn_config=dict(kv_n_heads=2, clip_qkv=1.1, rope_theta=500.0), ffn_config=dict(
                hidden_size=64, ffn_hidden_size=16, moe_num_experts=6, moe_top_k=2),
            **rope("default", theta=500.0))),
    "dbrx_plain": dict(
        arch="Dbrx", dtype="float16", old_rope=False, base=False, config=dict(
            vocab_size=128, d_model=64, n_heads=4, n_layers=2, max_seq_len=256,
            attn_config=dict(kv_n_heads=4, clip_qkv=50.0, rope_theta=10000.0), ffn_config=dict(
                hidden_size=64, ffn_hidden_size=24, moe_num_experts=5, moe_top_k=3,
                moe_normalize_expert_weights=None), **rope("linear", factor=2.0))),
    # A text model in one that sees images; low and high factor are equal, as in Scout.
    "llama4_scout": dict(
        arch="Llama4", config_class="Llama4TextConfig", dtype="bfloat16", old_rope=True, nested=True, config=dict(
            num_hidden_layers=4, intermediate_size=16, intermediate_size_mlp=24, head_dim=16, num_local_experts=4,
            num_experts_per_tok=1, attention_chunk_size=16, floor_scale=8, attn_scale=0.3,
            **rope("llama3", theta=1000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=1.0,
                   original_max_position_embeddings=32))),
    "llama4_maverick": dict(
        arch="Llama4", config_class="Llama4TextConfig", dtype="float16", old_rope=False, config=dict(
            num_hidden_layers=4, intermediate_size=16, intermediate_size_mlp=40, head_dim=24, num_local_experts=5,
            num_experts_per_tok=2, interleave_moe_layer_step=2, no_rope_layers=[1, 0, 1, 1], use_qk_norm=False,
            attention_chunk_size=32, attn_temperature_tuning=False, attention_bias=True)),
    "llama4_types": dict(
        arch="Llama4", config_class="Llama4TextConfig", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=3, intermediate_size=20, intermediate_size_mlp=24, head_dim=16, num_local_experts=4,
            num_experts_per_tok=1, moe_layers=[0, 2], no_rope_layers=[1, 0, 1], attention_chunk_size=16,
            layer_types=["full_attention", "chunked_attention", "chunked_attention"], floor_scale=4)),
    "arctic_parallel": dict(
        arch="Arctic", dtype="bfloat16", old_rope=True, config=dict(
            intermediate_size=20, num_local_experts=6, num_experts_per_tok=2, parallel_attn_mlp_res=True,
            use_residual=True, moe_layer_frequency=1)),
    "arctic_frequency": dict(
        arch="Arctic", dtype="float16", old_rope=False, config=dict(
            num_hidden_layers=4, intermediate_size=24, num_local_experts=5, num_experts_per_tok=1, sliding_window=16,
            parallel_attn_mlp_res=True, moe_layer_frequency=2)),
    "arctic_serial": dict(
        arch="Arctic", dtype="bfloat16", old_rope=True, config=dict(
            intermediate_size=16, num_local_experts=4, num_experts_per_tok=2, parallel_attn_mlp_res=False,
            moe_layer_frequency=1)),
    # Memories of different length; layers of both kinds at the end.
    "qwen3_next_hybrid": dict(
        arch="Qwen3Next", dtype="bfloat16", old_rope=True, config=dict(
            num_hidden_layers=5, intermediate_size=24, moe_intermediate_size=8, shared_expert_intermediate_size=12,
            head_dim=16, num_experts=5, num_experts_per_tok=2, linear_num_key_heads=2, linear_num_value_heads=4,
            linear_key_head_dim=8, linear_value_head_dim=12)),
    "qwen3_next_types": dict(
        arch="Qwen3Next", dtype="float16", old_rope=False, config=dict(
            num_hidden_layers=4, intermediate_size=24, moe_intermediate_size=8, shared_expert_intermediate_size=12,
            head_dim=24, num_experts=5, num_experts_per_tok=3, norm_topk_prob=False, attention_bias=True,
            decoder_sparse_step=1, mlp_only_layers=[1], linear_num_key_heads=3, linear_num_value_heads=3,
            linear_key_head_dim=12, linear_value_head_dim=20, linear_conv_kernel_dim=3,
            layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
            **rope("yarn", factor=4.0, original_max_position_embeddings=32, partial_rotary_factor=0.5))),
    "qwen3_5_moe_vision": dict(
        arch="Qwen3_5Moe", head="ForConditionalGeneration", dtype="bfloat16", old_rope=False, text_config=True,
        stacked=True, config=dict(
            num_hidden_layers=4, moe_intermediate_size=8, shared_expert_intermediate_size=16, head_dim=16,
            num_experts=5, num_experts_per_tok=2, linear_num_key_heads=2, linear_num_value_heads=4,
            linear_key_head_dim=8, linear_value_head_dim=16,
            **rope("default", theta=1000.0, partial_rotary_factor=0.25, mrope_interleaved=True,
                   mrope_section=[1, 1, 0]))),
    "qwen3_5_moe_text": dict(
        arch="Qwen3_5Moe", config_class="Qwen3_5MoeTextConfig", dtype="float16", old_rope=False, config=dict(
            num_hidden_layers=3, moe_intermediate_size=16, shared_expert_intermediate_size=8, head_dim=24,
            num_experts=5, num_experts_per_tok=3, linear_num_key_heads=1, linear_num_value_heads=2,
            linear_key_head_dim=20, linear_value_head_dim=8, tie_word_embeddings=True,
            layer_types=["linear_attention", "full_attention", "linear_attention"],
            **rope("default", theta=10000.0, partial_rotary_factor=0.5, mrope_interleaved=True,
                   mrope_section=[2, 2, 2]))),
    "olmoe_clip": dict(
        arch="Olmoe", dtype="float32", old_rope=False,
        config=dict(intermediate_size=12, num_experts=4, num_experts_per_tok=2, num_key_value_heads=4, clip_qkv=0.9,
                    norm_topk_prob=False)),
    "olmoe_gqa": dict(
        arch="Olmoe", dtype="bfloat16", old_rope=True,
        config=dict(intermediate_size=32, num_experts=8, num_experts_per_tok=4, norm_topk_prob=True,
                    attention_bias=True, tie_word_embeddings=True, **rope("linear", factor=3.0))),
    **encoder_decoder.VARIANTS,
}


def config_class(arch):
    return "MixtralConfig" if arch == "Arctic" else arch + "Config"


NORMS_AROUND_0 = ("Qwen3Next", "Qwen3_5Moe")  # 1 is added to their weights


def build(v, seed):
    import torch
    import transformers

    if v.get("encoder_decoder"):
        return encoder_decoder.build(v, seed)
    settings = {**(BASE if v.get("base", True) else {}), **v["config"]}
    if v.get("text_config"):  # beside a vision tower
        settings = dict(text_config=settings, tie_word_embeddings=False, vision_config=dict(
            depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=64, patch_size=2,
            num_position_embeddings=4))
    config = getattr(transformers, v.get("config_class", config_class(v["arch"])))(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(seed)
    head = v.get("head", "ForCausalLM")
    model = arctic_model.Arctic if v["arch"] == "Arctic" else getattr(transformers, v["arch"] + head)
    net = model(config).float().eval()
    if v["arch"] == "Phimoe":
        rotate_by_length(net)
    with torch.no_grad():
        for key, p in net.named_parameters():
            if p.dim() >= 2:
                router = key.endswith(("gate.weight", "router.weight", "router.layer.weight"))
                embedding = "embed" in key or ".wte." in key
                p.normal_(std=1.0 if embedding else v.get("router_std", 0.3) if router else 0.16)
                if key.endswith("e_score_correction_bias"):
                    p.normal_(std=v["bias_std"])
                if key.endswith("conv1d.weight"):
                    p.normal_(std=0.5)
            elif key.endswith("A_log"):
                p.uniform_(-4.0, 1.0)
            elif key.endswith("dt_bias"):
                p.normal_(std=0.5)
            elif "norm" in key and v["arch"] in NORMS_AROUND_0 and not key.endswith("linear_attn.norm.weight"):
                p.normal_(std=0.1)
            elif key.endswith("sinks"):
                p.normal_(std=1.0)
            elif "norm" in key:
                p.copy_(1 + 0.1 * torch.randn_like(p))
            else:
                p.normal_(std=0.1)
            if v.get("mxfp4") and key.endswith(("gate_up_proj", "down_proj")):
                p.copy_(mxfp4.nearest(p.transpose(1, 2)).transpose(1, 2))
            p.copy_(p.to(getattr(torch, v.get("dtype", "float32"))).float())
        for key, b in net.named_buffers():  # wide enough to change choices
            if key.endswith("e_score_correction_bias"):
                b.normal_(std=0.1)
    return net


def rotate_by_length(net):
    """transformers 5 leaves the length of the sequence out where Phi-3.5-MoE chooses LongRoPE's factors; its published
    code does not. Here every position has the factors of the longest sequence, as an engine with that context has."""
    import torch

    parameters, config = net.config.rope_parameters, net.config
    original = parameters["original_max_position_embeddings"]
    kind = "long" if config.max_position_embeddings > original else "short"
    factors, scale = torch.tensor(parameters[kind + "_factor"]), parameters[kind + "_mscale"]
    dim = config.hidden_size // config.num_attention_heads

    def forward(x, position_ids=None):
        frequencies = 1.0 / (factors * parameters["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim))
        angles = (position_ids[..., None].float() * frequencies).repeat(1, 1, 2)
        return angles.cos() * scale, angles.sin() * scale

    net.model.rotary_emb.forward = forward


# Packs hold these in f32: the experts' biases, and an f32 router with what its choice is by.
EXACT = ("_proj_bias", "e_score_correction_bias")


def rounded(net, dtype):
    import copy

    import torch

    twin = copy.deepcopy(net)
    with torch.no_grad():
        for key, p in twin.named_parameters():
            exact_router = net.config.model_type == "ernie4_5_moe" and key.endswith("gate.weight")
            exact_bias = ".experts." in key and key.endswith(".bias")
            if not key.endswith(EXACT) and not exact_router and not exact_bias:
                p.copy_(p.to(dtype).float())
    return twin


def gap(values, k):
    """The least distance between the k-th and the next value, over all rows."""
    ordered = values.sort(-1, descending=True).values
    return float((ordered[:, k - 1] - ordered[:, k]).min()) if k < values.shape[-1] else 1.0


class Margins:
    """The least distance between what a router chooses and what it does not, over all tokens and layers."""

    def __init__(self, net):
        import torch

        self.least = 1.0
        text = net.config.get_text_config()
        config = getattr(text, "ffn_config", text)  # DBRX
        top_k = getattr(config, "moe_top_k", None) or config.num_experts_per_tok
        jitter = net.config.router_jitter_noise if net.config.model_type == "phimoe" else None

        method = getattr(net.config, "topk_method", None)  # DeepSeek-V2; a group's value is its best expert's
        groups = 1 if method == "greedy" else getattr(net.config, "n_group", 1)
        kept = getattr(net.config, "topk_group", 1)
        group_best = 1 if method == "group_limited_greedy" else 2

        def hook(module, inputs, bias):
            x = inputs[0].reshape(-1, inputs[0].shape[-1])
            choice = x @ module.weight.T
            if getattr(module, "bias", None) is not None:
                choice = choice + module.bias
            if hasattr(module, "moe_statics"):
                choice = choice.softmax(-1) + module.moe_statics.e_score_correction_bias
            if bias is not None:
                choice = choice.sigmoid() + bias
            if jitter is not None:  # SparseMixer: which is first, and who is near the first and near the second
                self.least = min(self.least, gap(choice, 1))
                for best in choice.topk(2, -1).values.split(1, -1):
                    far = (best - choice) / choice.abs().maximum(best)
                    self.least = min(self.least, float((far - 2 * jitter).abs().min()))
            if groups > 1:
                parts = choice.view(len(choice), groups, -1)
                values = parts.topk(group_best, -1).values.sum(-1)
                self.least = min(self.least, gap(values, kept))
                out = torch.ones_like(values).scatter(1, values.topk(kept).indices, 0).bool()
                choice = parts.masked_fill(out[..., None], -10.0).reshape(len(choice), -1)
            self.least = min(self.least, gap(choice, top_k))

        experts = next(n for key in ("num_local_experts", "num_experts", "moe_num_experts")
                       if (n := getattr(config, key, None)))
        self.handles = []
        for block in net.modules():
            parts = [getattr(block, key, None) for key in ("gate", "router", "layer")]
            gate = next((part for part in parts if part is not None), None)
            if tuple(getattr(getattr(gate, "weight", None), "shape", ())) != (experts, text.hidden_size):
                continue
            holder = gate if hasattr(gate, "e_score_correction_bias") else block
            bias = getattr(holder, "e_score_correction_bias", None)
            self.handles.append(gate.register_forward_hook(lambda m, i, _, bias=bias: hook(m, i, bias)))
        assert self.handles, "no router found"


def run(net, ids, by_token):
    """Log-probabilities of ids[1:], the greedy continuation with its own, and its least margin."""
    import torch
    from transformers import DynamicCache

    with torch.no_grad():
        cache = DynamicCache(config=net.config.get_text_config())
        steps = [[t] for t in ids] if by_token else [ids]
        rows = [net(torch.tensor([s]), past_key_values=cache, use_cache=True).logits[0] for s in steps]
        logits = torch.cat(rows).double()
        logprobs = torch.log_softmax(logits, -1)
        scores = [round(float(logprobs[i, ids[i + 1]]), 7) for i in range(len(ids) - 1)]
        greedy, greedy_scores, margin = [], [], 1.0
        last = logits[-1]
        for _ in range(GREEDY_TOKENS):
            best = last.topk(2).values
            margin = min(margin, float(best[0] - best[1]))
            greedy.append(int(last.argmax()))
            greedy_scores.append(round(float(torch.log_softmax(last, -1)[greedy[-1]]), 7))
            last = net(torch.tensor([[greedy[-1]]]), past_key_values=cache, use_cache=True).logits[0, -1].double()
    return dict(ids=ids, logprobs=scores, greedy=greedy, greedy_logprobs=greedy_scores), margin


def reference(net, prompts, by_token):
    two_stacks = net.config.is_encoder_decoder
    margins = encoder_decoder.Margins(net) if two_stacks else Margins(net)
    results, least = [], 1.0
    for ids in prompts:
        result, margin = encoder_decoder.run(net, ids, GREEDY_TOKENS) if two_stacks else run(net, ids, by_token)
        results.append(result)
        least = min(least, margin)
    for handle in margins.handles:
        handle.remove()
    return results, min(least, margins.least)


def save(name, net, sections):
    import torch
    import transformers

    v, out = VARIANTS[name], OUT / name
    shutil.rmtree(out, ignore_errors=True)
    biases = {key: b.clone() for key, b in net.named_buffers() if key.endswith("e_score_correction_bias")}
    net.to(getattr(torch, v["dtype"]))
    for key, b in net.named_buffers():  # f32 whatever the weights are, as published
        if key in biases:
            b.data = biases[key]
    net.save_pretrained(out, max_shard_size="120KB" if v.get("shards") else "1GB")
    (out / "generation_config.json").unlink(missing_ok=True)
    if v.get("stacked"):  # as published; transformers saves experts apart
        import safetensors.torch

        safetensors.torch.save_file({key: p.contiguous() for key, p in net.state_dict().items()},
                                    out / "model.safetensors", metadata={"format": "pt"})
    if v.get("mxfp4"):
        mxfp4.rewrite(out / "model.safetensors")
    config = json.loads((out / "config.json").read_text())
    if v["old_rope"] and "rope_parameters" in config:
        parameters = dict(config.pop("rope_parameters"))
        config["rope_theta"] = parameters.pop("rope_theta", 10000.0)
        config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
        config.pop("partial_rotary_factor", None)
    if v.get("mxfp4"):
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    if v.get("nested"):
        config = as_text_part(out / "model.safetensors", config)
    if "rotary_dim" in v:
        config["rotary_dim"] = v["rotary_dim"]
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    text = json.dumps({"transformers": transformers.__version__, **{k: {"prompts": p} for k, p in sections.items()}},
                      indent=None)
    (out / "reference.json").write_text(text + "\n")
    size = sum(f.stat().st_size for f in out.glob("*.safetensors"))
    assert size <= BYTES_MAX, f"{name}: {size} bytes of weights"
    return size


def as_text_part(file, config):
    """The text model as a part of Llama-4's checkpoints, beside a vision tower; returns the config."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {"language_model." + key: w for key, w in load_file(file).items()}
    tensors["vision_model.patch_embedding.linear.weight"] = torch.ones(4, 3)
    tensors["multi_modal_projector.linear_1.weight"] = torch.ones(4, 4)
    save_file(tensors, file, metadata={"format": "pt"})
    return {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": config,
            "boi_token_index": 120, "eoi_token_index": 121, "image_token_index": 122,
            "vision_config": {"hidden_size": 4, "model_type": "llama4_vision_model"}, "tie_word_embeddings": False}


def prompts_of(seed):
    import torch

    random = torch.Generator().manual_seed(seed)
    return [torch.randint(3, BASE["vocab_size"], (n,), generator=random).tolist() for n in PROMPT_LENGTHS]


def make_native(kind, name, out):
    """Of gguf_fixtures or quantised_fixtures."""
    import torch

    torch.set_num_threads(1)
    kind.make(name, out, build, lambda net, prompts: reference(net, prompts, False), MARGIN_MIN, prompts_of, BYTES_MAX)


def make(name):
    import torch

    torch.set_num_threads(1)  # tiny models: more threads only wait for each other
    by_token = VARIANTS[name]["config"].get("rope_parameters", {}).get("rope_type") == "dynamic"  # docs/decisions/0004
    for seed in range(1, 200):
        net = build(VARIANTS[name], seed)
        prompts = prompts_of(seed)
        sections, least = {}, 1.0
        for dtype, twin in (("f32", net), ("bf16", rounded(net, torch.bfloat16))):
            sections[dtype], margin = reference(twin, prompts, by_token)
            least = min(least, margin)
            if least <= MARGIN_MIN:
                break
        else:
            spread = max(max(p["logprobs"] or [0]) - min(p["logprobs"] or [0]) for p in sections["f32"])
            print(
                f"{name}: seed {seed}, least margin {least:.2e}, log-probabilities spread over {spread:.1f}, "
                f"{save(name, net, sections):,} bytes"
            )
            return
    raise SystemExit(f"{name}: no seed gives margins above {MARGIN_MIN}; widen its weights")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [*VARIANTS, *gguf_fixtures.VARIANTS, *quantised_fixtures.VARIANTS, "blocks", *tokenizer_fixtures.KINDS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to make (default: all): {', '.join(every)}")
    names = parser.parse_args().names or every
    for name in names:
        if name not in every:
            parser.error(f"no fixture is called {name}")
    for name in names:
        if name in VARIANTS:
            make(name)
        elif name in gguf_fixtures.VARIANTS:
            make_native(gguf_fixtures, name, GGUF_OUT)
        elif name in quantised_fixtures.VARIANTS:
            make_native(quantised_fixtures, name, QUANTISED_OUT)
        elif name == "blocks":
            gguf_fixtures.make_blocks(BLOCKS_OUT)
        else:
            tokenizer_fixtures.make(name, TOKENIZERS_OUT, ROOT / "models" / "demo")


if __name__ == "__main__":
    main()

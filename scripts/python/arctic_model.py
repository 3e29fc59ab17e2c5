"""Snowflake Arctic, which transformers does not have: its definition said again in plain PyTorch, after the modeling
file that is published with the model (modeling_arctic.py). Only what inference computes, without a cache: each call
computes everything before it again.

A layer with experts: x2 = x + attention(input_layernorm(x)); and, if `parallel_attn_mlp_res`,
x2 + residual_mlp(residual_layernorm(x2)) + experts(post_attention_layernorm(x)), where the experts see x from before
attention; else x2 + experts(post_attention_layernorm(x2)). The weights of the chosen experts sum to 1.
"""

import json
from types import SimpleNamespace

import torch
from torch import nn


class RmsNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Mlp(nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        self.w1, self.w3 = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.w2 = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.gate = nn.Linear(config.hidden_size, config.num_local_experts, bias=False)
        self.experts = nn.ModuleList(
            Mlp(config.hidden_size, config.intermediate_size) for _ in range(config.num_local_experts))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        rows = [sum(w * self.experts[e](row) for w, e in zip(ws, es)) for row, ws, es in zip(x, weights, chosen)]
        return torch.stack(rows)


class Dense(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = Mlp(config.hidden_size, config.intermediate_size)

    def forward(self, x):
        return self.mlp(x)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.width, self.window = config.hidden_size // self.heads, config.sliding_window
        self.theta = config.rope_parameters["rope_theta"]
        hidden, kv = config.hidden_size, self.kv_heads * self.width
        self.q_proj, self.o_proj = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k_proj, self.v_proj = nn.Linear(hidden, kv, bias=False), nn.Linear(hidden, kv, bias=False)

    def forward(self, x):
        positions = torch.arange(len(x))
        angles = positions[:, None] / self.theta**(torch.arange(0, self.width, 2).float() / self.width)
        cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)

        def heads(projection, count):
            return projection(x).view(len(x), count, self.width).transpose(0, 1)

        def rotated(y):
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat((-second, first), -1) * sin

        q, k = rotated(heads(self.q_proj, self.heads)), rotated(heads(self.k_proj, self.kv_heads))
        k, v = (y.repeat_interleave(self.heads // self.kv_heads, 0) for y in (k, heads(self.v_proj, self.kv_heads)))
        distance = positions[:, None] - positions
        hidden = (distance < 0) | (distance >= (self.window or len(x)))
        scores = (q @ k.transpose(1, 2) / self.width**0.5).masked_fill(hidden, float("-inf"))
        return self.o_proj((scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), -1))


class Layer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        sparse = (index + 1) % config.moe_layer_frequency == 0
        self.parallel = config.parallel_attn_mlp_res and sparse
        self.self_attn = Attention(config)
        self.block_sparse_moe = Experts(config) if sparse else Dense(config)
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        if self.parallel:
            self.residual_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
            self.residual_mlp = Mlp(config.hidden_size, config.hidden_size)

    def forward(self, x):
        after = x + self.self_attn(self.input_layernorm(x))
        if not self.parallel:
            return after + self.block_sparse_moe(self.post_attention_layernorm(after))
        dense = after + self.residual_mlp(self.residual_layernorm(after))
        return dense + self.block_sparse_moe(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)


class Arctic(nn.Module):
    """Called as transformers' models are. What came before is remembered in the cache that is passed."""

    def __init__(self, config):
        super().__init__()
        self.config, self.model = config, Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids, past_key_values, use_cache=True):
        before = getattr(past_key_values, "ids", [])
        past_key_values.ids = before + ids[0].tolist()
        x = self.model.embed_tokens(torch.tensor(past_key_values.ids))
        for layer in self.model.layers:
            x = layer(x)
        logits = self.lm_head(self.model.norm(x))
        return SimpleNamespace(logits=logits[None, len(before):])

    def save_pretrained(self, out, max_shard_size=None):
        from safetensors.torch import save_file

        out.mkdir(parents=True, exist_ok=True)
        tied = self.config.tie_word_embeddings
        tensors = {k: w.contiguous() for k, w in self.state_dict().items() if not (tied and k == "lm_head.weight")}
        save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
        config = {**self.config.to_dict(), "architectures": ["ArcticForCausalLM"], "model_type": "arctic"}
        (out / "config.json").write_text(json.dumps(config))

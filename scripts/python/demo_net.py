"""The demo model's network for training: Qwen3-MoE in plain PyTorch, with experts computed on tokens sorted by expert.

transformers' own module is the reference after export; this one exists because on a CPU it trains several times faster.
Names of parameters become those of the published checkpoints in `checkpoint_tensors`.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), 1e-6)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        d, h, e, f = c["hidden_size"], c["head_dim"], c["num_experts"], c["moe_intermediate_size"]
        self.heads, self.kv, self.head_dim = c["num_attention_heads"], c["num_key_value_heads"], h
        self.top_k, self.experts = c["num_experts_per_tok"], e
        self.norm1, self.norm2, self.q_norm, self.k_norm = Norm(d), Norm(d), Norm(h), Norm(h)
        self.qkv = nn.Linear(d, (self.heads + 2 * self.kv) * h, bias=False)
        self.o = nn.Linear(self.heads * h, d, bias=False)
        self.router = nn.Linear(d, e, bias=False)
        self.gate_up = nn.Parameter(torch.empty(e, 2 * f, d))
        self.down = nn.Parameter(torch.empty(e, d, f))
        depth = 1 / math.sqrt(2 * c["num_hidden_layers"])
        for w, scale in ((self.qkv.weight, 1), (self.o.weight, depth), (self.router.weight, 1), (self.gate_up, 1),
                         (self.down, depth)):
            nn.init.normal_(w, std=scale / math.sqrt(w.shape[-1]) * 0.7)

    def attention(self, x, cos, sin):
        b, t, _ = x.shape
        qkv = self.qkv(x).view(b, t, self.heads + 2 * self.kv, self.head_dim).transpose(1, 2)
        q, k, v = qkv.split((self.heads, self.kv, self.kv), 1)
        q, k = rotate(self.q_norm(q), cos, sin), rotate(self.k_norm(k), cos, sin)
        k, v = (y.repeat_interleave(self.heads // self.kv, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q.contiguous(), k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def mixture(self, x):
        """Output and the router's probabilities [tokens, experts]."""
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        with torch.autocast("cpu", enabled=False):
            probs = F.linear(x.float(), self.router.weight).softmax(-1)
        top, ids = probs.topk(self.top_k, -1)
        top = (top / top.sum(-1, keepdim=True)).to(x.dtype)
        order = ids.flatten().argsort(stable=True)
        counts = torch.bincount(ids.flatten(), minlength=self.experts).tolist()
        token = order // self.top_k
        xs = x.index_select(0, token)
        gu = torch.cat([F.linear(a, w) for a, w in zip(xs.split(counts), self.gate_up.to(x.dtype).unbind(0))])
        g, u = gu.chunk(2, -1)
        y = torch.cat([F.linear(a, w) for a, w in zip((F.silu(g) * u).split(counts), self.down.to(x.dtype).unbind(0))])
        y = y * top.flatten().index_select(0, order).unsqueeze(-1)
        return torch.zeros_like(x).index_add(0, token, y).view(shape), probs, ids


class DemoNet(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = c = config
        self.embed = nn.Parameter(torch.randn(c["vocab_size"], c["hidden_size"]) * 0.02)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"])
        inv = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
        angle = torch.outer(torch.arange(c["max_position_embeddings"]).float(), inv)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids):
        """Hidden states after the last norm, router probabilities and chosen experts of each layer."""
        x = F.embedding(ids, self.embed).to(torch.bfloat16 if torch.is_autocast_enabled("cpu") else torch.float32)
        cos, sin = (y[: ids.shape[1]].to(x.dtype) for y in (self.cos, self.sin))
        probs, chosen = [], []
        for layer in self.layers:
            x = x + layer.attention(layer.norm1(x), cos, sin)
            y, p, i = layer.mixture(layer.norm2(x))
            x = x + y
            probs.append(p)
            chosen.append(i)
        return self.norm(x), probs, chosen

    def logits(self, hidden):
        return F.linear(hidden, self.embed.to(hidden.dtype)).float()

    def checkpoint_tensors(self, dtype=torch.bfloat16):
        """Weights under the names of published Qwen3-MoE checkpoints."""
        c, out = self.config, {"model.embed_tokens.weight": self.embed, "model.norm.weight": self.norm.weight}
        q, k = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
        for n, layer in enumerate(self.layers):
            p = f"model.layers.{n}."
            out[p + "input_layernorm.weight"] = layer.norm1.weight
            out[p + "post_attention_layernorm.weight"] = layer.norm2.weight
            for name, w in zip("qkv", layer.qkv.weight.split((q, k, k))):
                out[p + f"self_attn.{name}_proj.weight"] = w
            out[p + "self_attn.o_proj.weight"] = layer.o.weight
            out[p +
                "self_attn.q_norm.weight"], out[p +
                                                "self_attn.k_norm.weight"] = layer.q_norm.weight, layer.k_norm.weight
            out[p + "mlp.gate.weight"] = layer.router.weight
            for e in range(c["num_experts"]):
                gate, up = layer.gate_up[e].chunk(2)
                for name, w in (("gate", gate), ("up", up), ("down", layer.down[e])):
                    out[p + f"mlp.experts.{e}.{name}_proj.weight"] = w
        return {name: w.detach().to(dtype).clone().contiguous() for name, w in out.items()}

"""Scores the exported demo model on all held-out text and writes what of it may be committed.

Weights are those of model.safetensors (bf16), computed in float32 by the training network, after a check that
transformers gives the same log-probabilities from the same files.
"""

import json
import math
import pathlib

import demo_data as data

WINDOW = 512


def load(torch, out):
    """The training network with the exported weights."""
    from safetensors.torch import load_file

    from demo_net import DemoNet

    config = json.loads((out / "config.json").read_text())
    t = {k: v.float() for k, v in load_file(str(out / "model.safetensors")).items()}
    net = DemoNet(config)
    state = {"embed": t["model.embed_tokens.weight"], "norm.weight": t["model.norm.weight"]}
    for n in range(config["num_hidden_layers"]):
        src, dst = f"model.layers.{n}.", f"layers.{n}."
        state[dst +
              "norm1.weight"], state[dst +
                                     "norm2.weight"] = t[src +
                                                         "input_layernorm.weight"], t[src +
                                                                                      "post_attention_layernorm.weight"]
        state[dst + "qkv.weight"] = torch.cat([t[src + f"self_attn.{x}_proj.weight"] for x in "qkv"])
        state[dst + "o.weight"], state[dst + "router.weight"] = t[src + "self_attn.o_proj.weight"], t[src +
                                                                                                      "mlp.gate.weight"]
        for x in "qk":
            state[dst + f"{x}_norm.weight"] = t[src + f"self_attn.{x}_norm.weight"]
        experts = [src + f"mlp.experts.{e}." for e in range(config["num_experts"])]
        state[dst + "gate_up"] = torch.stack(
            [torch.cat((t[e + "gate_proj.weight"], t[e + "up_proj.weight"])) for e in experts])
        state[dst + "down"] = torch.stack([t[e + "down_proj.weight"] for e in experts])
    net.load_state_dict(state)
    return net.eval()


def bits_per_byte(torch, net, tok, text):
    """Windows of 512 tokens, each begun by <|endoftext|>, which is context and not scored."""
    ids = tok.encode(text).ids
    nats = 0.0
    for at in range(0, len(ids), WINDOW - 1):
        row = torch.tensor([[0] + ids[at : at + WINDOW - 1]])
        hidden, _, _ = net(row)
        nats += torch.nn.functional.cross_entropy(net.logits(hidden[0, :-1]), row[0, 1:], reduction="sum").item()
    return nats / math.log(2) / len(text.encode())


def report(args, prepared):
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    domains, tok, _ = prepared
    out = pathlib.Path(args.out)
    net = load(torch, out)
    reference = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32,
                                                                  attn_implementation="eager").eval()
    (out / "heldout").mkdir(exist_ok=True)
    with torch.no_grad():
        probe = torch.tensor([[0] + tok.encode(domains[0].held_text(2000)).ids])
        ours, theirs = net.logits(net(probe)[0]).log_softmax(-1), reference(probe).logits.log_softmax(-1)
        apart = (ours - theirs).abs().max().item()
        if apart > 1e-3:
            raise SystemExit(
                f"error: {out} and transformers differ by {apart:.1e} in log-probability; the export is wrong")
        for d in domains:
            text = d.held_text()
            print(f"{d.name}: {bits_per_byte(torch, net, tok, text):.3f} bits per byte on {len(text.encode()):,} bytes",
                  flush=True)
            if data.DOMAINS[d.name]["commit"]:
                (out / "heldout" / f"{d.name}.txt").write_text(text)
    print(f"largest difference from transformers: {apart:.1e}")

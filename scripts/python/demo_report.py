"""Measures the exported demo model, records its routes, writes held-out text and the card.

Weights are those of model.safetensors (bf16), computed in float32. Text is sampled by transformers; losses and routes come from the training
network over the same tokens, after a check that both give the same log-probabilities.
"""

import json
import math
import pathlib

import numpy as np

import demo_data as data

REQUESTS, RECORDED, PROMPT, DECODE, WINDOW = 20, 12, 32, 64, 512


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
        state[dst + "norm1.weight"], state[dst + "norm2.weight"] = t[src + "input_layernorm.weight"], t[src + "post_attention_layernorm.weight"]
        state[dst + "qkv.weight"] = torch.cat([t[src + f"self_attn.{x}_proj.weight"] for x in "qkv"])
        state[dst + "o.weight"], state[dst + "router.weight"] = t[src + "self_attn.o_proj.weight"], t[src + "mlp.gate.weight"]
        for x in "qk":
            state[dst + f"{x}_norm.weight"] = t[src + f"self_attn.{x}_norm.weight"]
        experts = [src + f"mlp.experts.{e}." for e in range(config["num_experts"])]
        state[dst + "gate_up"] = torch.stack([torch.cat((t[e + "gate_proj.weight"], t[e + "up_proj.weight"])) for e in experts])
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


def prompts(domain, tok):
    """Twenty held-out prompts of PROMPT tokens, evenly spaced."""
    ids = tok.encode(domain.held_text()).ids
    step = (len(ids) - PROMPT) // REQUESTS
    return [ids[i * step : i * step + PROMPT] for i in range(REQUESTS)]


def coverage(counts):
    """Share of experts that takes 90 % of the uses."""
    uses = np.sort(counts)[::-1].cumsum()
    return (int(np.searchsorted(uses, 0.9 * uses[-1])) + 1) / len(counts)


def record(path, name, config, requests):
    """requests: per request [tokens, layers, top_k] ids."""
    head = dict(format="moestro-routes", version=1, model="demo", layers=config["num_hidden_layers"], experts=config["num_experts"],
                top_k=config["num_experts_per_tok"])
    with path.open("w") as f:
        f.write(json.dumps(head, separators=(",", ":")) + "\n")
        for r, rows in enumerate(requests):
            for t, row in enumerate(rows.tolist()):
                line = dict(r=r, ph="prefill" if t < PROMPT else "decode", t=t, e=row)
                f.write(json.dumps(line, separators=(",", ":")) + "\n")


def report(args, prepared):
    import torch
    import transformers

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    domains, tok, _ = prepared
    out = pathlib.Path(args.out)
    net = load(torch, out)
    reference = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    e, figures, matrices = net.config["num_experts"], {}, {}
    for folder in ("heldout", "routes"):
        (out / folder).mkdir(exist_ok=True)
    with torch.no_grad():
        probe = torch.tensor([[0] + prompts(domains[0], tok)[0]])
        ours, theirs = net.logits(net(probe)[0]).log_softmax(-1), reference(probe).logits.log_softmax(-1)
        apart = (ours - theirs).abs().max().item()
        if apart > 1e-3:
            raise SystemExit(f"error: the export and transformers differ by {apart:.1e} in log-probability; the export is wrong")
        for d in domains:
            text = d.held_text()
            bpb = bits_per_byte(torch, net, tok, text)
            rows = torch.tensor(prompts(d, tok))
            # Sampled, for greedy text of a small model falls into loops, whose routing is that of one sentence.
            full = reference.generate(rows, max_new_tokens=DECODE + 1, min_new_tokens=DECODE + 1, do_sample=True, temperature=0.8, top_k=0,
                                      attention_mask=torch.ones_like(rows), pad_token_id=0)[:, : PROMPT + DECODE]
            _, _, chosen = net(full)
            ids = torch.stack([c.view(REQUESTS, PROMPT + DECODE, -1) for c in chosen], 2).numpy()
            counts = np.array([[np.bincount(r[PROMPT:, n].ravel(), minlength=e) for n in range(r.shape[1])] for r in ids])
            matrices[d.name] = counts
            one = float(np.median([np.mean([coverage(c) for c in layer]) for layer in counts.transpose(1, 0, 2)]))
            pooled = float(np.median([coverage(c) for c in counts.sum(0)]))
            top = [int(x) for x in np.argsort(-counts.sum(0)[net.config["num_hidden_layers"] // 2])[:4]]
            figures[d.name] = dict(bits_per_byte=round(bpb, 3), held_out_bytes=len(text.encode()), experts_for_90=round(one, 3),
                                   experts_for_90_pooled=round(pooled, 3), busiest=top)
            print(d.name, figures[d.name], flush=True)
            if data.DOMAINS[d.name]["commit"]:
                (out / "heldout" / f"{d.name}.txt").write_text(text)
            record(out / "routes" / f"{d.name}.jsonl", d.name, net.config, ids[:RECORDED])
    within, across = cosines(matrices)
    print(f"cosine within {within:.3f} across {across:.3f}", flush=True)
    work = pathlib.Path(args.work)
    training = json.loads((work / "training.json").read_text()) if (work / "training.json").exists() else {}
    (out / "README.md").write_text(card(domains, figures, within, across, training, net.config, out))


def cosines(matrices):
    """Mean cosine of the requests' activation matrices, within a domain and across domains."""
    flat = {n: m.reshape(len(m), -1) / np.linalg.norm(m.reshape(len(m), -1), axis=1, keepdims=True) for n, m in matrices.items()}
    inside, outside = [], []
    for a in flat:
        for b in flat:
            c = flat[a] @ flat[b].T
            inside += c[np.triu_indices(len(c), 1)].tolist() if a == b else []
            outside += c.ravel().tolist() if a < b else []
    return float(np.mean(inside)), float(np.mean(outside))


def card(domains, figures, within, across, training, config, out):
    size = (out / "model.safetensors").stat().st_size
    missed = [n for n, f in figures.items() if f["bits_per_byte"] > 2.2]
    lines = [
        "# Demo model", "",
        f"A Qwen3-MoE language model of {config['num_hidden_layers']} layers, {config['num_experts']} experts a layer (top-"
        f"{config['num_experts_per_tok']}), hidden size {config['hidden_size']}, expert size {config['moe_intermediate_size']}, context "
        f"{config['max_position_embeddings']}, and a byte-level BPE of {config['vocab_size']:,} tokens; {size / 1e6:.1f} MB in bf16. It exists to",
        "show and test the serving system: its English is fluent only in patches, and what it says is not to be believed.", "",
        "## Figures", "",
        "Held-out bits per byte: windows of 512 tokens, each begun by `<|endoftext|>` (not scored), bf16 weights computed in float32. The last two",
        f"columns are the share of a layer's experts that takes 90 % of the uses (median over layers) in a {DECODE}-token decode of one request and in",
        f"{REQUESTS} such decodes together; \"busiest\" are the four most used experts of layer {config['num_hidden_layers'] // 2}.", "",
        "| domain | bits per byte | held-out bytes | one decode | all decodes | busiest |", "| --- | --- | --- | --- | --- | --- |",
    ]
    for n, f in figures.items():
        lines.append(f"| {n} | {f['bits_per_byte']:.3f} | {f['held_out_bytes']:,} | {f['experts_for_90']:.0%} | {f['experts_for_90_pooled']:.0%} | "
                     f"{', '.join(map(str, f['busiest']))} |")
    lines += ["", f"Mean cosine of the requests' activation matrices: {within:.3f} within a domain, {across:.3f} across domains, difference "
              f"{within - across:.3f}.", ""]
    if missed:
        lines += [f"The aim of 2.2 bits per byte in every domain is not met in: {', '.join(missed)}. A longer run is the remedy"
                  " (`--minutes`).", ""]
    lines += ["## Training", ""]
    if training:
        lines += [f"{training['steps']} steps of 8,192 tokens ({training['tokens'] / 1e6:.1f} M tokens) in {training['minutes']} minutes on two shared CPU cores; AdamW, peak learning "
                  f"rate {training['lr']}, cosine; load balance over whole mixed batches with coefficient {training['balance']}, and the spread of a "
                  f"domain's routing with {training['specialise']} down to {training['spread_floor']} nats. Passes over each domain: "
                  + ", ".join(f"{n} {x}" for n, x in training["epochs"].items()) + ".", ""]
    lines += ["`scripts/train_demo_model.py train --text DIR` trains it, `report` makes this page. A share of maths and dialogue is in ChatML.", "",
              "## Data", "", "| domain | source | bytes | SHA-256 | licence |", "| --- | --- | --- | --- | --- |"]
    for d in domains:
        for s in d.sources:
            lines.append(f"| {d.name} | {s['file']} | {s['bytes']:,} | `{s['sha256']}` | {data.DOMAINS[d.name]['licence']} |")
    lines += ["", "`heldout/` holds the held-out text of the domains that are in the public domain; no training text is in this folder. `routes/` holds, per domain,",
              f"{RECORDED} requests ({PROMPT} tokens of prompt, {DECODE} decoded at temperature 0.8) in the format `moestro-routes` version 1. `reference.json` is what",
              "transformers says of this model (`scripts/make_demo_reference.py`).", ""]
    return "\n".join(lines)

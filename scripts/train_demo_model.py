#!/usr/bin/env python3
"""Trains the demo model: a small Qwen3-MoE language model whose experts specialise by domain, in Hugging Face layout.

    python3 -m venv build/venv-train
    build/venv-train/bin/pip install -r scripts/python/requirements-train.txt
    build/venv-train/bin/python scripts/train_demo_model.py train --text DIR -o models/demo
    build/venv-train/bin/python scripts/train_demo_model.py report --text DIR -o models/demo

`train` reads the text (see scripts/python/demo_data.py for the files expected in DIR; Python's standard library is read
where this interpreter has it), trains the tokenizer, then the model. The learning rate follows the clock (--minutes) or
the step count (--steps, which repeats a run exactly); every few minutes a usable model is exported and a checkpoint
written, from which --resume goes on. `report` scores the exported model on all held-out text, checks it against
transformers, and writes models/demo/heldout. Routes and how experts specialise are record_demo_routes.py's, the
reference log-probabilities make_demo_reference.py's.
"""

import argparse
import json
import math
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))

import numpy as np

import demo_data as data

CONFIG = dict(
    architectures=["Qwen3MoeForCausalLM"],
    attention_bias=False,
    attention_dropout=0.0,
    bos_token_id=None,
    decoder_sparse_step=1,
    eos_token_id=0,
    head_dim=32,
    hidden_act="silu",
    hidden_size=128,
    initializer_range=0.02,
    intermediate_size=128,
    max_position_embeddings=1024,
    max_window_layers=8,
    mlp_only_layers=[],
    model_type="qwen3_moe",
    moe_intermediate_size=128,
    norm_topk_prob=True,
    num_attention_heads=4,
    num_experts=16,
    num_experts_per_tok=2,
    num_hidden_layers=8,
    num_key_value_heads=2,
    output_router_logits=False,
    pad_token_id=0,
    rms_norm_eps=1e-06,
    rope_scaling=None,
    rope_theta=10000.0,
    router_aux_loss_coef=0.01,
    sliding_window=None,
    tie_word_embeddings=True,
    torch_dtype="bfloat16",
    use_cache=True,
    use_sliding_window=False,
    vocab_size=4096,
)
EOT_ID, IM_END_ID = 0, 2


def log(*words):
    print(time.strftime("%H:%M:%S", time.gmtime()), *words, file=sys.stderr, flush=True)


def prepare(args):
    """Domains, tokenizer and the token stream of each domain; cached under the work folder, for they depend on the text
    alone."""
    from tokenizers import Tokenizer

    text = pathlib.Path(args.text)
    if not text.is_dir():
        raise SystemExit(f"error: --text {text}: not a folder; give the folder that holds novels_en.txt and the others")
    work = pathlib.Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    domains = [data.Domain(name, text) for name in data.DOMAINS]
    if not (work / "tokenizer.json").exists():
        log("training the tokenizer")
        data.train_tokenizer(domains, CONFIG["vocab_size"]).save(str(work / "tokenizer.json"))
    tok = Tokenizer.from_file(str(work / "tokenizer.json"))
    if tok.get_vocab_size() != CONFIG["vocab_size"]:
        raise SystemExit(
            f"error: the tokenizer has {tok.get_vocab_size()} tokens, not {CONFIG['vocab_size']}; is there enough text?"
        )
    streams = {}
    for d in domains:
        cache = work / f"{d.name}.u16"
        if not cache.exists():
            rng = np.random.default_rng(1)
            docs = d.train + d.chat
            ids = []
            for i in rng.permutation(len(docs)):
                for enc in tok.encode_batch([docs[i]]):
                    ids += enc.ids + [EOT_ID]
            np.array(ids, np.uint16).tofile(cache)
        streams[d.name] = np.fromfile(cache, np.uint16)
        log(f"{d.name}: {len(streams[d.name]):,} training tokens, {len(d.held_text().encode()):,} held-out bytes")
    return domains, tok, streams


class Batches:
    """Mixes domains in every batch by their shares (systematic sampling); a small domain that has been read ten times
    counts a quarter."""

    def __init__(self, streams, seed):
        self.streams, self.rng = streams, np.random.default_rng(seed)
        self.names = list(streams)
        self.read = {n: 0 for n in self.names}

    def next(self, sequences, length):
        share = np.array(
            [data.DOMAINS[n]["share"] * (0.25 if self.read[n] > 10 * len(self.streams[n]) else 1) for n in self.names])
        edges = np.cumsum(share / share.sum())
        which = np.searchsorted(edges, (np.arange(sequences) + self.rng.random()) / sequences)
        rows = []
        for d in np.minimum(which, len(self.names) - 1):
            s = self.streams[self.names[d]]
            at = int(self.rng.integers(0, len(s) - length - 1))
            rows.append(s[at : at + length + 1])
            self.read[self.names[d]] += length
        return np.stack(rows).astype(np.int64), which


def routing_losses(torch, probs, chosen, which, experts):
    """Load balance over the whole mixed batch, and how spread out the routing of one domain is (nats), both averaged
    over layers.

    The second is the conditional half of the mutual information between domain and expert (Mod-Squad, CVPR 2023):
    lowering it makes each domain keep to some experts, while the balance term keeps all of them in use over the
    mixture.
    """
    balance, spread = 0.0, 0.0
    domain = torch.as_tensor(which)
    for p, ids in zip(probs, chosen):
        used = torch.bincount(ids.flatten(), minlength=experts).float() / ids.numel()
        balance = balance + experts * (used * p.mean(0)).sum()
        per_sequence = p.view(len(which), -1, experts).mean(1)
        for d in domain.unique():
            rows = per_sequence[domain == d]
            q = rows.mean(0)
            spread = spread - (q * (q + 1e-9).log()).sum() * (len(rows) / len(which))
    return balance / len(probs), spread / len(probs)


def export(net, work, out):
    """Writes the model so that a reader finds either the old or the new weights, never half of them."""
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    save_file(net.checkpoint_tensors(), str(out / "model.safetensors.part"), metadata={"format": "pt"})
    os.replace(out / "model.safetensors.part", out / "model.safetensors")

    def put(name, value):
        (out / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    put("config.json", CONFIG)
    put("generation_config.json", dict(eos_token_id=[EOT_ID, IM_END_ID], pad_token_id=EOT_ID, do_sample=False))
    put("tokenizer_config.json", data.tokenizer_config(CONFIG["max_position_embeddings"]))
    (out / "tokenizer.json").write_bytes((work / "tokenizer.json").read_bytes())


def windows(tok, text, length):
    """Token windows of a text; each begins with <|endoftext|> as context that is not scored."""
    ids = tok.encode(text).ids
    return [[EOT_ID] + ids[i : i + length - 1] for i in range(0, len(ids), length - 1)]


def held_out_bits(torch, net, tok, domains, length=512, most=40_000):
    """Quick held-out bits per byte during training, on the first `most` bytes of each domain."""
    import torch.nn.functional as F

    result = {}
    net.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for d in domains:
            text = d.held_text(most)
            nats = 0.0
            for row in windows(tok, text, length):
                ids = torch.tensor([row])
                hidden, _, _ = net(ids)
                nats += F.cross_entropy(net.logits(hidden[0, :-1]), ids[0, 1:], reduction="sum").item()
            result[d.name] = round(nats / math.log(2) / len(text.encode()), 3)
    net.train()
    return result


def train(args):
    import torch
    import torch.nn.functional as F

    from demo_net import DemoNet

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    work, out = pathlib.Path(args.work), pathlib.Path(args.out)
    domains, tok, streams = prepare(args)
    net = DemoNet(CONFIG)
    log(f"{sum(p.numel() for p in net.parameters()):,} parameters")
    matrices = [p for p in net.parameters() if p.dim() > 1]
    vectors = [p for p in net.parameters() if p.dim() == 1]
    opt = torch.optim.AdamW([dict(params=matrices, weight_decay=0.05),
                             dict(params=vectors, weight_decay=0.0)], lr=args.lr, betas=(0.9, 0.95), fused=True)
    batches = Batches(streams, args.seed)
    step, before = 0, 0.0
    if args.resume:
        state = torch.load(work / "checkpoint.pt", weights_only=False)
        net.load_state_dict(state["net"])
        opt.load_state_dict(state["opt"])
        batches.rng.bit_generator.state, batches.read, step, before = state["rng"], state["read"], state["step"], state[
            "seconds"]
    start, saved, tokens, window = time.time() - before, time.time(), 0, [0.0, 0.0, 0.0, 0]
    shown = time.time()
    while True:
        done = step / args.steps if args.steps else (time.time() - start) / (args.minutes * 60)
        if done >= 1:
            break
        warm = min(1.0, (step + 1) / 60)
        lr = args.lr * warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in opt.param_groups:
            group["lr"] = lr
        # Every eighth step reads sequences of twice the length, so that the whole context is trained at little cost.
        length = 1024 if step % 8 == 7 else 512
        rows, which = batches.next(args.tokens // length, length)
        ids = torch.from_numpy(rows)
        with torch.autocast("cpu", torch.bfloat16):
            hidden, probs, chosen = net(ids[:, :-1])
            logits = net.logits(hidden.reshape(-1, hidden.shape[-1]))
        loss = F.cross_entropy(logits, ids[:, 1:].flatten())
        balance, spread = routing_losses(torch, probs, chosen, which, CONFIG["num_experts"])
        total = loss + args.balance * balance + args.specialise * F.relu(spread - args.spread_floor)
        opt.zero_grad(set_to_none=True)
        total.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        step += 1
        tokens += rows.shape[0] * length
        for i, v in enumerate((loss, balance, spread)):
            window[i] += float(v.detach())
        window[3] += 1
        if step % 20 == 0:
            n = window[3]
            rate = tokens / (time.time() - shown)
            log(f"step {step} {done:.1%} lr {lr:.2e} loss {window[0]/n:.3f} balance {window[1]/n:.3f} spread "
                f"{window[2]/n:.3f} {rate:,.0f} tok/s"
               )
            window, tokens, shown = [0.0, 0.0, 0.0, 0], 0, time.time()
        if time.time() - saved > args.save_every * 60:
            export(net, work, out)
            torch.save(
                dict(net=net.state_dict(), opt=opt.state_dict(), rng=batches.rng.bit_generator.state, read=batches.read,
                     step=step, seconds=time.time() - start), work / "checkpoint.part")
            os.replace(work / "checkpoint.part", work / "checkpoint.pt")
            log("held-out bits per byte", held_out_bits(torch, net, tok, domains, most=20_000))
            saved = time.time()
    export(net, work, out)
    torch.save(
        dict(net=net.state_dict(), opt=opt.state_dict(), rng=batches.rng.bit_generator.state, read=batches.read,
             step=step, seconds=time.time() - start), work / "checkpoint.pt")
    seen = {n: round(batches.read[n] / len(streams[n]), 1) for n in streams}
    (work / "training.json").write_text(
        json.dumps(
            dict(steps=step, tokens=sum(batches.read.values()), minutes=round(
                (time.time() - start) / 60, 1), epochs=seen, lr=args.lr, balance=args.balance,
                 specialise=args.specialise, spread_floor=args.spread_floor, seed=args.seed), indent=1))
    log("held-out bits per byte", held_out_bits(torch, net, tok, domains))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)
    for name in ("train", "report"):
        s = sub.add_parser(name)
        s.add_argument("--text", required=True, help="folder with the training text")
        s.add_argument("-o", "--out", default="models/demo", help="model folder (default models/demo)")
        s.add_argument("--work", default="build/demo-train", help="caches and checkpoints (default build/demo-train)")
        s.add_argument("--threads", type=int, default=2)
        s.add_argument("--seed", type=int, default=1)
        if name == "train":
            s.add_argument("--minutes", type=float, default=48, help="length of the run by the clock (default 48)")
            s.add_argument("--steps", type=int, default=0, help="length of the run in steps, instead of --minutes")
            s.add_argument("--tokens", type=int, default=8192, help="tokens a step (default 8192)")
            s.add_argument("--lr", type=float, default=3e-3)
            s.add_argument("--balance", type=float, default=0.01, help="coefficient of the load-balancing loss")
            s.add_argument("--specialise", type=float, default=0.05,
                           help="coefficient of the spread of a domain over experts")
            s.add_argument("--spread-floor", type=float, default=1.6, help="nats below which the spread costs nothing")
            s.add_argument("--save-every", type=float, default=4, help="minutes between exports")
            s.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    words = sys.argv[1:]
    if words and words[0].startswith("--") and words[0] != "--help":
        words = ["train", *words]  # `train_demo_model.py --text DIR` trains
    args = p.parse_args(words)
    if args.command == "train":
        train(args)
    else:
        import demo_report

        demo_report.report(args, prepare(args))


if __name__ == "__main__":
    main()

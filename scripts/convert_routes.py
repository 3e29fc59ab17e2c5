#!/usr/bin/env python3
"""Converts recorded routing of other programs to Moestro's routing trace (docs: request-trace.md), for `moestro
replay`.

    scripts/convert_routes.py mixtral humaneval_2_routing.jsonl -o mixtral.jsonl
    scripts/convert_routes.py olmoe routes.jsonl -o olmoe.jsonl

mixtral: a JSON line per token and layer: {"dataset", "problem_id", "layer", "experts": [..], "gating_probs": [..],
"token_idx"}. Layers of one prompt may lack some tokens at their end; as many tokens are taken as all layers have.
olmoe: a line {"type": "meta", "top_k", "num_experts", "layers_logged", ...}, then {"type": "route", "req_id",
"token_idx", "layer", "topk_ids", "topk_weights"}; of one layer there it is a trace of one layer. --skip leaves out so
many rows at the beginning (the warm-up of the server).

A trace that does not tell its requests apart (all rows of one name) is cut into requests of --cut tokens.
Neither says where a prompt ends, so all tokens but the first --prompt of each request count as decoded."""

import argparse
import json
import pathlib
import sys


def rows_of(path):
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except ValueError:
                raise SystemExit(f"error: {path} line {number}: not JSON")


def read_mixtral(path, _skip):
    """{request: {layer: [(experts, weights) of each token]}}, model, experts"""
    requests = {}
    for number, row in rows_of(path):
        try:
            layers = requests.setdefault((row["dataset"], row["problem_id"]), {})
            layers.setdefault(row["layer"], []).append((row["experts"], row["gating_probs"]))
        except (KeyError, TypeError):
            raise SystemExit(f"error: {path} line {number}: not a row of a Mixtral trace")
    return requests, "mixtral-8x7b-instruct", 8


def read_olmoe(path, skip):
    requests, model, experts, seen = {}, "olmoe", 0, 0
    for number, row in rows_of(path):
        try:
            if row["type"] == "meta":
                model, experts = row["model_id"], row["num_experts"]
            elif row["type"] == "route":
                seen += 1
                if seen > skip:
                    requests.setdefault(row["req_id"], {}).setdefault(row["layer"], []).append(
                        (row["topk_ids"], row["topk_weights"]))
        except (KeyError, TypeError):
            raise SystemExit(f"error: {path} line {number}: not a row of an OLMoE trace")
    return requests, model, experts


def cut(requests, tokens):
    """Requests of at most so many tokens each."""
    out = {}
    for name, of in requests.items():
        longest = max(len(rows) for rows in of.values())
        for begin in range(0, longest, tokens):
            out[name, begin] = {layer: rows[begin : begin + tokens] for layer, rows in of.items()}
    return out


def write(requests, model, experts, prompt, out):
    layers = sorted({layer for of in requests.values() for layer in of})
    if not layers or not experts:
        raise SystemExit("error: no routes in it")
    whole = {name: of for name, of in requests.items() if len(of) == len(layers)}
    top_k = len(next(iter(whole.values()))[layers[0]][0][0])
    head = {
        "format": "moestro-routes", "version": 1, "model": model, "layers": len(layers), "experts": experts,
        "top_k": top_k
    }
    print(json.dumps(head, separators=(",", ":")), file=out)
    tokens = 0
    for request, of in enumerate(whole.values(), 1):
        for t in range(min(len(rows) for rows in of.values())):
            chosen = [of[layer][t] for layer in layers]
            line = {
                "r": request, "ph": "prefill" if t < prompt else "decode", "t": t, "e": [c[0] for c in chosen],
                "w": [[round(w, 4) for w in c[1]] for c in chosen]
            }
            print(json.dumps(line, separators=(",", ":")), file=out)
            tokens += 1
    print(f"{len(whole)} requests, {tokens} tokens, {len(layers)} layers of {experts} experts, top {top_k}",
          file=sys.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", choices=["mixtral", "olmoe"])
    p.add_argument("trace", type=pathlib.Path)
    p.add_argument("-o", "--out", required=True, type=pathlib.Path)
    p.add_argument("--skip", type=int, default=None,
                   help="rows to leave out at the beginning; default: 2048 of an OLMoE trace, none of a Mixtral one")
    p.add_argument("--prompt", type=int, default=16,
                   help="tokens at the beginning of each request that count as its prompt")
    p.add_argument("--cut", type=int, default=0,
                   help="tokens of a request, where the trace does not tell them apart; 0: as it says")
    args = p.parse_args()
    read = {"mixtral": read_mixtral, "olmoe": read_olmoe}[args.kind]
    skip = args.skip if args.skip is not None else {"mixtral": 0, "olmoe": 2048}[args.kind]
    try:
        requests, model, experts = read(args.trace, skip)
        with args.out.open("w") as out:
            write(cut(requests, args.cut) if args.cut > 0 else requests, model, experts, args.prompt, out)
    except OSError as e:
        raise SystemExit(f"error: {e.filename}: {e.strerror}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures what foretells the experts of an answer before its prompt is computed.

Reads routing traces with the prompts' tokens ("x"). One half of each file's requests is the past, the other is judged.
For each signal it prints
  cosine   of the foretold share of each expert and the share that the answer used; mean over requests
  covered  the share of an answer's uses that go to the foretold quarter of a layer's experts

  scripts/measure_prompt_signals.py models/demo/routes/*.jsonl
"""

import argparse
import collections
import json
import math


def read(path, sender):
    """The requests of a trace: their tokens, and the shares of experts that prompt and answer used."""
    with open(path, encoding="utf-8") as lines:
        head = json.loads(next(lines))
        requests = {}
        for line in map(json.loads, lines):
            r = requests.setdefault(line["r"], dict(sender=sender, tokens=[], prefill=[], decode=[]))
            r[line["ph"]].append(line["e"])
            if line["ph"] == "prefill":
                if "x" not in line:
                    raise SystemExit(f"error: {path}: request {line['r']} has no tokens of its prompt (\"x\")")
                r["tokens"].append(line["x"])
    for r in requests.values():
        r["set"] = set(r["tokens"])
        for phase in ("prefill", "decode"):
            uses = collections.Counter((l, e) for token in r[phase] for l, row in enumerate(token) for e in row)
            most = max(1, len(r[phase]) * head["top_k"])
            r[phase] = [uses[l, e] / most for l in range(head["layers"]) for e in range(head["experts"])]
    return head, [r for r in requests.values() if any(r["decode"])]


def mean(rows, weights=None):
    weights = weights or [1] * len(rows)
    return [sum(w * x for w, x in zip(weights, cells)) / sum(weights) for cells in zip(*rows)]


def cosine(a, b):
    norm = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b)) / norm if norm else 0


def by_tokens(past, request, nearest, first=None):
    """As common/activation/prompt_experts: past prompts by shared tokens, each weighed by how few of them have it."""
    having = collections.Counter(t for p in past for t in p["set"])
    weight = {t: math.log((len(past) + 1) / (n + 1)) for t, n in having.items()}
    tokens = set(request["tokens"][:first])
    scored = [(sum(weight[t] for t in tokens & p["set"]) / math.sqrt(len(p["set"])), p["decode"]) for p in past]
    best = sorted((s for s in scored if s[0] > 0), key=lambda s: -s[0])[:nearest]
    return mean([d for _, d in best], [s for s, _ in best]) if best else mean([p["decode"] for p in past])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("traces", nargs="+", metavar="ROUTES")
    args = p.parse_args()
    past, judged = [], []
    for sender, path in enumerate(args.traces):
        head, requests = read(path, sender)
        past += requests[: len(requests) // 2]
        judged += requests[len(requests) // 2 :]
    average = mean([r["decode"] for r in past])
    signals = {
        "the mean of all past answers": lambda r: average,
        "the first 16 tokens, nearest 8": lambda r: by_tokens(past, r, 8, 16),
        "the prompt's tokens, nearest 1": lambda r: by_tokens(past, r, 1),
        "the prompt's tokens, nearest 8": lambda r: by_tokens(past, r, 8),
        "the same file (sender, system prompt)": lambda r: mean([q["decode"] for q in past
                                                                 if q["sender"] == r["sender"]]),
        "the prompt's own experts, computed": lambda r: r["prefill"],
    }
    experts, layers = head["experts"], head["layers"]
    print(f"{len(judged)} requests, {len(past)} past ones")
    for name, foretell in signals.items():
        cosines, covered = [], []
        for r in judged:
            shares = foretell(r)
            cosines.append(cosine(shares, r["decode"]))
            for first in range(0, layers * experts, experts):
                cells = sorted(range(first, first + experts), key=lambda c: -shares[c])[: experts // 4]
                covered.append(sum(r["decode"][c] for c in cells))
        print(f"{name:38} cosine {sum(cosines) / len(cosines):.3f}, covered {sum(covered) / len(covered):.1%}")


if __name__ == "__main__":
    main()

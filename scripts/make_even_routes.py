#!/usr/bin/env python3
"""Writes a routing trace in which every expert is as likely as any other, for `moestro replay`: what docs/perf calls
`even`.

    scripts/make_even_routes.py -o even.jsonl [--requests 128] [--layers 16] [--experts 8] [--top-k 2]

The same arguments give the same file.
"""

import argparse
import json
import random

PROMPT_TOKENS, DECODED_TOKENS, SEED = 8, 64, 5


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-o", "--output", required=True)
    p.add_argument("--requests", type=int, default=128)
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--experts", type=int, default=8)
    p.add_argument("--top-k", type=int, default=2)
    a = p.parse_args()
    if not 0 < a.top_k <= a.experts:
        p.error("--top-k must be between 1 and --experts")
    chance = random.Random(SEED)
    with open(a.output, "w") as file:
        def line(**members):
            file.write(json.dumps(members, separators=(",", ":")) + "\n")

        line(format="moestro-routes", version=1, model="even", layers=a.layers, experts=a.experts, top_k=a.top_k)
        for request in range(1, a.requests + 1):
            for t in range(PROMPT_TOKENS + DECODED_TOKENS):
                chosen = [chance.sample(range(a.experts), a.top_k) for _ in range(a.layers)]
                line(r=request, ph="prefill" if t < PROMPT_TOKENS else "decode", t=t, e=chosen)


if __name__ == "__main__":
    main()

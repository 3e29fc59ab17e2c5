#!/usr/bin/env python3
"""Measures what precisions cost in quality: bits per byte of held-out text, and perplexity against the first.

  build/dev/bin/moestro pack models/demo -o build/packs/quality --experts bf16,int8,int4
  scripts/measure_quality.py build/packs/quality --precisions bf16,int8,int4 models/demo/heldout/*.txt
  scripts/measure_quality.py build/packs/quality --precisions bf16 --kv-dtypes f32,bf16,f16,int8
  models/demo/heldout/*.txt

Starts `moestro up` once for each precision of the experts and each format of the KV cache, and scores the text through
the API (echo, max_tokens 0), in windows that begin where the last one ended.
"""

import argparse
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"error: {path}: {error.read().decode(errors='replace')}")


def nats(url, ids, window):
    """Of ids[1:], each window scored with its first token as context alone."""
    rows = [ids[at : at + window] for at in range(0, len(ids) - 1, window - 1)]
    rows = [row for row in rows if len(row) > 1]
    total = 0.0
    for at in range(0, len(rows), 16):
        answer = post(url, "/v1/completions", dict(prompt=rows[at : at + 16], max_tokens=0, echo=True, logprobs=0))
        for choice in answer["choices"]:
            total -= sum(v for v in choice["logprobs"]["token_logprobs"] if v is not None)
    return total


def score(binary, pack, precision, kv, texts, window, more):
    with tempfile.TemporaryDirectory(prefix="moestro-quality-") as scratch:
        command = [
            binary, "up", "--model", pack, "--precision", precision, "--kv-dtype", kv, "--http", "127.0.0.1:0",
            "--run-dir", scratch + "/run", *more
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=open(scratch + "/err", "w"), text=True) as up:
            try:
                line = up.stdout.readline()
                if not line.startswith("ready "):
                    raise SystemExit(f"error: {precision}, KV {kv}: {pathlib.Path(scratch, 'err').read_text().strip()}")
                url, result = line.split()[1], {}
                for name, text in texts.items():
                    ids = post(url, "/tokenize", dict(content=text))["tokens"]
                    result[name] = (nats(url, ids, window), len(ids) - 1)
                    print(f"{precision}, KV {kv}, {name}: {len(ids):,} tokens", file=sys.stderr, flush=True)
                return result
            finally:
                up.terminate()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pack")
    p.add_argument("texts", nargs="+", metavar="TEXT", help="UTF-8 files that the model has not seen")
    p.add_argument("--precisions", default="bf16,int8,int4",
                   help="the first is what the others are compared with (default bf16,int8,int4)")
    p.add_argument("--kv-dtypes", default="f32", help="of the KV cache, each with each precision (default f32)")
    p.add_argument("--window", type=int, default=512, help="tokens scored at a time (default 512)")
    p.add_argument("--bytes", type=int, default=60_000, help="of each text, at most (default 60000)")
    p.add_argument("--bin", default=str(ROOT / "build" / "dev" / "bin" / "moestro"))
    p.add_argument("--json", action="store_true")
    args, more = p.parse_known_args()
    texts = {
        pathlib.Path(t).stem: pathlib.Path(t).read_bytes()[:args.bytes].decode("utf-8", "ignore") for t in args.texts
    }
    rows = []
    for precision, kv in itertools.product(args.precisions.split(","), args.kv_dtypes.split(",")):
        got = score(args.bin, args.pack, precision, kv, texts, args.window, more)
        total, tokens = (sum(v[i] for v in got.values()) for i in (0, 1))
        size = sum(len(t.encode()) for t in texts.values())
        rows.append(
            dict(precision=precision, kv_dtype=kv, tokens=tokens, perplexity=math.exp(total / tokens),
                 bits_per_byte=total / math.log(2) / size,
                 texts={n: v[0] / math.log(2) / len(texts[n].encode()) for n, v in got.items()}))
        rows[-1]["against_first"] = rows[-1]["perplexity"] / rows[0]["perplexity"] - 1
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'experts':10} {'KV':5} {'perplexity':>11} {'against first':>13} {'bits/byte':>10}  " +
          "  ".join(f"{n:>12}" for n in texts))
    for r in rows:
        print(
            f"{r['precision']:10} {r['kv_dtype']:5} {r['perplexity']:11.4f} {r['against_first']:+13.2%} "
            f"{r['bits_per_byte']:10.4f}  "
            + "  ".join(f"{v:12.4f}" for v in r["texts"].values()))


if __name__ == "__main__":
    main()

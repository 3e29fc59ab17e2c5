#!/usr/bin/env python3
"""Records which experts the demo model activates, domain by domain, and measures how they specialise.

For each domain: prompts of 64 tokens from its held-out text, 64 tokens decoded greedily past any end token, through
`moestro up --trace`. Writes models/demo/routes/DOMAIN.jsonl (docs/: routing trace, version 1) and held-out text of the
public-domain domains to models/demo/heldout/, and prints
  share    of a layer's experts that take 90 % of its uses in one 64-token decode; median over requests and layers
  within   mean cosine of the decodes' activation matrices of two requests of one domain;  across: of two domains

  scripts/record_demo_routes.py --text DIR [--bin build/dev/bin] [--requests 12]
"""

import argparse
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts" / "python"))
import demo_data  # noqa: E402

TOKENS = 64
HELD_BYTES_MAX = 200_000


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def record(domain, binary, pack, requests, trace):
    with tempfile.TemporaryDirectory(prefix="moestro-routes-", dir="/tmp") as run:
        up = subprocess.Popen([
            binary / "moestro", "up", "--model", pack, "--name", "demo", "--http", "127.0.0.1:0", "--run-dir",
            run + "/run", "--arena-dir", run + "/arena", "--trace", trace
        ], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        line = up.stdout.readline()
        if not line.startswith("ready "):
            raise SystemExit("error: moestro up did not start")
        url = line.split()[1]
        ids = post(url, "/tokenize", {"content": domain.held_text(HELD_BYTES_MAX)})["tokens"]
        stride = max(TOKENS, len(ids) // requests)
        prompts = [ids[n * stride : n * stride + TOKENS] for n in range(min(requests, len(ids) // TOKENS))]
        for prompt in prompts:
            post(url, "/v1/completions", {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True})
        up.terminate()
        up.wait()
    return prompts


def with_tokens(trace, prompts, numbers):
    """The trace's lines, those of prompts with "x": a number that stands for the token, so that equal tokens are known
    and the text is not. `numbers` has them by token, for all domains."""
    place, out = {}, []
    for line in trace.splitlines(keepends=True):
        token = json.loads(line)
        if token.get("ph") == "prefill":
            prompt = prompts[place.setdefault(token["r"], len(place))]
            number = numbers.setdefault(prompt[token["t"]], len(numbers))
            line = line.replace(',"e":', f',"x":{number},"e":', 1)
        out.append(line)
    return "".join(out)


def matrices(path):
    """Decode activation counts of each request: [layer][expert]."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    head, requests = lines[0], {}
    for line in lines[1:]:
        if line["ph"] == "decode":
            m = requests.setdefault(line["r"], [[0] * head["experts"] for _ in range(head["layers"])])
            for layer, experts in enumerate(line["e"]):
                for e in experts:
                    m[layer][e] += 1
    return list(requests.values())


def share_of_90(row):
    need, taken = 0.9 * sum(row), 0
    for n, uses in enumerate(sorted(row, reverse=True), 1):
        taken += uses
        if taken >= need:
            return n / len(row)


def cosine(a, b):
    """Of the flattened matrices with normalised rows, as activation matrices are compared."""
    flat = [[x / (sum(row) or 1) for row in m for x in row] for m in (a, b)]
    norm = [sum(x * x for x in f) ** 0.5 for f in flat]
    return sum(x * y for x, y in zip(*flat)) / (norm[0] * norm[1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", required=True, help="folder with the training text")
    p.add_argument("--bin", default=str(ROOT / "build/dev/bin"), help="where the programs are")
    p.add_argument("--requests", type=int, default=12, help="requests of a domain")
    args = p.parse_args()
    binary, demo = pathlib.Path(args.bin), ROOT / "models" / "demo"
    (demo / "routes").mkdir(exist_ok=True)
    (demo / "heldout").mkdir(exist_ok=True)
    found, numbers = {}, {}
    with tempfile.TemporaryDirectory(prefix="moestro-routes-") as work:
        pack = pathlib.Path(work) / "pack"
        subprocess.run([binary / "moestro", "pack", demo, "-o", pack], check=True, stderr=subprocess.DEVNULL)
        for name, spec in demo_data.DOMAINS.items():
            domain = demo_data.Domain(name, pathlib.Path(args.text))
            if spec["commit"]:
                (demo / "heldout" / f"{name}.txt").write_text(domain.held_text(HELD_BYTES_MAX))
            trace = pathlib.Path(work) / f"{name}.jsonl"
            prompts = record(domain, binary, pack, args.requests, trace)
            out = demo / "routes" / f"{name}.jsonl"
            routes = re.sub(r',"w":\[\[.*?\]\]', "", trace.read_text())  # gate weights would triple the size
            out.write_text(with_tokens(routes, prompts, numbers))
            found[name] = matrices(out)
            shares = [share_of_90(row) for m in found[name] for row in m]
            print(f"{name:12} {len(found[name])} requests, share {statistics.median(shares):.2f}")
    shares = [share_of_90(row) for ms in found.values() for m in ms for row in m]
    within = [cosine(a, b) for ms in found.values() for a, b in itertools.combinations(ms, 2)]
    across = [cosine(a, b) for x, y in itertools.combinations(found, 2) for a in found[x] for b in found[y]]
    print(
        f"share {statistics.median(shares):.2f}, within {statistics.mean(within):.3f}, across "
        f"{statistics.mean(across):.3f}, "
        f"difference {statistics.mean(within) - statistics.mean(across):.3f}")


if __name__ == "__main__":
    main()

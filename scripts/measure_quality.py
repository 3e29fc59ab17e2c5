#!/usr/bin/env python3
"""Measures what precisions cost in quality: bits per byte of held-out text, perplexity and KL divergence against the
first. With --mixed, what low copies of missing experts cost.

  build/dev/bin/moestro pack models/demo -o build/packs/quality --experts bf16,int8,int4
  scripts/measure_quality.py build/packs/quality --precisions bf16,int8,int4 models/demo/heldout/*.txt
  build/dev/bin/moestro pack models/demo -o build/packs/formats --experts bf16,q8_0,mxfp4
  scripts/measure_quality.py build/packs/formats --precisions bf16,q8_0,mxfp4 models/demo/heldout/*.txt
  scripts/measure_quality.py build/packs/quality --precisions bf16 --kv-dtypes f32,bf16,f16,int8
  models/demo/heldout/*.txt

  build/dev/bin/moestro pack models/demo -o build/packs/mixed --experts bf16,int4
  scripts/measure_quality.py build/packs/mixed --mixed int4 --mixed int4,t2=0.9 --slots 10,25 --bytes 3000
  --plot docs/perf/mixed.svg models/demo/heldout/*.txt

Starts `moestro up` once for each precision of the experts and each format of the KV cache, and scores the text through
the API (echo, max_tokens 0), in windows that begin where the last one ended.

With --mixed, one token is computed at a time, as when text is generated, on an emulated device that has memory for
--slots percent of the full experts and that nothing is copied to before it is needed: then misses are most frequent.
Its link is slower than the CPU computes, so full copies seldom come in time: the loss is the most that there may be.
KL divergences are of the 20 likeliest tokens and all others together, which is at most the whole.

--keep writes what was measured to PACK/quality.json, and keeps what earlier runs have measured of the same pack.
Losses of precisions are kept only if all are against the same precision, on the same texts. `moestro plan` goes by the
file: --mixed auto, --max-loss.
"""

import argparse
import itertools
import json
import math
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts/python"))
from served_box import ServedBox  # noqa: E402

TOP = 20  # the most that the API says


def post(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise SystemExit(f"error: {path}: {error.read().decode(errors='replace')}")


def windows(ids, window):
    rows = [ids[at : at + window] for at in range(0, len(ids) - 1, window - 1)]
    return [row for row in rows if len(row) > 1]


def answers(url, ids, window, at_once, top):
    """Of ids[1:], each window scored with its first token as context alone."""
    rows = windows(ids, window)
    for at in range(0, len(rows), at_once):
        yield post(url, "/v1/completions",
                   dict(prompt=rows[at : at + at_once], max_tokens=0, echo=True, logprobs=top))


class Scored:
    """Of each token: its log-probability, and those of the likeliest. Shares of the choices, by computed tokens: those
    include the first of each window, which has no log-probability."""

    def __init__(self):
        self.nats, self.best, self.low, self.skipped, self.computed = [], [], 0.0, 0.0, 0

    def add(self, url, ids, window, at_once=1):
        for answer in answers(url, ids, window, at_once, TOP):
            for scores in (choice["logprobs"] for choice in answer["choices"]):
                self.nats += [-v for v in scores["token_logprobs"][1:]]
                self.best += scores["top_logprobs"][1:]
            own = answer["usage"].get("moestro", dict(low_share=0, skipped_share=0))
            tokens = answer["usage"]["prompt_tokens"]
            self.low += own["low_share"] * tokens
            self.skipped += own["skipped_share"] * tokens
            self.computed += tokens

    def kl(self, full):
        return sum(map(divergence, full.best, self.best)) / len(self.nats)

    def against(self, full):
        tokens = len(self.nats)
        same = sum(max(a, key=a.get) == max(b, key=b.get) for a, b in zip(self.best, full.best))
        return dict(low_share=self.low / self.computed, skipped_share=self.skipped / self.computed, tokens=tokens,
                    perplexity=math.exp(sum(self.nats) / tokens),
                    against_full=math.exp((sum(self.nats) - sum(full.nats)) / tokens) - 1,
                    kl=self.kl(full), top1_agreement=same / tokens)


def divergence(full, other):
    """Of two distributions, of which the likeliest tokens are known: those that both name, and the rest together."""
    both = full.keys() & other.keys()
    rests = [max(1e-12, 1 - sum(math.exp(d[t]) for t in both)) for d in (full, other)]
    return (sum(math.exp(full[t]) * (full[t] - other[t]) for t in both) + rests[0] * math.log(rests[0] / rests[1]))


def served(binary, pack, flags, use):
    """What `use` makes of the server's address."""
    with ServedBox([binary], pack, *flags) as box:
        return use(box.url)


def score(binary, pack, precision, kv, texts, window, more):
    def use(url):
        result, scored = {}, Scored()
        for name, text in texts.items():
            ids = post(url, "/tokenize", dict(content=text))["tokens"]
            before = sum(scored.nats)
            scored.add(url, ids, window, 16)
            result[name] = sum(scored.nats) - before
            print(f"{precision}, KV {kv}, {name}: {len(ids):,} tokens", file=sys.stderr, flush=True)
        return result, scored

    return served(binary, pack, ["--precision", precision, "--kv-dtype", kv, *more], use)


def score_mixed(binary, pack, flags, texts, window):
    def use(url):
        scored = Scored()
        for text in texts.values():
            scored.add(url, post(url, "/tokenize", dict(content=text))["tokens"], window)
        return scored

    return served(binary, pack, flags, use)


def inspect(args):
    return json.loads(subprocess.run([args.bin, "inspect", args.pack, "--json"], check=True, capture_output=True,
                                     text=True).stdout)


def measure_mixed(args, texts, more):
    """A row for each --mixed and number of slots, against the full copies alone."""
    held = {p["precision"]: p["bytes"] for p in inspect(args)["experts"]["precisions"]}
    precision = args.precisions or next(iter(held))
    if precision not in held:
        raise SystemExit(f"error: --precisions {precision}: with --mixed, the precision of the full copies, one of "
                         + ", ".join(held))
    all_bytes = held[precision]
    flags = ["--precision", precision, "--step-tokens", "1", "--predict", "none", *more]
    full = score_mixed(args.bin, args.pack, flags, texts, args.window)
    rows = [dict(mixed="off", slots=100, full=precision, **full.against(full))]
    for slots, mixed in itertools.product([float(s) for s in args.slots.split(",")], args.mixed):
        device = f"emulated:vram={int(all_bytes * slots / 100)},link=1GB/s"
        got = score_mixed(args.bin, args.pack, [*flags, "--device", device, "--mixed", mixed], texts, args.window)
        rows.append(dict(mixed=mixed, slots=slots, full=precision, **got.against(full)))
        print(f"{mixed}, {slots:g} % slots: {rows[-1]['against_full']:+.2%}", file=sys.stderr, flush=True)
    return rows


def keep(args, inspected, precisions, mixed):
    """Rows of a setting that was measured before are replaced. So are losses of precisions against another one or on
    other texts, and a file of another version of the pack."""
    path = pathlib.Path(args.pack, "quality.json")
    kept = dict(format="moestro-quality", version=1, identity=inspected["identity"], precisions=[], mixed=[])
    try:
        before = json.loads(path.read_text())
        if all(before[key] == kept[key] for key in ("format", "version", "identity")):
            kept = before
    except (OSError, ValueError, LookupError, TypeError):
        pass
    setting = lambda row: (row.get("precision"), row.get("mixed"), row.get("slots"), row.get("full"))
    baseline = lambda row: (row.get("against"), row.get("on"))  # rows of --mixed have none
    for name, rows in (("precisions", precisions), ("mixed", mixed)):
        new = {setting(row) for row in rows}
        baselines = {baseline(row) for row in rows}
        others = [row for row in kept[name] if rows and baseline(row) not in baselines]
        if others:
            print(f"{path}: removed {len(others)} rows that are against another precision or on other texts",
                  file=sys.stderr)
        kept[name] = [row for row in kept[name] if setting(row) not in new and row not in others] + rows
    partial = path.with_suffix(".json.partial")
    partial.write_text(json.dumps(kept, indent=1) + "\n")
    partial.replace(path)


def mixed_table(rows):
    yield "| --mixed | slots | low | skipped | perplexity | against full | KL, nats | same likeliest token |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for r in rows:
        yield (f"| {r['mixed']} | {r['slots']:g} % | {r['low_share']:.1%} | {r['skipped_share']:.1%} | "
               f"{r['perplexity']:.3f} | {r['against_full']:+.2%} | {r['kl']:.4f} | {r['top1_agreement']:.1%} |")


def draw_mixed(rows):
    """Loss of perplexity against the share of the choices that were not full: circles nothing skipped, squares some."""
    rows = [r for r in rows if r["mixed"] != "off"]
    share = lambda r: r["low_share"] + r["skipped_share"]
    most_x, most_y = max(map(share, rows)) * 1.1, max(max(r["against_full"] for r in rows), 0.001) * 1.15
    x = lambda value: 70 + 560 * value / most_x
    y = lambda value: 330 - 290 * max(0, value) / most_y
    words = lambda at_x, at_y, text, anchor="middle": (
        f'<text x="{at_x:.0f}" y="{at_y:.0f}" text-anchor="{anchor}">{text}</text>')
    svg = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 390" font-family="sans-serif" font-size="12">',
           '<rect width="660" height="390" fill="white"/>',
           words(350, 20, "Perplexity against full copies, by the share of choices that were low or skipped")]
    for step in range(5):
        at_x, at_y = most_x * step / 4, most_y * step / 4
        svg += [f'<path d="M70 {y(at_y):.0f}H630" stroke="#ddd"/>', words(62, y(at_y) + 4, f"{at_y:+.1%}", "end"),
                words(x(at_x), 350, f"{at_x:.0%}")]
    for r in rows:
        at_x, at_y = x(share(r)), y(r["against_full"])
        mark, kind = ((f'<circle cx="{at_x:.0f}" cy="{at_y:.0f}" r="4" fill="#1f6feb">', "circle")
                      if r["skipped_share"] == 0 else
                      (f'<rect x="{at_x - 4:.0f}" y="{at_y - 4:.0f}" width="8" height="8" fill="#d1242f">', "rect"))
        svg.append(f"{mark}<title>{r['mixed']}, {r['slots']:g} % slots</title></{kind}>")
    svg += ['<circle cx="90" cy="374" r="4" fill="#1f6feb"/>', words(100, 378, "low copies only", "start"),
            '<rect x="216" y="370" width="8" height="8" fill="#d1242f"/>', words(230, 378, "some skipped", "start"),
            "</svg>"]
    return "\n".join(svg) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("pack")
    p.add_argument("texts", nargs="+", metavar="TEXT", help="UTF-8 files that the model has not seen")
    p.add_argument("--precisions",
                   help="the first is what the others are compared with (default bf16,int8,int4). With --mixed: that "
                   "of the full copies (default the pack's first)")
    p.add_argument("--kv-dtypes", default="f32", help="of the KV cache, each with each precision (default f32)")
    p.add_argument("--window", type=int, default=512, help="tokens scored at a time (default 512)")
    p.add_argument("--bytes", type=int, default=60_000, help="of each text, at most (default 60000)")
    p.add_argument("--bin", default=str(ROOT / "build" / "dev" / "bin" / "moestro"))
    p.add_argument("--mixed", action="append", help="as --mixed of `moestro up`; several times")
    p.add_argument("--slots", default="10,25", help="with --mixed: percent of the full experts (default 10,25)")
    p.add_argument("--plot", type=pathlib.Path, help="with --mixed: a file for the plot, .svg")
    p.add_argument("--keep", action="store_true", help="write it to PACK/quality.json for `moestro plan`")
    p.add_argument("--json", action="store_true")
    args, more = p.parse_known_args()
    texts = {
        pathlib.Path(t).stem: pathlib.Path(t).read_bytes()[:args.bytes].decode("utf-8", "ignore") for t in args.texts
    }
    if args.mixed:
        rows = measure_mixed(args, texts, more)
        if args.keep:
            keep(args, inspect(args), [], [
                dict(mixed=r["mixed"], slots=r["slots"], full=r["full"], low_share=r["low_share"],
                     skipped_share=r["skipped_share"], loss=r["against_full"]) for r in rows if r["mixed"] != "off"])
        print(json.dumps(rows, indent=1) if args.json else "\n".join(mixed_table(rows)))
        if args.plot:
            args.plot.write_text(draw_mixed(rows))
        return
    rows, first = [], None
    precisions = (args.precisions or "bf16,int8,int4").split(",")
    for precision, kv in itertools.product(precisions, args.kv_dtypes.split(",")):
        got, scored = score(args.bin, args.pack, precision, kv, texts, args.window, more)
        first = first or scored
        total, tokens = sum(got.values()), len(scored.nats)
        size = sum(len(t.encode()) for t in texts.values())
        rows.append(
            dict(precision=precision, kv_dtype=kv, tokens=tokens, perplexity=math.exp(total / tokens),
                 bits_per_byte=total / math.log(2) / size,
                 kl=scored.kl(first), texts={n: v / math.log(2) / len(texts[n].encode()) for n, v in got.items()}))
        rows[-1]["against_first"] = rows[-1]["perplexity"] / rows[0]["perplexity"] - 1
    if args.keep:
        first_kv = args.kv_dtypes.split(",")[0]
        on = f"{args.bytes} bytes of each of {', '.join(texts)}; windows of {args.window}; KV {first_kv}"
        keep(args, inspect(args),
             [dict(precision=r["precision"], loss=r["against_first"], against=precisions[0], on=on)
              for r in rows if r["kv_dtype"] == first_kv], [])
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    print(f"{'experts':10} {'KV':5} {'perplexity':>11} {'against first':>13} {'KL, nats':>9} {'bits/byte':>10}  " +
          "  ".join(f"{n:>12}" for n in texts))
    for r in rows:
        print(
            f"{r['precision']:10} {r['kv_dtype']:5} {r['perplexity']:11.4f} {r['against_first']:+13.2%} "
            f"{r['kl']:9.5f} {r['bits_per_byte']:10.4f}  "
            + "  ".join(f"{v:12.4f}" for v in r["texts"].values()))


if __name__ == "__main__":
    main()

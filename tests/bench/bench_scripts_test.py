#!/usr/bin/env python3
"""scripts/plot_bench on rows as scripts/bench_peers prints them, scripts/plot_serving on reports of moestro bench
serve, scripts/plot_replay on sweeps of moestro replay, scripts/convert_routes.py on foreign traces,
scripts/make_even_routes.py, tables of scripts/bench_serving, scripts/bench_prefetch, scripts/bench_sequences and
scripts/bench_ahead, what scripts/measure_quality.py makes of scores, and what they refuse. Nothing is measured."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import xml.dom.minidom

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def run(script, *arguments):
    return subprocess.run([sys.executable, SCRIPTS / script, *map(str, arguments)], capture_output=True, text=True)


def imported(script):
    loader = importlib.machinery.SourceFileLoader(script, str(SCRIPTS / script))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(script, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def row(what, dtype, ours, theirs, aim, unit="tokens/s"):
    return dict(shape="a<b", dtype=dtype, what=what, ours=ours, theirs=theirs, ratio=ours / theirs, aim=aim, unit=unit,
                threads=2, isa="avx2", rounds=[[ours, theirs]] * 5)


class PlotBench(unittest.TestCase):
    def plot(self, content):
        with tempfile.TemporaryDirectory() as home:
            rows, svg = pathlib.Path(home) / "rows.json", pathlib.Path(home) / "out.svg"
            rows.write_text(content)
            ran = run("plot_bench", rows, "-o", svg)
            return ran, svg.read_text() if svg.exists() else None

    def test_a_bar_for_every_row_and_a_mark_for_every_aim(self):
        rows = [
            row("decode", "bf16", 50, 40, 1.15),
            row("decode", "int4", 1234, 617, None),
            row("prefill-512", "bf16", 300, 100, 2.5),
            row("decode / DRAM reads", "bf16", 2e10, 4e10, None, "weight_bytes/s")
        ]
        ran, svg = self.plot(json.dumps(rows))
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        picture = xml.dom.minidom.parseString(svg)
        bars = [float(r.getAttribute("width")) for r in picture.getElementsByTagName("rect")][1:]
        self.assertEqual(len(bars), 3)
        for bar, ratio in zip(bars, (1.25, 2, 3)):
            self.assertAlmostEqual(bar / bars[2], ratio / 3, places=3)
        self.assertEqual(len(picture.getElementsByTagName("line")), 2 + 1)  # aims, and where llama.cpp is
        for words in ("a&lt;b", "2.00x (1,234 : 617)", "1.25x (50.0 : 40.0)", "medians of 5 rounds"):
            self.assertIn(words, svg)
        self.assertNotIn("DRAM", svg)

    def test_what_is_no_result_is_refused_in_one_line(self):
        for content in ("", "{}", "[]", "[1]", '[{"unit": "tokens/s"}]', "[{}]"):
            ran, svg = self.plot(content)
            self.assertEqual(ran.returncode, 1, content)
            self.assertRegex(ran.stderr, r"\Aerror: .*\n\Z")
            self.assertIsNone(svg)
        self.assertIn("No such file", run("plot_bench", "/nowhere.json", "-o", "/nowhere.svg").stderr)


def load(rate, done, ttft, tpot):
    return dict(rate=rate, requests=9, completed=done, requests_per_s=(rate or 9) * 0.9, ttft_ms=ttft
                and dict(p50=ttft, p99=2 * ttft), tpot_ms=tpot and dict(p50=tpot, p99=3 * tpot))


class PlotServing(unittest.TestCase):
    def plot(self, content):
        with tempfile.TemporaryDirectory() as home:
            report, svg = pathlib.Path(home) / "report.json", pathlib.Path(home) / "out.svg"
            report.write_text(content)
            ran = run("plot_serving", report, "-o", svg)
            return ran, svg.read_text() if svg.exists() else None

    def test_a_point_for_every_rate(self):
        runs = [
            load(4, 9, 100, 20),
            load(1, 9, 10, 20),
            load(8, 9, 400, None),
            load(16, 0, None, None),
            load(None, 9, 1, 1)
        ]
        ran, svg = self.plot(json.dumps(dict(model="a<b", server="s", arrivals="Poisson", runs=runs)))
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        picture = xml.dom.minidom.parseString(svg)
        lines = [[tuple(map(float, p.split(",")))
                  for p in line.getAttribute("points").split()]
                 for line in picture.getElementsByTagName("polyline")]
        self.assertEqual([len(points) for points in lines], [
            2, 3, 3, 3, 2, 2
        ])  # asked for, done, and p50 and p99 of each time; without the loads that have no rate, no answer or no time
        p50, p99 = lines[2], lines[3]
        zero = 360 - 48
        self.assertEqual([x for x, _ in p50], sorted(x for x, _ in p50))
        for (_, half), (_, most) in zip(p50, p99):
            self.assertAlmostEqual((zero - most) / (zero - half), 2, delta=0.1)
        for words in ("a&lt;b on s", "9 requests at each rate", "time to first token, ms"):
            self.assertIn(words, svg)

    def test_what_is_no_report_is_refused_in_one_line(self):
        for content in ("", "[]", "{}", '{"runs": []}', '{"runs": [{}]}', '{"runs": [1]}'):
            ran, svg = self.plot(content)
            self.assertEqual(ran.returncode, 1, content)
            self.assertRegex(ran.stderr, r"\Aerror: .*\n\Z")
            self.assertIsNone(svg)


class BenchServing(unittest.TestCase):
    def test_what_is_missing_is_said_before_anything_is_measured(self):
        for arguments, code, words in ((["--model", "/nowhere", "--bin",
                                         "/"], 1, "/moestro is not there"), (["--model",
                                                                              "/nowhere"], 1, "is not there"),
                                       ([], 2, "--model"), (["--model", "p", "--rounds", "0"], 2, "--rounds")):
            ran = run("bench_serving", *arguments)
            self.assertEqual((ran.returncode, ran.stdout), (code, ""), arguments)
            self.assertIn(words, ran.stderr)

    def test_tables_say_what_was_reached_and_what_was_not(self):
        source = (SCRIPTS / "bench_serving").read_text().split("def table(args)")[0]
        script = {"__file__": str(SCRIPTS / "bench_serving")}
        exec(compile(source, "bench_serving", "exec"), script)
        base = dict(unit="1/s", aim=1.9, aim_is="at least, of the ratio", baseline_is="padded batches", baseline=10)
        rows = [
            dict(base, what="a", value=20, ratio=2, reached=True),
            dict(base, what="b", value=15, ratio=1.5, reached=False),
            dict(base, what="c", value=None, ratio=None, missing="no disk")
        ]
        rows.append(dict(what="d", value=3, unit="", ratio=None, aim=0, aim_is="at most", reached=False, baseline=None))
        self.assertEqual(script["rows_markdown"](rows).splitlines(), [
            "| what | Moestro | compared with | ratio | aim |", "| --- | --- | --- | --- | --- |",
            "| a | 20 1/s | padded batches: 10 | **2** | at least 1.9 |",
            "| b | 15 1/s | padded batches: 10 | 1.5 | at least 1.9 (missed) |",
            "| c | not measured: no disk | padded batches | | |", "| d | 3 |  |  | at most 0 (missed) |"
        ])
        self.assertIn(
            "| 4 | 3.6 | 1,234 | 10, 20 | - | 10, 20 |", script["rates_markdown"](dict(runs=[
                dict(rate=4, requests_per_s=3.6, output_tokens_per_s=1234, ttft_ms=dict(p50=10, p99=20), tpot_ms=None,
                     e2e_ms=dict(p50=10, p99=20))
            ])))


def replayed(share, copy, hits):
    return dict(cache="lfru", predict="auto",
    slots_share=share, link_ratio=copy, hit_rate=hits,
                time_ms_per_token=20 + copy, on_demand_lru=dict(hit_rate=hits / 2, time_ms_per_token=30 + copy),
                belady=dict(hit_rate=hits), clairvoyant=dict(hit_rate=1.0, time_ms_per_token=18))


class PlotReplay(unittest.TestCase):
    def plot(self, content):
        with tempfile.TemporaryDirectory() as home:
            rows, svg = pathlib.Path(home) / "rows.json", pathlib.Path(home) / "out.svg"
            rows.write_text(content)
            ran = run("plot_replay", rows, "-o", svg, "--title", "a<b")
            return ran, svg.read_text() if svg.exists() else None

    def test_a_panel_for_each_number_of_slots_and_a_line_for_each_comparison(self):
        ran, svg = self.plot(json.dumps([replayed(share, copy, share) for share in (0.1, 0.5) for copy in (2, 0.5, 1)]))
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        picture = xml.dom.minidom.parseString(svg)
        lines = [[tuple(map(float, p.split(",")))
                  for p in line.getAttribute("points").split()]
                 for line in picture.getElementsByTagName("polyline")]
        self.assertEqual([len(points) for points in lines],
                         [3] * (2 * 4 + 2 * 3))  # hit rates of four, times of three (Belady's is no schedule)
        self.assertEqual([x for x, _ in lines[0]], sorted(x for x, _ in lines[0]))
        for words in ("a&lt;b", "slots for 10 % of the experts", "slots for 50 % of the experts"):
            self.assertIn(words, svg)

    def test_what_is_no_sweep_is_refused_in_one_line(self):
        for content in ("", "{}", "[]", "[1]", "[{}]"):
            ran, svg = self.plot(content)
            self.assertEqual(ran.returncode, 1, content)
            self.assertRegex(ran.stderr, r"\Aerror: .*\n\Z")
            self.assertIsNone(svg)


class EvenRoutes(unittest.TestCase):
    def test_every_expert_is_as_likely_and_the_file_is_the_same_each_time(self):
        with tempfile.TemporaryDirectory() as home:
            texts = []
            for name in ("one", "other"):
                out = pathlib.Path(home) / name
                ran = run("make_even_routes.py", "-o", out, "--requests", 8, "--layers", 2)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                texts.append(out.read_text())
            self.assertEqual(*texts)
            head, *tokens = map(json.loads, texts[0].splitlines())
            self.assertEqual(head["format"], "moestro-routes")
            self.assertEqual(len(tokens), 8 * 72)
            uses = [sum(expert in token["e"][0] for token in tokens) for expert in range(8)]
            for count in uses:
                self.assertAlmostEqual(count, len(tokens) / 4, delta=0.25 * len(tokens) / 4)
            refused = run("make_even_routes.py", "-o", out, "--top-k", 9)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("--top-k must be between 1 and --experts", refused.stderr)


class ConvertRoutes(unittest.TestCase):
    def convert(self, kind, lines, *more):
        with tempfile.TemporaryDirectory() as home:
            source, out = pathlib.Path(home) / "in.jsonl", pathlib.Path(home) / "out.jsonl"
            source.write_text("\n".join(lines if isinstance(lines[0], str) else map(json.dumps, lines)) + "\n")
            ran = run("convert_routes.py", kind, source, "-o", out, *more)
            return ran, [json.loads(line) for line in out.read_text().splitlines()] if ran.returncode == 0 else None

    def test_layers_of_a_token_become_one_line(self):
        rows = [
            dict(dataset="d", problem_id=p, layer=l, experts=[l, 7], gating_probs=[0.75, 0.25], token_idx=t)
            for p in (0, 1)
            for l in (0, 1)
            for t in range(3 + l)
        ]
        ran, out = self.convert("mixtral", rows, "--prompt", 2)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual(
            out[0], dict(format="moestro-routes", version=1, model="mixtral-8x7b-instruct", layers=2, experts=8,
                         top_k=2))
        self.assertEqual([(l["r"], l["ph"], l["t"]) for l in out[1:]],
                         [(r, "prefill" if t < 2 else "decode", t) for r in (1, 2) for t in range(3)])
        self.assertEqual(out[1]["e"], [[0, 7], [1, 7]])

    def test_a_warm_up_is_left_out_and_a_long_log_is_cut(self):
        rows = [dict(type="meta", model_id="m", num_experts=4, top_k=2)] + [
            dict(type="route", req_id="r0", token_idx=t, layer=0, topk_ids=[t % 4, 3 - t % 4], topk_weights=[0.5, 0.5])
            for t in range(10)
        ]
        ran, out = self.convert("olmoe", rows, "--skip", 2, "--cut", 4, "--prompt", 1)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertEqual([(l["r"], l["ph"]) for l in out[1:]],
                         [(r, "prefill" if t == 0 else "decode") for r in (1, 2) for t in range(4)])
        self.assertEqual(out[1]["e"], [[2, 1]])

    def test_other_files_are_refused_in_one_line(self):
        for kind, lines in (("mixtral", ["nonsense"]), ("mixtral", ["{}"]), ("olmoe", ['{"type": "route"}']),
                            ("olmoe", ['{"type": "other"}'])):
            ran, _ = self.convert(kind, lines)
            self.assertEqual(ran.returncode, 1)
            self.assertRegex(ran.stderr, r"\Aerror: .*\n\Z")


FAKE_REPLAY = f"#!{sys.executable} -IS" + """
import json, sys
a = sys.argv
worse = 0.9 if "checkpoint" in a else 1
part = dict(hit_rate=0.5, stall_ms_per_token=10, time_ms_per_token=30, moved_bytes=7)
print(json.dumps(dict(part, hit_rate=0.8 * worse, cache="auto", predict="auto",
    slots_share=float(a[a.index("--slots") + 1][:-1]) / 100,
    link_ratio=float(a[a.index("--copy-ratio") + 1]),
    on_demand_lru=part, belady=part, clairvoyant=dict(part, stall_ms_per_token=1, time_ms_per_token=20), stall_left=0.2,
    gap_closed=0.9, speed_up=1.4, speed_up_best=1.5, bytes_ratio=1.1, wasted_share=0.1,
    hit_rate_by_request=[0.5] * 4 + [0.8] * 92, prompt=dict(uses=100, copies=80, kept_share=0.75, hit_rate_after=0.7))))
"""
FAKE_TESTS = {
    "device_own_time_test": "own time: every expert fits, 1 ms an expert: 12.5 us of a step of 25.00 ms, 0.05 %",
    "device_live_speed_test": "live speed: 13 of 128 slots, copy 1x: 33.0 tokens/s, on demand + lru 30.0, speed-up "
                              "1.10 of 1.33 possible; hits 80.0 % and 1.0 %"
}


class BenchAhead(unittest.TestCase):
    """Stall of the methods in ms per token: the aims are counted from on demand with LRU."""

    def bench(self, stalls, *options, reads=1):
        names = ("on demand, lru", "on demand, default policy", "foreseen", "foreseen without error", "clairvoyant")
        rows = [
            dict(resident_percent=25, read_per_expert=reads, method=name, stall_ms_per_token=stall,
                 time_ms_per_token=10 + stall, bytes_per_token=moved, learned=106)
            for name, (stall, moved) in zip(names, stalls)
        ]
        with tempfile.TemporaryDirectory() as home:
            program = pathlib.Path(home) / "moestro_ahead_bench"
            program.write_text(f"#!/bin/sh\necho '{json.dumps(rows)}'\n")
            program.chmod(0o755)
            return run("bench_ahead", "--bin", home, *options)

    def test_rows_say_what_is_reached(self):
        ran = self.bench([(10, 100), (8, 90), (4, 150), (1, 80), (2, 70)], "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        rows = json.loads(ran.stdout)
        self.assertEqual({key for r in rows for key in r},
                         {"what", "setting", "value", "unit", "beside", "ratio", "aim", "reached"})
        of = {r["what"]: r for r in rows}
        self.assertEqual((of["gap in stall closed"]["value"], of["gap in stall closed"]["reached"]), (0.75, True))
        self.assertEqual(of["bytes read per token, foreseen"]["ratio"], 1.5)
        self.assertIs(of["bytes read per token, foreseen"]["reached"], False)
        self.assertIs(of["stall per token, foreseen"]["reached"], True)
        self.assertIsNone(of["stall per token, foreseen without error"]["aim"])

    def test_where_a_read_costs_two_experts_the_gap_has_no_aim(self):
        rows = json.loads(self.bench([(10, 1)] * 4 + [(2, 1)], "--json", reads=2).stdout)
        self.assertEqual((rows[0]["value"], rows[0]["aim"], rows[0]["reached"]), (0, None, None))

    def test_the_table_names_what_was_missed(self):
        ran = self.bench([(10, 100), (8, 90), (11, 90), (1, 80), (2, 70)])
        self.assertIn("learned from 106 requests", ran.stdout)
        self.assertIn("| 25 % | 1 | 10.00 ms (100 %) | 8.00 ms (90 %) | 11.00 ms (90 %) |", ran.stdout)
        self.assertIn("missed: gap in stall closed", ran.stderr)
        self.assertIn("missed: stall per token, foreseen", ran.stderr)

    def test_without_stall_there_is_no_gap(self):
        ran = self.bench([(0, 0)] * 5)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertTrue(ran.stdout.strip().endswith("| - |"), ran.stdout)

    def test_a_program_that_is_not_there_is_named(self):
        ran = run("bench_ahead", "--bin", "/nowhere")
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("/nowhere/moestro_ahead_bench", ran.stderr)


class MeasureQuality(unittest.TestCase):
    def setUp(self):
        spec = importlib.util.spec_from_file_location("measure_quality", SCRIPTS / "measure_quality.py")
        self.script = importlib.util.module_from_spec(spec)
        sys.dont_write_bytecode = True
        spec.loader.exec_module(self.script)

    def scored(self, *tokens):
        scored = self.script.Scored()
        for best in tokens:
            scored.best.append({name: math.log(p) for name, p in best.items()})
            scored.nats.append(-math.log(best["a"]))
            scored.computed += 1
        return scored

    def test_low_copies_against_full_ones(self):
        full = self.scored(dict(a=0.5, b=0.25), dict(a=0.5, b=0.25))
        other = self.scored(dict(a=0.25, b=0.5), dict(a=0.5, b=0.25))
        other.low, other.skipped = 1.0, 0.5
        row = other.against(full)
        self.assertEqual((row["low_share"], row["skipped_share"], row["top1_agreement"]), (0.5, 0.25, 0.5))
        self.assertAlmostEqual(row["kl"], 0.25 * math.log(2) / 2)
        self.assertAlmostEqual(row["against_full"], math.sqrt(2) - 1)
        self.assertEqual(full.against(full)["kl"], 0)

    def test_what_is_kept_of_several_runs(self):
        with tempfile.TemporaryDirectory() as pack:
            path = pathlib.Path(pack) / "quality.json"
            args = types.SimpleNamespace(pack=pack)
            row = lambda mixed, slots, loss: dict(mixed=mixed, slots=slots, low_share=0.5, skipped_share=0, loss=loss)
            path.write_text("no JSON")
            self.script.keep(args, dict(identity="aa"), [dict(precision="int4", loss=0.01)], [])
            self.script.keep(args, dict(identity="aa"), [], [row("int4", 10, 0.5), row("int4", 25, 0.25)])
            self.script.keep(args, dict(identity="aa"), [dict(precision="int4", loss=0.02)], [row("int4", 10, 0.75)])
            kept = json.loads(path.read_text())
            self.assertEqual((kept["format"], kept["version"], kept["identity"]), ("moestro-quality", 1, "aa"))
            self.assertEqual(kept["precisions"], [dict(precision="int4", loss=0.02)])
            self.assertEqual(kept["mixed"], [row("int4", 25, 0.25), row("int4", 10, 0.75)])
            self.script.keep(args, dict(identity="bb"), [], [row("int2", 10, 1)])
            kept = json.loads(path.read_text())
            self.assertEqual((kept["identity"], kept["precisions"], kept["mixed"]), ("bb", [], [row("int2", 10, 1)]))
            self.assertEqual([p.name for p in pathlib.Path(pack).iterdir()], ["quality.json"])

    def test_losses_against_another_precision_are_not_kept_together(self):
        with tempfile.TemporaryDirectory() as pack:
            args = types.SimpleNamespace(pack=pack)
            row = lambda precision, against, on="a": dict(precision=precision, loss=0.1, against=against, on=on)
            low = lambda full: dict(mixed="int2", slots=10, full=full, low_share=0.5, skipped_share=0, loss=0.1)

            def kept(precisions, mixed=()):
                with contextlib.redirect_stderr(io.StringIO()):
                    self.script.keep(args, dict(identity="aa"), precisions, list(mixed))
                return json.loads((pathlib.Path(pack) / "quality.json").read_text())

            kept([row("bf16", "bf16"), row("int4", "bf16")], [low("bf16")])
            self.assertEqual(len(kept([row("int2", "bf16")])["precisions"]), 3)
            self.assertEqual(len(kept([], [low("int8")])["mixed"]), 2)
            self.assertEqual(len(kept([])["precisions"]), 3)
            self.assertEqual(kept([row("int4", "int4")])["precisions"], [row("int4", "int4")])
            self.assertEqual(kept([row("int2", "int4", "b")])["precisions"], [row("int2", "int4", "b")])

    def test_shares_are_of_the_tokens_that_were_computed(self):
        window = dict(choices=[dict(logprobs=dict(token_logprobs=[None, -1.0], top_logprobs=[None, dict(a=-1.0)]))],
                      usage=dict(prompt_tokens=2, moestro=dict(low_share=1.0, skipped_share=0.25)))
        self.script.answers = lambda *_: [window, window]
        scored = self.script.Scored()
        scored.add("url", [1, 2, 3, 4], 2)
        row = scored.against(scored)
        self.assertEqual((row["low_share"], row["skipped_share"], row["tokens"]), (1.0, 0.25, 2))

    def test_tokens_that_only_one_names_are_taken_together(self):
        full, other = ({name: math.log(p) for name, p in d.items()} for d in (dict(a=0.5, b=0.3), dict(a=0.4, c=0.5)))
        self.assertAlmostEqual(self.script.divergence(full, other),
                               0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.6))

    def test_a_mark_for_every_setting(self):
        base = dict(slots=10.0, perplexity=2.0, kl=0.0, top1_agreement=1.0, tokens=9)
        rows = [
            dict(base, mixed="off", low_share=0, skipped_share=0, against_full=0),
            dict(base, mixed="int4", low_share=0.3, skipped_share=0, against_full=-0.001),
            dict(base, mixed="int4,t2=0.9", low_share=0.2, skipped_share=0.1, against_full=0.02)
        ]
        picture = xml.dom.minidom.parseString(self.script.draw_mixed(rows))
        self.assertEqual([t.firstChild.data for t in picture.getElementsByTagName("title")],
                         ["int4, 10 % slots", "int4,t2=0.9, 10 % slots"])
        table = "\n".join(self.script.mixed_table(rows))
        self.assertIn("| int4,t2=0.9 | 10 % | 20.0% | 10.0% | 2.000 | +2.00% |", table)


class BenchMixed(unittest.TestCase):
    def test_unknown_parts_are_refused(self):
        ran = run("bench_mixed", "pack", "--only", "replay,training")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("--only training: there are replay, shares, cpu, policy, live, drive, decode", ran.stderr)

    def test_decoding_that_cannot_be_measured_is_refused(self):
        for options, why in ((["--rounds", "0"], "--rounds and --tokens are 1 at least"),
                             (["--only", "decode"], "--only decode needs --pack12")):
            ran = run("bench_mixed", "pack", *options)
            self.assertEqual((ran.returncode, why in ran.stderr), (2, True), ran.stderr)

    def test_a_table_for_each_kind_of_row(self):
        script = imported("bench_mixed")
        rows = [
            script.row("time per token, replay", "demo", 24.3, "ms", 24.5, 1.01, None, None, tuple("abcdefghi")),
            script.row("tokens/s, live", "demo", 36, "tokens/s", 36, 1, 1.1, False),
            script.row("penalty of the four-part policy", "demo", 1, "misses", 2, 0.5, 1, True, tuple("ABCDEF"))
        ]
        table = "\n".join(script.markdown(rows))
        self.assertIn("| --- |\n| a | b | c | d | e | f | g | h | i |", table)
        self.assertIn("| LRU | LFU | Belady, full only |\n| --- | --- | --- | --- | --- | --- |\n| A | B |", table)
        self.assertNotIn("live", table)


class BenchSteps(unittest.TestCase):
    def test_what_is_wrong_is_refused(self):
        ran = run("bench_steps", "pack", "--only", "device,disk")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("--only disk: there are device, drive, fits", ran.stderr)
        ran = run("bench_steps", "pack", "--drive", "fast")
        self.assertEqual(ran.returncode, 2)
        self.assertIn("argument --drive: fast: a rate such as 20MB/s", ran.stderr)


class BenchPrefetch(unittest.TestCase):
    def test_every_part_comes_to_rows_and_a_picture(self):
        with tempfile.TemporaryDirectory() as home:
            home = pathlib.Path(home)
            programs = {
                home / "bin/moestro": FAKE_REPLAY,
                home / "bin/moestro_prediction_bench": "#!/bin/sh\necho '  1000 entries of 32 x   8,  1 sequences:     "
                                                       "3.0 us a layer (p50), aim    15; its bytes at 20.0 GB/s:    "
                                                       "1.5 us'\n"
            }
            programs |= {
                home / "tests" / name: f"#!/bin/sh\necho '{line}'\nexit 1\n" for name, line in FAKE_TESTS.items()
            }
            for path, text in programs.items():
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
                path.chmod(0o755)
            ran = run("bench_prefetch", "--bin", home / "bin", "--json", "--plot", home / "out.svg")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            rows = json.loads(ran.stdout)
            self.assertEqual({key for r in rows for key in r},
                             {"what", "setting", "value", "oracle", "aim", "met", "unit"})
            first = {r["what"]: r for r in reversed(rows)}
            self.assertEqual(len(first), 18)
            self.assertEqual(first["EAMC match per layer, one core"]["setting"], "1000 entries of 32 x 8, 1 sequences")
            self.assertTrue(first["own time of predictor, prefetcher and counting"]["met"])
            self.assertTrue(first["speed-up live at 1 ms an expert"]["met"])
            self.assertAlmostEqual(first["hit rate of the first request after a restart"]["value"], 90)
            self.assertEqual(first["prompts: copies of an expert that a layer uses"]["value"], 0.8)
            self.assertIn("requests until steady after a change of domain", first)
            xml.dom.minidom.parse(str(home / "out.svg"))

    def test_unknown_parts_and_programs_that_are_not_there_are_refused(self):
        for arguments, code, words in ((["--only", "training"], 2, "--only training: there are without-cache"),
                                       (["--only", "match", "--bin",
                                         "/nowhere"], 1, "/nowhere/moestro_prediction_bench")):
            ran = run("bench_prefetch", *arguments)
            self.assertEqual((ran.returncode, ran.stdout), (code, ""), arguments)
            self.assertIn(words, ran.stderr)

    def test_rows_as_tables(self):
        rows = [
            dict(what="b", setting="s", value=1, oracle=2, aim=3, met=True, unit="%"),
            dict(what="a", setting="t", value=4, oracle=5, aim=None, met=None, unit="x"),
            dict(what="b", setting="u", value=6, oracle=7, aim=3, met=False, unit="%")
        ]
        with tempfile.TemporaryDirectory() as home:
            path = pathlib.Path(home) / "rows.json"
            path.write_text(json.dumps(rows))
            lines = run("bench_prefetch", "--rows", path, "--markdown").stdout.splitlines()
            self.assertEqual([line for line in lines if line.startswith(("**", "| s", "| t", "| u"))][:2],
                             ["**a** (x)", "| setting | value | oracle | aim |"])
            self.assertEqual(lines[-2:], ["| s | 1.00 | 2.00 | 3.00, met |", "| u | 6.00 | 7.00 | 3.00, missed |"])
            path.write_text("[1]")
            ran = run("bench_prefetch", "--rows", path)
            self.assertEqual((ran.returncode, ran.stdout), (1, ""))
            self.assertRegex(ran.stderr, r"\Aerror: .*\n\Z")


class BenchSequences(unittest.TestCase):
    def test_a_table_of_drives_comes_from_replays(self):
        fake = """#!/bin/sh
moved=12
case "$*" in *none*) moved=10 ;; esac
echo "{\\"hit_rate\\": 0.5, \\"link_ratio\\": 1.95, \\"moved_bytes\\": $moved, \\"time_ms_per_token\\": 4}"
"""
        with tempfile.TemporaryDirectory() as home:
            program = pathlib.Path(home) / "moestro"
            program.write_text(fake)
            program.chmod(0o755)
            ran = run("bench_sequences", "--bin", home, "--only", "drive")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            lines = ran.stdout.splitlines()
            self.assertEqual(sum(line.startswith(("| demo", "| even")) for line in lines), 32)
            self.assertIn("| demo | 1 | 1.9 | 50.0 % | 50.0 % | 1.00 | 1.20 |", lines)
            self.assertEqual(lines[-1], "Time: 1.000 of none's at most.")

    def test_a_table_of_devices_counts_what_misses_its_aim(self):
        script = imported("bench_sequences")

        def cell(sequences, copy, moved, ms):
            found = {run: dict(moved_bytes=moved, time_ms_per_token=ms) for run in ("auto", "thriftless")}
            return script.of_device("demo", sequences, 10, copy) | {
                "found": found | {"none": dict(moved_bytes=10, time_ms_per_token=4)}
            }

        cells = [cell(1, copy, 12, 2) for copy in script.COPIES] + [cell(4, copy, 10, 5) for copy in script.COPIES]
        lines = script.device_table(cells)
        self.assertEqual(lines[2], "| demo | 1 | 10 % | 1.20 (1.20) | 1.20 (1.20) | 1.20 (1.20) | 2.00 (2.00) | "
                                   "2.00 (2.00) | 2.00 (2.00) |")
        self.assertEqual(lines[-1], "Bytes: above 1.05 in 3 of 6 cells, 1.20 at most, 1.100 on average. "
                                    "Tokens/s: below 0.98 in 3, 0.800 at least, 1.400 on average.")

    def test_what_is_wrong_is_refused(self):
        ran = run("bench_sequences", "--only", "link")
        self.assertEqual((ran.returncode, ran.stdout), (2, ""))
        self.assertIn("--only link: there are device, drive", ran.stderr)
        ran = run("bench_sequences", "--bin", "/nowhere")
        self.assertEqual((ran.returncode, ran.stdout), (1, ""))
        self.assertIn("error: /nowhere/moestro: No such file or directory", ran.stderr)


class BenchPeers(unittest.TestCase):
    def test_wrong_options_are_refused_before_anything_is_made(self):
        for arguments, code, words in ((["--dtypes", "int3"], 2, "int3 is not one of bf16, bf16-12bit, int8, int4"),
                                       (["--only", "training"], 2, "the measurements are decode"),
                                       (["--rounds",
                                         "0"], 2, "--rounds"), (["--memory-limit",
                                                                 "half"], 2, "'half' is not a list of whole numbers"),
                                       (["--memory-limit", "50,0"], 2, "--memory-limit"), (["--read-ahead",
                                                                                            "128,"], 2, "--read-ahead"),
                                       (["--peer-threads",
                                         "0"], 2, "--peer-threads"), (["--emulate-drive",
                                                                       "fast"], 2, "'fast' is not a speed"),
                                       (["--emulate-drive", "3.7"], 2,
                                        "--emulate-drive is of --memory-limit"), (["--tokens", "12"], 2,
                                                                                  "--tokens is of --memory-limit"),
                                       (["--memory-limit", "50", "--tokens",
                                         "0"], 2, "--tokens is 1"), (["--memory-limit", "50", "--stream",
                                                                      "1GiB"], 2, "--stream is not of --memory-limit"),
                                       (["--memory-limit", "50", "--sequences", "0"], 2, "--sequences is 1"),
                                       (["--sequences", "64"], 2, "--sequences is of --memory-limit"),
                                       (["--shapes", "giant"], 2, "giant is not one of"),
                                       (["--dtypes", "q9_k"], 2, "q9_k is not one of"),
                                       (["--gguf", "/nowhere.gguf"], 2, "/nowhere.gguf is not there"),
                                       (["--bin", "/nowhere"], 1, "/nowhere is not there")):
            ran = run("bench_peers", *arguments)
            self.assertEqual(ran.returncode, code, arguments)
            self.assertIn(words, ran.stderr)
            self.assertEqual(ran.stdout, "")


if __name__ == "__main__":
    unittest.main()

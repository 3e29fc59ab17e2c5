#!/usr/bin/env python3
"""Tables of scripts/bench_throughput and scripts/bench_plan, scripts/plot_plan on their rows, and what they refuse.
Nothing is measured."""

import json
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

sys.dont_write_bytecode = True
from bench_scripts_test import run  # noqa: E402


FAKE_GROUP_BENCH = f"#!{sys.executable} -IS" + """
import json, sys
a = sys.argv
if "--expert-time" in a:
    print(json.dumps(dict(expert_bytes=2000000, expert_s=0.001, rows=16)))
    sys.exit()
rate = float(a[a.index("--link") + 1][:-4]) * (1e9 if "GB" in a[a.index("--link") + 1] else 1e6)
seconds = 10 if "--fits" in a else 60 if "layerwise" in a else 16
print(json.dumps(dict(seconds=seconds, tokens_per_s=240 / seconds, least_link_s=15 * 0.5e9 / rate, stalled_s=1, steps=7,
    prompt_tokens=100, generated=240, expert_bytes_moved=3e9, kv_in_bytes=1e9)))
"""


class BenchThroughput(unittest.TestCase):
    """The computation takes 10 s; the link 15 s if a copy takes 4 computations, else 3.75 s."""

    def bench(self, *options):
        with tempfile.TemporaryDirectory() as home:
            program = pathlib.Path(home) / "moestro_group_bench"
            program.write_text(FAKE_GROUP_BENCH)
            program.chmod(0o755)
            return run("bench_throughput", "/packs/mini", "--bin", home, *options)

    def test_rows_are_held_against_the_longer_of_link_and_computation(self):
        ran = self.bench("--only", "layerwise,pipeline", "--json")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        rows = {(r["what"], "2.00 GB/s" in r["setting"]): r for r in json.loads(ran.stdout)}
        slow, fast = rows["expert pipeline: tokens/s", False], rows["expert pipeline: tokens/s", True]
        for row in (slow, fast):
            self.assertEqual((row["value"], row["beside"], row["ratio"], row["aim"], row["reached"]),
                             (15, 4, 3.75, 3, True))
        limit = "expert pipeline: time beside the limit"
        self.assertEqual((rows[limit, False]["beside"], rows[limit, False]["reached"]), (15, True))
        self.assertEqual((rows[limit, True]["beside"], rows[limit, True]["reached"]), (10, False))
        self.assertIsNone(rows["layerwise, 16 lines at a time: tokens/s", True]["aim"])

    def test_the_table_says_what_bounds(self):
        ran = self.bench("--copies", "4")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertIn("link 0.50 GB/s (a copy = 4 computations)", ran.stdout)
        self.assertRegex(ran.stdout, r"expert pipeline +15.00 +3.75 +16.0 +15.0 +0.94 link")
        self.assertEqual(ran.stdout.count("  without "), 4)

    def test_what_is_wrong_is_refused(self):
        for options, words in ((["--only", "lean"], "lean is not one of layerwise, pipeline, cgo"),
                               (["--copies", "0"], "--copies")):
            ran = self.bench(*options)
            self.assertEqual(ran.returncode, 2)
            self.assertIn(words, ran.stderr)
        ran = run("bench_throughput", "/packs/mini", "--bin", "/nowhere")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("moestro_group_bench", ran.stderr)


FAKE_PLANNED = f"#!{sys.executable} -IS" + """
import json, sys
if sys.argv[1] == "plan":
    print(json.dumps({"model": {"experts_bytes": 1000, "dense_bytes": 100, "kv_bytes_per_token": 1, "moe_layers": 4,
                                "top_k": 2, "expert_bytes": 10},
                      "schedule": "expert-pipeline", "arrangement": {"sequences": 64},
                      "flags": "--schedule expert-pipeline --micro-batches 4 --kv-tokens 9",
                      "prompt": {"tokens_per_s": 50}, "decode": {"tokens_per_s": 95}}))
else:
    word = lambda flag, otherwise: sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else otherwise
    pipeline = word("--schedule", "") == "expert-pipeline"
    assert "--kv-tokens" not in sys.argv
    results = [{"what": "prefill", "batch": int(word("--prompts-at-once", 1)), "tokens_per_s": {"median": 100}}]
    twice = 2 if "--micro-batches FASTER" in " ".join(sys.argv) else 1
    results += [{"what": "decode", "batch": int(b), "tokens_per_s": {"median": twice * (100 if pipeline else 80)},
                 "moved_bytes_per_token": {"median": 20}}
                for b in word("--batch", "1").split(",")]
    print(json.dumps({"results": results}))
"""


class BenchPlan(unittest.TestCase):
    """A program that plans 95 tokens/s of decoding and half of a prompt's speed. It decodes 80, and 100 with the expert
    pipeline, or twice that with `faster` micro-batches."""

    def bench(self, home, *options, faster="no"):
        program = pathlib.Path(home) / "moestro"
        program.write_text(FAKE_PLANNED.replace("FASTER", faster))
        program.chmod(0o755)
        return run("bench_plan", "--bin", home, "--packs", "a,b", "--sequences", "1,64", "--rounds", "1", *options)

    def test_rows_say_what_is_reached(self):
        with tempfile.TemporaryDirectory() as home:
            ran = self.bench(home, "--only", "cpu", "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        rows = json.loads(ran.stdout)
        self.assertEqual(len(rows), 2 * 3)  # a prompt of one sequence, and decoding of both
        self.assertEqual({key for r in rows for key in r},
                         {"what", "setting", "value", "unit", "beside", "ratio", "aim", "reached"})
        self.assertEqual([(r["ratio"], r["reached"]) for r in rows[:3]], [(95 / 80, False), (0.5, False),
                                                                          (95 / 80, False)])
        self.assertIn("missed: 6 of 6", ran.stderr)

    def test_devices_have_two_shares_and_three_links(self):
        with tempfile.TemporaryDirectory() as home:
            ran = self.bench(home, "--only", "device", "--schedule", "expert-pipeline", "--json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        rows = json.loads(ran.stdout)
        self.assertEqual(len(rows), 2 * 6 * 4)
        self.assertEqual({r["ratio"] for r in rows if r["what"].startswith("decode")}, {0.95})
        self.assertIn("missed: 24 of 48", ran.stderr)
        self.assertEqual({"--hits 0.75" in r["setting"] for r in rows if "--sequences 1 " in r["setting"]
                          and r["what"].startswith("decode")}, {True})

    def test_cgo_is_for_devices_with_memory_for_some_kv(self):
        with tempfile.TemporaryDirectory() as home:
            ran = self.bench(home, "--only", "device", "--schedule", "cgo", "--shares", "0.5", "--links", "1GB/s")
            everywhere = self.bench(home, "--schedule", "cgo")
        self.assertEqual((ran.returncode, ran.stdout.count("--schedule cgo")), (0, 2 * 4), ran.stderr)
        self.assertEqual(everywhere.returncode, 2)
        self.assertIn("add --only device", everywhere.stderr)

    def test_the_choice_is_compared_with_the_best_of_a_grid(self):
        # Seconds of a token: 32 of 1/100 each, then 8 of 1/100 or 1/200. The plan chooses 4 micro-batches.
        for faster, ratio in (("no", 1), ("4", 1), ("2", (32 + 8) / (32 + 4))):
            with tempfile.TemporaryDirectory() as home:
                ran = self.bench(home, "--only", "device", "--grid", "--json", faster=faster)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            rows = json.loads(ran.stdout)
            self.assertEqual(len(rows), 2 * 6)
            for r in rows:
                self.assertAlmostEqual(r["ratio"], ratio)
                self.assertIs(r["reached"], ratio == 1)
                self.assertIn("chosen: 64 at once, --schedule expert-pipeline --micro-batches 4", r["setting"])
            self.assertIs("missed: 12 of 12" in ran.stderr, ratio > 1)
        self.assertIn("best: 64 at once, --schedule expert-pipeline --micro-batches 2", rows[0]["setting"])

    def test_a_program_that_fails_or_is_not_there_is_named(self):
        ran = run("bench_plan", "--bin", "/nowhere", "--packs", "a")
        self.assertEqual((ran.returncode, ran.stdout.count("\n")), (1, 1))
        self.assertIn("/nowhere/moestro", ran.stderr)
        self.assertIn("--only", run("bench_plan", "--only", "gpu").stderr)


class PlotPlan(unittest.TestCase):
    def test_a_dot_for_every_forecast_and_another_colour_for_those_that_miss(self):
        where = "a<b, CPU, memory for 25% of the experts, --schedule layerwise --sequences 64 --prompt 32"
        rows = [dict(what="decode: forecast", setting=where, value=r * 100, unit="tokens/s", beside=100, ratio=r,
                     aim=0.1, reached=abs(r - 1) <= 0.1) for r in (0.95, 1.31, 50)]
        with tempfile.TemporaryDirectory() as home:
            file, svg = pathlib.Path(home) / "rows.json", pathlib.Path(home) / "out.svg"
            file.write_text(json.dumps(rows))
            ran = run("plot_plan", file, "-o", svg)
            self.assertEqual((ran.returncode, ran.stderr), (0, ""))
            picture = xml.dom.minidom.parseString(svg.read_text())
            dots = picture.getElementsByTagName("circle")
            self.assertEqual(len(dots), 3)
            self.assertEqual(len({d.getAttribute("fill") for d in dots}), 2)
            self.assertLess(float(dots[2].getAttribute("cx")), 860)
            self.assertIn("decode of 64, CPU, memory for 25% of the experts", svg.read_text())
            for content in ("[]", "{}", "[1]", "x"):
                file.write_text(content)
                self.assertRegex(run("plot_plan", file, "-o", svg).stderr, r"\Aerror: .*\n\Z")


if __name__ == "__main__":
    unittest.main()

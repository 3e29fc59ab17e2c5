#!/usr/bin/env python3
"""scripts/bench_schedules: the order of the rows of both tables, the steps that are within the aim, timelines, and what
is refused. Times are virtual, so the results are the same on every machine.

    bench_schedules_test.py BIN"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = sys.argv.pop()


def run(script, *arguments):
    return subprocess.run([sys.executable, ROOT / "scripts" / script, *map(str, arguments)], capture_output=True,
                          text=True)


def steps(name):
    ran = run("bench_schedules", "--bin", BIN, "--only", name, "--json")
    assert ran.returncode == 0, ran.stderr
    return {row["what"].split(":")[0].split("/")[1]: row for row in json.loads(ran.stdout)}


class BenchSchedules(unittest.TestCase):
    def test_klotskis_rows_come_in_its_order(self):
        by_row = steps("klotski")
        self.assertEqual(list(by_row), ["groups", "hot", "reordered", "4-bit"])
        self.assertGreater(by_row["groups"]["value"], 3.19)
        self.assertGreaterEqual(by_row["hot"]["value"], 1)  # equal: even routing uses every expert
        self.assertGreater(by_row["reordered"]["value"], 1.03)
        self.assertGreater(by_row["4-bit"]["value"], 1.01)
        self.assertEqual({k for k, row in by_row.items() if row["reached"]}, {"hot", "reordered"})

    def test_moe_lightnings_rows(self):
        by_row = steps("moe-lightning")
        self.assertEqual(list(by_row), ["policy", "larger", "cgo"])
        self.assertGreater(by_row["policy"]["value"], 1.5)
        self.assertTrue(by_row["larger"]["reached"])
        # With the same batch, attending on the host beats moving the cache.
        self.assertGreater(by_row["larger"]["value"] * by_row["cgo"]["value"], 1.25)
        for row in by_row.values():
            self.assertAlmostEqual(row["ratio"], row["value"] / row["beside"])
            self.assertEqual(row["reached"], abs(row["ratio"] - 1) <= row["aim"])

    def test_the_tables_list_their_assumptions(self):
        ran = run("bench_schedules", "--bin", BIN)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        for words in ("Klotski, table 3", "MoE-Lightning, table 5", "- even routing", "- link: 16.8 GB/s each way"):
            self.assertIn(words, ran.stdout)

    def test_a_row_is_drawn(self):
        with tempfile.TemporaryDirectory() as home:
            for row, words in (("klotski/reordered", ("copy of an expert", "device to host")),
                               ("moe-lightning/cgo", ("weights", "host compute"))):
                trace, svg = pathlib.Path(home) / "trace.json", pathlib.Path(home) / "trace.svg"
                ran = run("bench_schedules", "--bin", BIN, "--timeline", trace, "--row", row)
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                ran = run("plot_timeline", trace, "--first", 1, "--steps", 1, "-o", svg)
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                xml.dom.minidom.parse(str(svg))
                for word in words:
                    self.assertIn(word, svg.read_text())

    def test_what_is_wrong_is_refused_in_one_line(self):
        for arguments, code, words in ((["--only", "klotsky"], 2, "klotsky is not one of klotski, moe-lightning"),
                                       (["--arithmetic", "2"], 2, "--arithmetic"),
                                       (["--timeline", "/dev/null", "--row", "cgo"], 1, "rows are klotski/simple"),
                                       (["--bin", "/nowhere"], 1, "moestro_schedules_bench")):
            ran = run("bench_schedules", "--bin", BIN, *arguments)
            self.assertEqual(ran.returncode, code, arguments)
            self.assertIn(words, ran.stderr)

    def test_a_wrong_scenario_is_refused(self):
        for scenario, words in (("{", "parse error"), ("{}", "key 'model' not found"), ("[]", "the scenario")):
            ran = subprocess.run([pathlib.Path(BIN) / "moestro_schedules_bench"], input=scenario, capture_output=True,
                                 text=True)
            self.assertEqual(ran.returncode, 1)
            self.assertIn(words, ran.stderr)


if __name__ == "__main__":
    unittest.main()

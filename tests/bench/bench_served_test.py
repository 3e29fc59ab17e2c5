#!/usr/bin/env python3
"""What scripts/bench_overtaking and scripts/bench_dense_window make of what servers say. Their servers are played, and
so is the time: nothing is measured."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


def load(name):
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader(name, str(SCRIPTS / name))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(script)
    return script


def printed(call, *arguments):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        call(*arguments)
    return out.getvalue(), err.getvalue()


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class PlayedServer:
    """A batch takes `batch` seconds. Requests have their first token after 0.5 s where they may overtake, else after
    2 s, and then two more."""
    clock, batch, started = None, 10, []

    def __init__(self, program, pack, *flags):
        self.overtakes = "--no-overtaking" not in flags
        self.started.append(flags)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def start_batch(self, lines, tokens):
        self.end = self.clock.now + self.batch
        return "batch"

    def runs(self, batch):
        return self.clock.now < self.end

    def times(self):
        first, gap = (0.5, 0.25) if self.overtakes else (2.0, 0.5)
        return [0.0, first, first + gap, first + 3 * gap]

    def parks(self):
        return 7 if self.overtakes else 0


class BenchOvertaking(unittest.TestCase):
    def run_script(self, *arguments, batch=10):
        script = load("bench_overtaking")
        PlayedServer.clock, PlayedServer.batch, PlayedServer.started = Clock(), batch, []
        script.Server, script.time = PlayedServer, PlayedServer.clock
        with tempfile.TemporaryDirectory() as home:
            program = pathlib.Path(home) / "moestro"
            program.write_text("#!/bin/sh\necho '%s'\n" % json.dumps({"experts": {"precisions": [{"bytes": 1000}]}}))
            program.chmod(0o755)
            with mock.patch.object(sys, "argv", ["bench_overtaking", "packs/p", "--bin", home, *arguments]):
                return printed(script.main)

    def test_each_figure_stands_beside_that_without_overtaking(self):
        out, err = self.run_script("--json", "--lines", "50", "--tokens", "4", "--every", "2", "--rounds", "2")
        rows = {row["what"]: row for row in json.loads(out)}
        self.assertEqual({key for row in rows.values() for key in row},
                         {"what", "setting", "value", "unit", "beside", "ratio"})
        for what, value, beside in (("median time to first token", 0.5, 2), ("longest time to first token", 0.5, 2),
                                    ("median time between tokens", 0.375, 0.75),
                                    ("longest time between tokens", 0.5, 1)):
            self.assertEqual((rows[what]["value"], rows[what]["beside"]), (value, beside), what)
        self.assertAlmostEqual(rows["batch"]["value"], 20, delta=0.2)
        self.assertIn("p, 50 lines of 4 tokens, --device emulated:vram=250,link=5MB/s", rows["batch"]["setting"])
        self.assertIn("overtaken 7 times, with --no-overtaking 0 times", err)
        self.assertEqual(["--no-overtaking" in flags for flags in PlayedServer.started], [False, True])

    def test_a_batch_that_nobody_was_beside_is_no_result(self):
        with self.assertRaisesRegex(SystemExit, "error: the batch ended before a request was sent"):
            self.run_script(batch=0.5)


class BenchDenseWindow(unittest.TestCase):
    def setUp(self):
        self.script = load("bench_dense_window")
        self.script.cluster_module = types.SimpleNamespace(expert_and_dense_bytes=lambda pack: (10, 1000))
        self.seen = []

    def measure(self, args, share, sequences):
        """The second run of each is the faster one."""
        self.seen.append((sequences, share))
        speed = 100 * share * (1 + self.seen.count((sequences, share)))
        read = 0 if share == 1 else 2 << 20
        return {"tokens_per_s": speed, "steps": 4, "dense_step_bytes": read, "step_bytes": read,
                "drive_bytes_per_s": 5e8, "limit_tokens_per_s": 2 * speed if read else None, "streamed_layers": 3,
                "layers": 24}

    def run_script(self, *arguments):
        self.script.measure = self.measure
        with tempfile.TemporaryDirectory() as pack:
            with mock.patch.object(sys, "argv", ["bench_dense_window", "--pack", pack, *arguments]):
                return printed(lambda: self.script.main(self.script.arguments()))[0]

    def test_the_fastest_round_counts_and_shares_take_turns(self):
        rows = json.loads(self.run_script("--shares", "1,0.5", "--sequences", "1,4", "--json"))
        self.assertEqual(self.seen, [(n, share) for _ in range(2) for n in (1, 4) for share in (1, 0.5)])
        self.assertEqual([(row["sequences"], row["share"], row["tokens_per_s"], row["of_all_resident"])
                          for row in rows], [(4, 1, 300, 1), (4, 0.5, 150, 0.5), (1, 1, 300, 1), (1, 0.5, 150, 0.5)])

    def test_where_nothing_was_read_there_is_no_limit(self):
        held, read = self.run_script("--shares", "1,0.5", "--sequences", "1").splitlines()[1:3]
        self.assertEqual(held.split()[-2:], ["-", "-"])
        self.assertEqual(read.split()[-2:], ["300.00", "0.50"])

    def test_shares_become_memory_or_a_device(self):
        args = types.SimpleNamespace(dense=1000, all_bytes=5000, link="400MB/s", schedule="layerwise")
        self.assertEqual(self.script.store_options(args, 1), ())
        self.assertEqual(self.script.store_options(args, 0.5), ("--dram", 500))
        self.assertEqual(self.script.device_options(args, 0.25)[1], "emulated:vram=6000,link=400MB/s,dense=25%")

    def test_rates_have_a_unit(self):
        self.assertEqual((self.script.rate_of("400MB/s"), self.script.rate_of("2GB/s")), (4e8, 2e9))
        with self.assertRaisesRegex(SystemExit, "error: --link fast: write it as 400MB/s"):
            self.script.rate_of("fast")


if __name__ == "__main__":
    unittest.main()

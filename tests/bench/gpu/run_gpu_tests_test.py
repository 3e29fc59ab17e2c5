"""What run_gpu_tests makes of the programs that it runs, and what its report says of them: without a bundle, on every
machine."""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
loader = importlib.machinery.SourceFileLoader("run_gpu_tests", str(ROOT / "scripts" / "run_gpu_tests"))
runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("run_gpu_tests", loader))
sys.dont_write_bytecode = True
loader.exec_module(runner)

ROWS = {
    "device": "d", "rows": [{
        "what": "device memory", "value": 4000.0, "unit": "GB/s", "ceiling": 4000.0, "ceiling_is": "a copy",
        "ratio": 1.0, "aim": None, "failed": None
    }, {
        "what": "a|copy", "value": None, "unit": "GB/s", "ceiling": None, "ceiling_is": "pinned", "ratio": None,
        "aim": 0.97, "failed": "register_host: out of memory"
    }]
}


def ran(code, limit_s=60, read=None):
    """A step whose program is these lines of Python."""
    step = runner.Step("bench", "a step", [sys.executable, "-c", code], limit_s, read)
    with tempfile.TemporaryDirectory() as work:
        step.run(dict(os.environ), pathlib.Path(work))
    return step


class Steps(unittest.TestCase):
    def test_exit_codes_are_judged(self):
        for code, status, why in (("pass", "passed", ""), ("raise SystemExit('x: broken')", "failed", "x: broken"),
                                  ("import sys; print('no GPU', file=sys.stderr); sys.exit(77)", "skipped",
                                   "no GPU"), ("raise SystemExit('first\\nm: this is not in this version (d)\\nlast')",
                                               "refused", "m: this is not in this version (d)")):
            step = ran(code)
            self.assertEqual(step.status, status, step.why)
            self.assertIn(why, step.why)
            self.assertNotIn("last", step.why)

    def test_a_step_that_takes_too_long_is_ended_with_its_children(self):
        step = ran("import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])", limit_s=0.5)
        self.assertEqual(step.status, "timeout")
        self.assertLess(step.seconds, 30)

    def test_a_step_may_run_beside_others_until_it_is_waited_for(self):
        step = runner.Step("bench", "a step", [sys.executable, "-c", "print(1)"], 60, runner.read_json)
        with tempfile.TemporaryDirectory() as work:
            step.begin(dict(os.environ), pathlib.Path(work))
            self.assertEqual(ran("pass").status, "passed")
            for _ in range(2):
                step.run(dict(os.environ), pathlib.Path(work))
                self.assertEqual((step.status, step.figures), ("passed", 1))

    def test_a_suite_of_which_nothing_ran_is_skipped(self):
        whole = "[==========] 3 tests\n[  PASSED  ] 2 tests.\n[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] A.B\n"
        step = ran(f"print({whole!r})", read=runner.read_suite)
        self.assertEqual((step.status, step.figures), ("passed", {"passed": 2, "skipped": 1}))
        self.assertEqual(
            ran("print('[  PASSED  ] 0 tests.\\n[  SKIPPED ] 4 tests, listed below:')", read=runner.read_suite).status,
            "skipped")

    def test_rows_that_could_not_be_measured_fail_the_step_and_leave_the_others(self):
        step = ran(f"print({json.dumps(ROWS)!r}); raise SystemExit(1)", read=runner.read_rows)
        self.assertEqual(step.status, "failed")
        self.assertIn("a|copy: register_host: out of memory", step.why)
        self.assertEqual(len(runner.figures([step])), 2)

    def test_output_that_cannot_be_read_is_a_failure(self):
        self.assertIn("cannot be read", ran("print('{')", read=runner.read_json).why)

    def test_a_driver_that_is_too_old_is_named_before_anything_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "version"
            file.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.183.01  Release Build\n"
                            "GCC version:  gcc version 12.2.0\n")
            self.assertEqual(runner.driver(file), "535.183.01")
            self.assertEqual(runner.driver(pathlib.Path(folder) / "none"), "")
        for found, needed in (("", "580"), ("535.183.01", "525"), ("580.65.06", "580"), ("600.1", "580")):
            runner.check_driver(found, needed)
        with self.assertRaisesRegex(SystemExit, "driver here is 535.183.01, the bundle needs 580 or later"):
            runner.check_driver("535.183.01", "580")

    def test_what_cannot_be_started_fails_alone(self):
        missing = runner.Step("bench", "b", ["/nowhere/program"], 1)
        with tempfile.TemporaryDirectory() as work:
            runner.start(missing, dict(os.environ), pathlib.Path(work))
        self.assertEqual(missing.status, "failed")
        self.assertIn("/nowhere/program", missing.why)
        self.assertEqual([s.name for s in runner.test_steps(pathlib.Path("/nowhere"), {})], ["the suites of gpu_test"])


class Order(unittest.TestCase):
    """A run of steps that are lines of Python."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.log = pathlib.Path(self.dir.name, "log")

    def step(self, group, name, more="", limit_s=60):
        code = f"open({str(self.log)!r}, 'a').write({name!r} + ' '); {more}"
        return runner.Step(group, name, [sys.executable, "-c", code], limit_s)

    def run_steps(self, steps, budget=None):
        told = []
        no_gpu = runner.run_steps(steps, argparse.Namespace(budget=budget), dict(os.environ),
                                  pathlib.Path(self.dir.name), told.append)
        self.assertEqual(told, steps)
        return no_gpu

    def test_steps_are_sorted_by_their_worth(self):
        args = argparse.Namespace(device=0, check=False, shape="mixtral-12gb", suites="")
        steps = runner.steps_of(args, runner.GROUPS, pathlib.Path("/tree"), {"MOESTRO_CUDA_PLUGIN": "p"},
                                pathlib.Path("/work"))
        self.assertEqual([s.group for s in steps],
                         ["bench", "tests", "bench", *["engine"] * 5, "serving", *["engine"] * 6])
        self.assertEqual(steps[2].command[-1], "--json")
        self.assertEqual(runner.needed_first(steps).name, "a pack of mixtral-12gb")
        args.check = True
        steps = runner.steps_of(args, ["bench"], pathlib.Path("/tree"), {"MOESTRO_CUDA_PLUGIN": "p"},
                                pathlib.Path("/work"))
        self.assertEqual([s.command[-1] for s in steps], ["--check", "--check"])

    def test_a_pack_is_made_beside_tests_and_not_beside_benchmarks(self):
        there = pathlib.Path(self.dir.name, "there")
        wait = f"import os, time\nwhile not os.path.exists({str(there)!r}): time.sleep(0.01)\n"
        pack = self.step("engine", "pack", f"exec({wait!r})")
        test = self.step("tests", "test", f"open({str(there)!r}, 'w')")
        decode = self.step("engine", "decode")
        decode.needs = pack
        bench = self.step("bench", "bench", f"open({str(self.log)!r} + '2', 'w').write('')")
        steps = [self.step("bench", "look"), test, bench, pack, decode]
        self.assertIsNone(self.run_steps(steps))
        self.assertEqual([s.status for s in steps], ["passed"] * 5)
        self.assertEqual(sorted(self.log.read_text().split()[:3]), ["look", "pack", "test"])
        self.assertEqual(self.log.read_text().split()[3:], ["bench", "decode"])

    def test_a_pack_that_cannot_be_made_fails_once(self):
        for pack in (self.step("engine", "pack", "raise SystemExit('no room')"),
                     runner.Step("engine", "pack", ["/nowhere/program"], 1)):
            decode = self.step("engine", "decode")
            decode.needs = pack
            steps = [self.step("bench", "look"), self.step("bench", "bench"), pack, decode]
            self.run_steps(steps)
            self.assertEqual([s.status for s in steps], ["passed", "passed", "failed", "skipped"])

    def test_a_budget_ends_what_runs_and_starts_nothing_more(self):
        steps = [self.step("bench", "look"), self.step("tests", "long", "import time; time.sleep(100)"),
                 self.step("tests", "later")]
        self.run_steps(steps, budget=3)
        self.assertEqual([s.status for s in steps], ["passed", "skipped", "skipped"])
        self.assertLess(steps[1].seconds, 30)
        self.assertIn("used up while it ran", steps[1].why)
        self.assertEqual(steps[2].why, "the budget of 3 s was used up")
        self.assertEqual(self.log.read_text(), "look long ")

    def test_where_there_is_no_gpu_nothing_else_runs(self):
        pack = self.step("engine", "pack")
        decode = self.step("engine", "decode")
        decode.needs = pack
        look = self.step("bench", "look", "import sys; print('none', file=sys.stderr); sys.exit(77)")
        self.assertIn("none", self.run_steps([look, pack, decode]))
        self.assertEqual(self.log.read_text(), "look ")


class Report(unittest.TestCase):
    def engine(self, measured):
        args = argparse.Namespace(device=2, check=False, shape="mixtral-12gb")
        steps = runner.engine_steps(pathlib.Path("/tree"), pathlib.Path("/work"), args, measured)
        return next(s for s in steps if s.aim == 0.7), next(s for s in steps if s.aim == 1.05)

    def said(self, rate, **more):
        return json.dumps({
            "results": [{
                "tokens_per_s": {"median": rate}, "weight_bytes_per_token": {"median": 4e9},
                **{k: {"median": v} for k, v in more.items()}
            }]
        })

    def test_decoding_is_held_against_device_memory_and_the_link(self):
        measured = runner.Step("bench", "b", ["x"], 1)
        rows = [*ROWS["rows"], {"what": "copy of 336 MiB, an expert of bf16, from", "value": 49.0, "ceiling": 50.0}]
        measured.figures = {"rows": rows}
        resident, quarter = self.engine(measured)
        self.assertEqual(resident.command[-1], "cuda:2")
        resident.figures = resident.read(self.said(800.0), resident)
        row = resident.figures["rows"][0]
        self.assertEqual((row["value"], row["ceiling"], row["ratio"]), (800.0, 1000.0, 0.8))
        row = quarter.read(self.said(20.0, moved_bytes_per_token=2e9), quarter)["rows"][0]
        self.assertEqual((row["value"], row["ceiling"], row["ratio"]), (50.0, 40.0, 1.25))
        row = quarter.read(self.said(400.0, moved_bytes_per_token=0), quarter)["rows"][0]
        self.assertEqual((row["ceiling"], row["ratio"]), (1.25, 2.0), "all that was missing was computed on the CPU")
        row = quarter.read(self.said(400.0, moved_bytes_per_token=1e6), quarter)["rows"][0]
        self.assertEqual((row["ceiling"], row["ratio"]), (1.25, 2.0))

    def test_decoding_without_graphs_is_held_against_decoding_with_them(self):
        args = argparse.Namespace(device=2, check=False, shape="mixtral-12gb")
        steps = runner.engine_steps(pathlib.Path("/tree"), pathlib.Path("/work"), args,
                                    runner.Step("bench", "b", ["x"], 1))
        for queued in (s for s in steps if s.name.endswith("without CUDA graphs")):
            with_graphs = next(s for s in steps if queued.name == s.name + ", without CUDA graphs")
            self.assertEqual(queued.command, [*with_graphs.command, "--cuda-graphs", "off"])
            self.assertIsNone(queued.read(self.said(400.0), queued)["rows"][0]["ratio"])
            with_graphs.figures = with_graphs.read(self.said(800.0), with_graphs)
            row = queued.read(self.said(600.0), queued)["rows"][0]
            self.assertEqual((row["value"], row["ceiling"], row["ratio"]), (600.0, 800.0, 0.75))
        self.assertEqual(sum(s.name.endswith("without CUDA graphs") for s in steps), 2)

    def test_a_ceiling_that_was_not_measured_is_no_number(self):
        resident, quarter = self.engine(runner.Step("bench", "b", ["x"], 1))
        for step in (resident, quarter):
            row = step.read(self.said(20.0), step)["rows"][0]
            self.assertEqual((row["ceiling"], row["ratio"]), (None, None))

    def test_figures_have_verdicts_and_those_furthest_from_their_aims_come_last(self):
        def row(what, ratio, aim, **more):
            return dict(what=what, value=1.0, unit="GB/s", ceiling=2.0, ceiling_is="c", ratio=ratio, aim=aim,
                        failed=None, **more)

        rows = [row("good", 0.9, 0.8), row("bad", 0.2, 0.8), row("slow", 2.1, 1.05, at_most=True),
                row("quick", 1.0, 1.05, at_most=True), row("free", 0.1, None), row("blind", None, 0.7),
                {**row("broken", None, 0.97), "failed": "refused"}]
        self.assertEqual([runner.verdict(r) for r in rows],
                         ["met", "missed", "missed", "met", "no aim", "no ceiling", "not measured"])
        step = runner.Step("bench", "b", ["x"], 1)
        step.figures, step.errors = {"rows": rows}, "2026 warning moestro: copies to cuda:0 are staged: why\n"
        with tempfile.TemporaryDirectory() as out:
            report = runner.write(pathlib.Path(out), {"commit": "abc"}, runner.machine(0), [step])
            text = pathlib.Path(out, "report.md").read_text()
        self.assertEqual([line.split(":")[0] for line in report["furthest"]], ["blind", "broken", "bad"])
        self.assertTrue(text.endswith("- bad: 0.200, aim 0.800: 0.25 of it\n"), text[-300:])
        self.assertIn("| slow | 1.000 | GB/s | 2.000 | 2.100 | 1.050 | missed | c |", text)
        self.assertIn("- b: copies to cuda:0 are staged: why", text)
        self.assertEqual(list(runner.furthest_lines([rows[2]])), ["slow: 2.100, aim at most 1.050: 0.50 of it"])

    def test_copies_that_are_staged_fail_the_row_that_needs_them(self):
        measured = runner.Step("bench", "b", ["x"], 1)
        resident, quarter = self.engine(measured)
        for step in (resident, quarter):
            step.judge(0, self.said(20.0), "")
            self.assertEqual((step.status, step.staged()), ("passed", None))
            step.errors = (
                "2026-11-26T17:18:12.970 warning moestro: 0 B of the store's memory (9 GiB) registered with cuda:0, "
                "copies from the rest are staged, which is slow: operation not supported"
            )
            step.judge(0, self.said(20.0), step.errors)
        self.assertEqual((resident.status, quarter.status), ("passed", "failed"))
        self.assertIn("copies from the rest are staged", quarter.figures["rows"][0]["failed"])

    def test_it_has_every_step_and_figure(self):
        step = ran(f"print({json.dumps(ROWS)!r}); raise SystemExit(1)", read=runner.read_rows)
        other = runner.Step("engine", "a pack", ["x"], 1)
        other.skip("needs: memory")
        with tempfile.TemporaryDirectory() as out:
            counts = runner.write(pathlib.Path(out), {"commit": "abc"}, runner.machine(0), [step, other])["counts"]
            report, text = json.loads(pathlib.Path(out,
                                                   "report.json").read_text()), pathlib.Path(out,
                                                                                             "report.md").read_text()
        self.assertEqual({k: v for k, v in counts.items() if v}, {"failed": 1, "skipped": 1})
        self.assertEqual(report["counts"], counts)
        self.assertEqual([s["name"] for s in report["steps"]], ["a step", "a pack"])
        self.assertIn("| a/copy | not measured: register_host: out of memory | GB/s |  |  | 0.970 | not measured | pi",
                      text)
        self.assertIn("| device memory | 4,000.0 | GB/s | 4,000.0 | 1.000 |  | no aim | a copy |", text)
        self.assertIn("needs: memory", text)

    def test_versions_are_numbers(self):
        self.assertLess(runner.version("2.9"), runner.version("2.34"))


if __name__ == "__main__":
    unittest.main(verbosity=2)

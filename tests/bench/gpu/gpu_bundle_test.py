"""The bundle for machines with a GPU, on one without: it is small enough, every program of it starts with the bundle's
libraries alone, and run_gpu_tests counts what it skips.

    gpu_bundle_test.py BUNDLE [EMULATED_PLUGIN]
        both made before: scripts/gpu_bundle, and the target moestro_cuda_emulated_plugin
"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUNDLE = pathlib.Path(sys.argv[1]).resolve()
EMULATED = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None


def script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(ROOT / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


maker = script("gpu_bundle")
HAS_GPU = os.path.exists("/dev/nvidiactl")


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.tree = pathlib.Path(cls.dir.name, "tree")
        with tarfile.open(BUNDLE / "payload.tar.xz") as tar:
            tar.extractall(cls.tree)
        # Nothing of this machine's settings; no PATH.
        cls.environment = {"LD_LIBRARY_PATH": f"{cls.tree}/lib:{cls.tree}/lib/g++", "MOESTRO_SOURCE_DIR": str(cls.tree)}

    def run_here(self, *command, **environment):
        return subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              env={**self.environment, **environment}, timeout=300)

    def run_gpu_tests(self, *options, bundle=BUNDLE, **environment):
        report = pathlib.Path(self.dir.name, "report")
        shutil.rmtree(report, ignore_errors=True)
        ran = subprocess.run([bundle / "run_gpu_tests", report, *options], capture_output=True, text=True,
                             env={"PATH": os.environ["PATH"], **environment}, timeout=900)
        return ran, json.loads(
            (report / "report.json").read_text()) if (report / "report.json").exists() else None, report

    def test_it_is_small_enough_and_says_what_it_is(self):
        self.assertLessEqual(sum(f.stat().st_size for f in BUNDLE.iterdir()), maker.BYTES_MAX)
        self.assertEqual(sorted(f.name for f in BUNDLE.iterdir()), ["MANIFEST.json", "payload.tar.xz", "run_gpu_tests"])
        manifest = json.loads((BUNDLE / "MANIFEST.json").read_text())
        self.assertRegex(manifest["glibc"], r"^2\.\d+$")
        self.assertIn(manifest["driver"], ("525", "580"))
        self.assertEqual(sorted(manifest["files"]),
                         sorted(str(f.relative_to(self.tree)) for f in self.tree.rglob("*") if f.is_file()))
        self.assertIn("models/demo/model.safetensors", manifest["files"])

    def test_nothing_comes_from_outside_but_glibc(self):
        for file in [*(self.tree / "bin").iterdir(), *(f for f in (self.tree / "lib").rglob("*") if f.is_file())]:
            for line in self.run_here("/usr/bin/ldd", file).stdout.splitlines():
                name, _, rest = line.strip().partition(" => ")
                if maker.OF_GLIBC.fullmatch(pathlib.Path(name.split()[0]).name):
                    continue
                self.assertTrue(rest.startswith(str(self.tree / "lib") + "/"), f"{file.name}: {line.strip()}")

    def test_every_program_starts(self):
        for name in maker.PROGRAMS:
            ran = self.run_here(self.tree / "bin" / name, "--help")
            self.assertEqual(ran.returncode, 0, f"{name}: {ran.stderr}")
            self.assertIn(name, ran.stdout + ran.stderr)
        listed = self.run_here(self.tree / "bin" / "gpu_test", "--gtest_list_tests")
        for suite in ("SortRoutes.", "LongAttention.", "ManyTokens.", "Sample.", "Mirrors.",
                      "Fixtures/CudaEngineTest."):
            self.assertIn("\n" + suite, "\n" + listed.stdout)

    @unittest.skipIf(HAS_GPU, "there is a GPU here")
    def test_without_a_gpu_all_is_skipped_and_counted(self):
        ran, report, folder = self.run_gpu_tests()
        self.assertEqual(ran.returncode, 77, ran.stderr + ran.stdout)
        self.assertEqual(report["counts"]["skipped"], len(report["steps"]))
        self.assertGreater(report["counts"]["skipped"], 20)
        self.assertEqual(report["figures"], [])
        self.assertRegex(ran.stdout.splitlines()[-1], rf"^SKIPPED, {report['counts']['skipped']}: .*no CUDA device")
        self.assertIn("no CUDA device", (folder / "report.md").read_text())

    @unittest.skipUnless(EMULATED, "no emulated plugin was named")
    def test_over_the_emulated_plugin_steps_pass_and_are_reported(self):
        suites = ["SortRoutes", "LayerExperts", "Guard", "Sample", "Mirrors", "Workspaces", "CudaOpsErrors"]
        ran, report, folder = self.run_gpu_tests("--plugin", EMULATED, "--check", "--suites",
                                                 "^(" + "|".join(suites) + ")[.]")
        self.assertEqual(ran.returncode, 0, json.dumps(report, indent=1))
        steps = {s["name"]: s for s in report["steps"]}
        self.assertEqual({s["status"] for s in report["steps"]}, {"passed"}, json.dumps(report["steps"], indent=1))
        self.assertEqual(sum(s["group"] == "engine" for s in report["steps"]), 11,
                         "a pack made, eight measurements of the engine, two others without graphs again")
        for suite in suites:
            self.assertGreater(steps[suite]["figures"]["passed"], 0)
            self.assertEqual(steps[suite]["figures"]["skipped"], 0)
        self.assertEqual([s["warning"] for s in report["steps"]], [None] * len(steps))
        self.assertEqual([row["unit"] for row in report["figures"]][-9:], ["tokens/s"] * 2 + ["ms"] * 2 +
                         ["tokens/s"] * 5)
        for row in report["figures"]:
            self.assertIn(row["verdict"], ("met", "missed", "no aim"), row)
            self.assertIsNotNone(row["ceiling"], row)
        self.assertEqual(len(report["furthest"]), 3)
        self.assertTrue((folder / "report.md").read_text().endswith("- " + report["furthest"][-1] + "\n"))

    @unittest.skipUnless(EMULATED, "no emulated plugin was named")
    def test_over_a_driver_that_registers_nothing_copies_fail(self):
        ran, report, folder = self.run_gpu_tests("--plugin", EMULATED, "--check", "--only", "bench,engine",
                                                 MOESTRO_EMULATED_CUDA_FAULTS="refuse-register")
        self.assertEqual(ran.returncode, 1)
        failed = [r["what"] for r in report["figures"] if r["failed"]]
        self.assertEqual({what.split(" ")[0] for what in failed if not what.startswith("mixtral")}, {"copy"})
        self.assertEqual(sum("memory for a quarter" in what for what in failed), 5)
        self.assertIn("## Warnings", (folder / "report.md").read_text())

    def test_a_damaged_copy_is_named(self):
        damaged = pathlib.Path(self.dir.name, "damaged")
        shutil.copytree(BUNDLE, damaged)
        with open(damaged / "payload.tar.xz", "r+b") as f:
            f.seek(1 << 20)
            f.write(b"damage")
        ran, _, _ = self.run_gpu_tests(bundle=damaged)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("copy the bundle again", ran.stderr)

    def test_a_bundle_that_is_too_large_names_its_largest_files(self):
        with self.assertRaises(SystemExit) as refused:
            maker.check_size(BUNDLE, {"bin/small": 1, "bin/large": 7 << 20}, 1 << 20)
        self.assertRegex(str(refused.exception), r"1\.00 are allowed.*\n +7\.00 MiB  bin/large\n +0\.00 MiB  bin/small")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=sys.argv[:1])

#!/usr/bin/env python3
"""What scripts/quickstart shows of a build."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/python/build_progress.py"
sys.path.insert(0, str(SCRIPT.parent))
import build_progress  # noqa: E402


class BuildProgress(unittest.TestCase):
    def test_an_estimate_from_the_steps_that_are_done(self):
        self.assertEqual(build_progress.shown(5, 100, 60), "[5/100]")  # too early to say
        self.assertEqual(build_progress.shown(50, 100, 240), "[50/100] about 4 min left")
        self.assertEqual(build_progress.shown(90, 100, 90), "[90/100] about 10 s left")
        self.assertEqual(build_progress.shown(100, 100, 90), "[100/100]")

    def test_the_log_has_every_line_and_the_screen_the_steps(self):
        lines = "[0/2] Re-checking\n[1/2] Building a.o\nwarning: x\n[2/2] Linking bin/a\n"
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "log"
            done = subprocess.run([sys.executable, SCRIPT, log], input=lines, text=True, capture_output=True)
            self.assertEqual(log.read_text(), lines)
        self.assertEqual(done.returncode, 0)
        self.assertIn("[2/2]", done.stderr)
        self.assertNotIn("warning", done.stderr)


if __name__ == "__main__":
    unittest.main()

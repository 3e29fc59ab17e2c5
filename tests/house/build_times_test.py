#!/usr/bin/env python3
"""The rule on sources that take long to compile must bite."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import build_times


def log_of(objects):
    """A log of ninja's in which each object took so many seconds, one after the other."""
    lines, at = ["# ninja log v5"], 0
    for name, seconds in objects:
        lines.append(f"{at}\t{at + int(seconds * 1000)}\t0\t{name}\tabc")
        at += int(seconds * 1000)
    return "\n".join(lines) + "\n"


class BuildTimes(unittest.TestCase):
    EVEN = [(f"a/{i}.cc.o", 14) for i in range(50)]

    def code(self, objects):
        with tempfile.TemporaryDirectory() as folder:
            if objects is not None:
                (pathlib.Path(folder) / ".ninja_log").write_text(log_of(objects))
            return subprocess.run([sys.executable, build_times.__file__, folder], capture_output=True).returncode

    def test_a_slow_source_is_found(self):
        self.assertEqual(self.code(self.EVEN), 0)
        self.assertEqual(self.code(self.EVEN + [("a/slow.cc.o", 30)]), 1)

    def test_the_command_to_measure_again_names_the_slow_sources_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / ".ninja_log").write_text(log_of(self.EVEN + [("a/slow.cc.o", 30)]))
            said = subprocess.run([sys.executable, build_times.__file__, folder], capture_output=True, text=True).stdout
        self.assertIn(f"(cd {folder} && rm -f a/slow.cc.o && CCACHE_RECACHE=1 ninja -j1 a/slow.cc.o)", said)

    def test_the_last_time_counts(self):
        self.assertEqual(self.code([("a/0.cc.o", 100)] + self.EVEN), 0)

    def test_links_do_not_count(self):
        self.assertEqual(self.code(self.EVEN + [("bin/moestro", 100)]), 0)

    def test_a_warm_cache_is_not_judged(self):
        cached = [(f"b/{i}.cc.o", 0.02) for i in range(10)]
        self.assertEqual(self.code(self.EVEN + [("a/slow.cc.o", 30)] + cached), 77)
        self.assertEqual(self.code(self.EVEN + [("a/slow.cc.o", 30)] + cached[:2]), 1)
        self.assertEqual(self.code(None), 77)


if __name__ == "__main__":
    unittest.main()

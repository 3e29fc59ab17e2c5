#!/usr/bin/env python3
"""scripts/python/skipped_cases.py says which instruction sets ran, and what was skipped within tests that passed."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/python"))
import skipped_cases  # noqa: E402

LOG = """\
[ RUN      ] Isa/OpsTest.Matmul/scalar
[       OK ] Isa/OpsTest.Matmul/scalar (285 ms)
[ RUN      ] Isa/OpsTest.Matmul/avx2_vnni
../../tests/kernels/ops_test.cc:16: Skipped
this machine lacks avx2-vnni

[  SKIPPED ] Isa/OpsTest.Matmul/avx2_vnni (0 ms)
[ RUN      ] Isa/OpsTest.Matmul/avx512_amx
../../tests/kernels/ops_test.cc:16: Skipped
this machine lacks avx512-amx

[  SKIPPED ] Isa/OpsTest.Matmul/avx512_amx (0 ms)
[       OK ] TilesTest.EmulatedTilesMultiplyAsVectorsDo (12 ms)
[ RUN      ] SmallRooms.AreRefused
../../tests/arena/small_rooms_test.cc:43: Skipped
no right to mount
a small tmpfs

[  SKIPPED ] SmallRooms.AreRefused (0 ms)
[  SKIPPED ] 3 tests, listed below:
[  SKIPPED ] SmallRooms.AreRefused
test_numbers (__main__.Numbers.test_numbers) ... ok
test_files (__main__.Memory.test_files) ... skipped 'only 1024 open files'
test_more (__main__.Memory.test_more) ... skipped "the shell's limit"
"""


class SkippedCases(unittest.TestCase):
    def test_instruction_sets_that_ran_and_that_did_not(self):
        self.assertEqual(skipped_cases.instruction_sets(LOG), (["scalar"], ["avx2-vnni", "avx512-amx"]))

    def test_a_set_that_ran_in_one_test_and_was_skipped_in_another_ran(self):
        self.assertEqual(
            skipped_cases.instruction_sets("[       OK ] Isa/A.B/avx2 (1 ms)\n[  SKIPPED ] Isa/A.C/avx2 (0 ms)\n"),
            (["avx2"], []))

    def test_modes_of_a_set_are_one_set(self):
        self.assertEqual(
            skipped_cases.instruction_sets("[       OK ] Isa/A.B/avx2_vnni_fast (1 ms)\n"
                                           "[       OK ] Isa/A.B/avx2_vnni_deterministic (1 ms)\n"),
            (["avx2-vnni"], []))

    def test_reasons_are_counted_once_a_case(self):
        self.assertEqual(skipped_cases.skipped(LOG), {
            "this machine lacks avx2-vnni": 1, "this machine lacks avx512-amx": 1,
            "no right to mount a small tmpfs": 1, "only 1024 open files": 1, "the shell's limit": 1})

    def test_the_report_says_that_tiles_were_emulated(self):
        self.assertEqual(skipped_cases.report(LOG).splitlines()[:3], [
            "instruction sets that the kernels' tests ran with: scalar",
            "not on this processor: avx2-vnni, avx512-amx (AMX tiles were emulated)",
            "5 cases skipped within tests that passed:"])

    def test_nothing_to_say_is_nothing(self):
        self.assertEqual(skipped_cases.report("[       OK ] A.B (1 ms)\n"), "")


if __name__ == "__main__":
    unittest.main()

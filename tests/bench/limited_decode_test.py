#!/usr/bin/env python3
"""Our side of scripts/bench_peers --memory-limit on the demo model with real programs, and the limit itself. Skipped
where memory cannot be limited."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest
import unittest.mock

SOURCE = pathlib.Path(os.environ.get("MOESTRO_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BIN = pathlib.Path(os.environ.get("MOESTRO_BIN_DIR", SOURCE / "build/dev/bin"))
sys.path.insert(0, str(SOURCE / "scripts" / "python"))

import emulated_drive
import limited_decode
import memory_limit
from peer_side import Side

MIB = 1 << 20


def limited(name, size):
    try:
        return memory_limit.MemoryLimit(f"moestro-test-{os.getpid()}-{name}", size)
    except memory_limit.Unavailable as e:
        raise unittest.SkipTest(str(e)) from e


class Limits(unittest.TestCase):
    def test_more_than_the_limit_is_not_had(self):
        group = limited("small", 64 * MIB)
        try:
            def touch(mib):
                return subprocess.run([sys.executable, "-c", f"x = bytearray(b'x') * ({mib} << 20)"],
                                      preexec_fn=group.enter, capture_output=True).returncode
            self.assertEqual(touch(16), 0)
            self.assertGreater(group.peak_bytes(), 16 * MIB)
            self.assertNotEqual(touch(128), 0)
            self.assertLessEqual(group.peak_bytes(), 64 * MIB)
        finally:
            group.close()
        self.assertFalse(group.path.exists())

    def test_read_ahead_is_put_back(self):
        ahead = memory_limit.ReadAhead(SOURCE, 64)
        if ahead.file is None:
            self.skipTest("the source lies on no drive")
        before = ahead.file.read_text()
        try:
            with ahead:
                self.assertEqual(ahead.file.read_text().strip(), "64")
                raise KeyError
        except KeyError:
            pass
        except memory_limit.Unavailable as e:
            self.skipTest(str(e))
        self.assertEqual(ahead.file.read_text(), before)


class Drives(unittest.TestCase):
    def test_an_emulated_one_has_the_files_and_the_speed_and_is_gone_afterwards(self):
        size, rate = 64 * MIB, 100_000_000
        with tempfile.TemporaryDirectory(dir=SOURCE) as home:  # a file system that knows direct reads
            pack = pathlib.Path(home) / "pack"
            (pack / "inner").mkdir(parents=True)
            (pack / "inner" / "large").write_bytes(os.urandom(size))
            (pack / "odd").write_bytes(b"five\n")
            group = limited("drive", 64 * MIB)
            try:
                with emulated_drive.EmulatedDrive(pack, rate) as drive:
                    self.assertEqual([f.read_bytes() for f in memory_limit.files_of(drive.path)],
                                     [f.read_bytes() for f in memory_limit.files_of(pack)])
                    drive.limit(group)
                    begin = time.monotonic()
                    subprocess.run(
                        ["dd", f"if={drive.path / 'inner' / 'large'}", "of=/dev/null", "bs=1M", "iflag=direct"],
                        check=True, capture_output=True, preexec_fn=group.enter)
                    self.assertGreater(time.monotonic() - begin, 0.7 * size / rate)
            except memory_limit.Unavailable as e:
                self.skipTest(str(e))
            finally:
                group.close()
        self.assertFalse(drive.home.exists())
        self.assertNotIn(str(drive.home), pathlib.Path("/proc/mounts").read_text())
        self.assertFalse(group.path.exists())

    def test_more_than_there_is_memory_for_is_refused_and_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as home:
            large, small = (pathlib.Path(home) / name for name in ("large", "small"))
            for file, size in ((large, 1 << 42), (small, 1)):
                with open(file, "wb") as f:
                    f.truncate(size)
            for drive in (emulated_drive.EmulatedDrive(large,
                                                       1), emulated_drive.EmulatedDrive(small, 1,
                                                                                        beside_bytes=1 << 42)):
                with self.assertRaisesRegex(memory_limit.Unavailable, "GB are free"), drive:
                    pass
                self.assertFalse(drive.home.exists())


    def test_what_stays_mounted_is_said(self):
        late = types.SimpleNamespace(monotonic=iter([0, 11]).__next__)
        with unittest.mock.patch.object(memory_limit, "time",
                                        late), self.assertRaisesRegex(memory_limit.Unavailable,
                                                                      "/nowhere/at/all stays mounted"):
            memory_limit.unmount("/nowhere/at/all")


class Cores(unittest.TestCase):
    def test_each_is_kept_awake_by_a_process_that_gives_way(self):
        with memory_limit.AwakeCores() as awake:
            ids = [p.pid for p in awake.processes]
            self.assertEqual({core for i in ids for core in os.sched_getaffinity(i)}, os.sched_getaffinity(0))
            self.assertEqual({os.sched_getscheduler(i) for i in ids}, {os.SCHED_IDLE})
        for i in ids:
            self.assertFalse(pathlib.Path(f"/proc/{i}").exists())


class Ours(unittest.TestCase):
    def test_decodes_from_a_store_that_holds_a_part_of_the_model(self):
        with tempfile.TemporaryDirectory() as home:
            pack = pathlib.Path(home) / "pack"
            subprocess.run([BIN / "moestro", "pack", SOURCE / "models" / "demo", "-o", pack, "--experts", "bf16"],
                           check=True, capture_output=True)
            whole = sum(f.stat().st_size for f in pack.glob("*.bin"))
            beside = 256 * MIB
            limited("probe", beside).close()
            for sequences in 1, 40:  # more than a step of one has tokens
                args = types.SimpleNamespace(bin=BIN / "moestro", threads=1, tokens=4, sequences=sequences,
                                             beside_arena=beside, store_options=[])
                try:
                    rate, more = limited_decode.turn(
                        lambda group: limited_decode.ours(args, Side, pack, group, whole // 4 + beside), (pack,),
                        whole // 4 + beside)
                except memory_limit.Unavailable as e:
                    self.skipTest(str(e))
                with self.subTest(sequences=sequences):
                    self.assertGreater(rate, 0)
                    self.assertLess(more["hit_rate"], 1)  # three quarters of the model are not there
                    self.assertGreater(more["peak_bytes"], whole // 4 * 9 // 10)
                    self.assertLessEqual(more["peak_bytes"], whole // 4 + beside)


class Rows(unittest.TestCase):
    def test_have_the_aim_of_what_they_measured(self):
        self.assertEqual(limited_decode.aim_of("mixtral-12gb", "bf16", 50, 1), (2.2, 0.91))
        self.assertEqual(limited_decode.aim_of("mixtral-12gb", "bf16-12bit", 50, 64), (3.0, None))
        self.assertEqual(limited_decode.aim_of("mixtral-12gb", "bf16", 50, 16), (None, None))
        self.assertEqual(limited_decode.aim_of("qwen3moe-mini", "q4_k_m", 25, 1), (5.0, None))
        self.assertEqual(limited_decode.aim_of("qwen3moe-mini", "q4_k_m", 25, 64), (None, None))


if __name__ == "__main__":
    ran = unittest.main(verbosity=2, exit=False).result
    sys.exit(1 if not ran.wasSuccessful() else 77 if ran.skipped else 0)

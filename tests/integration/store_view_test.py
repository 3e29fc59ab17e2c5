"""What an operator sees of a store that real workers use: `moestro top`, and a worker that comes to what is there
already."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import tempfile
import termios
import unittest

import cluster
from cluster import BIN, DEMO, Cluster, moestro, pack


class StoreView(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.pack = pack(DEMO, f"{cls.dir.name}/demo")
        cls.cluster = Cluster(cls.pack, "--workers", "2")
        cls.cluster.__enter__()
        cls.run_dir = cls.cluster.dir / "run"
        cls.cluster.complete("Once upon a time", max_tokens=24)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.__exit__()
        cls.dir.cleanup()

    def top(self):
        return json.loads(moestro("top", "--json", "--interval", "100ms", "--run-dir", self.run_dir).stdout)

    def test_json_has_the_figures_and_their_rates(self):
        seen = self.top()
        self.assertGreater(seen["misses"], 0)
        self.assertGreater(seen["hits"], seen["misses"])
        self.assertEqual(sorted(w["name"] for w in seen["workers"]), ["worker-0", "worker-1"])
        self.assertEqual(sum(w["hits"] for w in seen["workers"]), seen["hits"])
        self.assertEqual(seen["models"][0]["name"], "demo")
        self.assertEqual(len(seen["drives"]), 1)
        self.assertGreaterEqual(seen["drives"][0]["bytes_read"], seen["resident_bytes"])
        self.assertGreaterEqual(seen["rates"]["seconds"], 0.1)
        self.assertEqual(seen["queued_by_class"]["demand"], 0)
        self.assertEqual(seen["server"]["state"], "serving")
        self.assertEqual(seen["server"]["requests"]["running"], 0)

    def test_a_page_of_80_columns(self):
        page = moestro("top", "--run-dir", self.run_dir, "--interval", "100ms").stdout.splitlines()
        self.assertRegex(page[0], r"^server   serving; 0 requests under way; [\d.]+ tokens/s written")
        self.assertRegex(page[1], r"^queue    waiting: interactive 0, batch 0; at workers 0; room for \d+$")
        self.assertRegex(page[2], r"^batches  0 under way; 0 lines given out")
        self.assertTrue(any(line.startswith("arena ") for line in page))
        self.assertTrue(any(line.startswith("demo ") for line in page))
        self.assertTrue(all(len(line) <= 80 for line in page), page)

    def test_without_an_orchestrator_the_store_is_shown(self):
        page = moestro("top", "--run-dir", self.run_dir, "--interval", "100ms", "--url",
                       "http://127.0.0.1:1").stdout.splitlines()
        self.assertRegex(page[0], r"^server   .*127\.0\.0\.1:1")
        self.assertTrue(any(line.startswith("arena ") for line in page))

    def test_on_a_terminal_it_is_drawn_until_interrupted(self):
        child, terminal = pty.fork()
        if child == 0:
            os.execv(BIN / "moestro", ["moestro", "top", "--run-dir", str(self.run_dir), "--interval", "100ms"])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        shown = b""
        while shown.count(b"\x1b[H") < 3:
            shown += os.read(terminal, 65536)
        os.kill(child, signal.SIGINT)
        try:
            while more := os.read(terminal, 65536):
                shown += more
        except OSError:  # how a terminal says that nobody is left
            pass
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertTrue(shown.startswith(b"\x1b[?1049h") and shown.endswith(b"\x1b[?1049l"), "the screen is given back")
        last = shown.split(b"\x1b[H")[-1].split(b"\x1b[J")[0].decode()
        lines = [line.rstrip("\r").removesuffix("\x1b[K") for line in last.split("\n")]
        self.assertTrue(all(len(line) <= 60 for line in lines), lines)
        self.assertLess(len(lines), 25)

    def test_a_further_worker_reads_nothing(self):
        before = self.top()["bytes_read"]
        log = open(f"{self.dir.name}/extra.log", "w")
        extra = subprocess.Popen([BIN / "moestro-worker", "-c", self.run_dir / "box.yaml", "--name", "extra"],
                                 stderr=log, stdout=log)
        try:
            self.cluster.wait_until(
                lambda: any(w["name"] == "extra"
                            for w in self.cluster.request("GET", "/v1/moestro/status")[1]["workers"]),
                what="the third worker")
            self.assertEqual(self.top()["bytes_read"], before)
        finally:
            extra.terminate()
            extra.wait(30)

    def test_without_a_store_it_says_so_in_one_line(self):
        with tempfile.TemporaryDirectory() as nowhere:
            done = moestro("top", "--once", "--run-dir", nowhere, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("no store answers", done.stderr)
        self.assertEqual(moestro("top", check=False).returncode, 2)
        self.assertEqual(moestro("top", "--interval", "1ms", "--run-dir", self.run_dir, check=False).returncode, 2)


if __name__ == "__main__":
    cluster.main()

"""What an operator sees of a store that real workers use: `moestro top`, and a worker that comes to what is there
already."""

import fcntl
import json
import os
import pty
import re
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
        self.assertTrue(page[1].startswith("latency  first token p50 "), page)
        figures = "\n".join(page)
        self.assertRegex(figures, r"(?m)^queue    waiting: interactive 0, batch 0; at workers 0; room for \d+$")
        self.assertRegex(figures, r"(?m)^batches  0 under way; 0 lines given out")
        self.assertNotIn("p50 -", " ".join(page[1:3]), "the request of a moment ago was counted")
        used = self.cluster.request("GET", "/v1/moestro/status?experts=1")[1]["experts"]
        self.assertRegex(figures, rf"(?m)^map      recent use of {used['experts']} experts")
        of_layers = [line for line in page if re.match(r" +\d+(-\d+)? [.:=+*#%@-]+$", line)]
        self.assertEqual(len(of_layers), used["layers"])
        self.assertIn("@", "".join(of_layers), "one is the most used")
        self.assertTrue(any(line.startswith("arena ") for line in page))
        self.assertTrue(any(line.startswith("demo ") for line in page))
        self.assertTrue(all(len(line) <= 80 for line in page), page)
        self.assertNotIn("\x1b", figures, "no colours but on a terminal")

    def test_without_an_orchestrator_the_store_is_shown(self):
        page = moestro("top", "--run-dir", self.run_dir, "--interval", "100ms", "--url",
                       "http://127.0.0.1:1").stdout.splitlines()
        self.assertRegex(page[0], r"^server   .*127\.0\.0\.1:1")
        self.assertTrue(any(line.startswith("arena ") for line in page))

    def on_terminal(self, *arguments, rows=24, columns=60, **environment):
        """`moestro top` on a terminal of that size: its process id and the terminal."""
        child, terminal = pty.fork()
        if child == 0:
            command = ["moestro", "top", "--run-dir", str(self.run_dir), *arguments]
            os.execve(BIN / "moestro", command, {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "", **environment})
        self.resize(terminal, rows, columns)
        return child, terminal

    @staticmethod
    def resize(terminal, rows, columns):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self, child, terminal, shown):
        """All that it has shown, after an interrupt."""
        os.kill(child, signal.SIGINT)
        try:
            while more := os.read(terminal, 65536):
                shown += more
        except OSError:  # how a terminal says that nobody is left
            pass
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertTrue(shown.startswith(b"\x1b[?1049h") and shown.endswith(b"\x1b[?1049l"), "the screen is given back")
        return shown

    @staticmethod
    def frames(shown):
        """The whole frames among what was shown, as lists of lines."""
        whole = re.findall(rb"\x1b\[\?2026h\x1b\[H(.*?)\x1b\[\?2026l", shown, re.DOTALL)
        return [[line.removesuffix(b"\x1b[K").decode() for line in frame.removesuffix(b"\r\n\x1b[J").split(b"\r\n")]
                for frame in whole]

    def read_frames(self, terminal, shown, until):
        """Reads on until a frame is as it should be."""
        while not any(map(until, self.frames(shown))):
            shown += os.read(terminal, 65536)
        return shown

    def test_on_a_terminal_it_is_drawn_until_interrupted(self):
        child, terminal = self.on_terminal("--interval", "100ms", "--no-color")
        shown = self.read_frames(terminal, b"", lambda frame: len(frame) == 24)
        last = self.frames(self.end(child, terminal, shown))[-1]
        self.assertTrue(all(len(line) <= 60 for line in last), last)
        self.assertEqual(len(last), 24)
        self.assertNotIn("\x1b", "".join(last))

    def test_it_is_drawn_anew_when_the_terminal_is_resized(self):
        child, terminal = self.on_terminal("--interval", "10min")
        shown = self.read_frames(terminal, b"", lambda frame: True)
        for rows, columns in ((12, 100), (40, 33)):
            self.resize(terminal, rows, columns)
            shown = self.read_frames(terminal, shown, lambda frame: len(frame) == rows)
        plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in self.frames(self.end(child, terminal, shown))[-1]]
        self.assertTrue(all(len(line) <= 33 for line in plain), plain)

    def test_colours_are_for_terminals_that_want_them(self):
        for coloured, arguments, environment in ((True, (), {}), (False, ("--no-color",), {}),
                                                 (False, (), {"NO_COLOR": "1"}), (False, (), {"TERM": "dumb"})):
            child, terminal = self.on_terminal("--interval", "10min", *arguments, rows=60, columns=80, **environment)
            shown = self.read_frames(terminal, b"", lambda frame: len(frame) > 20)
            shown = self.end(child, terminal, shown)
            self.assertEqual(b"\x1b[32mserving\x1b[0m" in shown, coloured, (arguments, environment))
            self.assertEqual(b"\x1b[48;5;" in shown, coloured, (arguments, environment))

    def test_a_store_that_does_not_answer_is_said_above_its_last_figures_and_those_of_the_server_go_on(self):
        (store,) = self.cluster.children("moestro-store")
        child, terminal = self.on_terminal("--interval", "100ms", "--no-color", rows=20)
        shown = self.read_frames(terminal, b"", lambda frame: len(frame) == 20)
        os.kill(store, signal.SIGSTOP)
        try:
            shown = self.read_frames(terminal, shown, lambda frame: "no answer since" in frame[0])
            # What the server says of it comes later.
            shown = self.read_frames(terminal, shown, lambda frame: "no answer since" in frame[0] and any(
                "store does not answer" in line for line in frame))
        finally:
            os.kill(store, signal.SIGCONT)
        last = next(frame for frame in self.frames(shown) if "no answer since" in frame[0])
        self.assertEqual(len(last), 20)
        self.assertTrue(any(line.startswith("server   serving") for line in last), last)
        seen = len(self.frames(shown))
        while not any(frame[0].startswith("server") for frame in self.frames(shown)[seen:]):  # it is back
            shown += os.read(terminal, 65536)
        self.end(child, terminal, shown)
        self.cluster.wait_until(lambda: not self.cluster.request("GET", "/v1/moestro/status")[1]["problems"],
                                what="a store that the orchestrator hears again")

    def test_it_can_be_suspended(self):
        child, terminal = self.on_terminal("--interval", "10min")
        shown = self.read_frames(terminal, b"", lambda frame: True)
        os.kill(child, signal.SIGTSTP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]))
        while not shown.endswith(b"\x1b[?1049l"):  # the shell has its screen
            shown += os.read(terminal, 65536)
        os.kill(child, signal.SIGCONT)
        before = len(self.frames(shown))
        while len(self.frames(shown)) == before:
            shown += os.read(terminal, 65536)
        self.end(child, terminal, shown)

    def test_the_status_has_its_last_minutes(self):
        history = []

        def kept():
            history[:] = [self.cluster.request("GET", "/v1/moestro/status?history=1")[1]["history"]]
            return len(history[0]["samples"]) >= 3
        self.cluster.wait_until(kept, what="three samples, one a second")
        names, samples = history[0]["members"], history[0]["samples"]
        times = [sample[names.index("uptime_s")] for sample in samples]
        for before, after in zip(times, times[1:]):
            self.assertGreater(after, before)
        self.assertGreater(samples[-1][names.index("tokens.generated")], 0)
        self.assertIsNone(samples[-1][names.index("tiers.device.hits")], "CPUs have none")

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
            aided = moestro("top", "--once", "--run-dir", nowhere, "--url", self.cluster.url, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("no store answers", done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual((aided.returncode, aided.stderr), (1, done.stderr))
        self.assertRegex(aided.stdout, r"(?ms)^server   serving; .*^batches  ", "the server says how it is")
        self.assertEqual(moestro("top", "--interval", "1ms", "--run-dir", self.run_dir, check=False).returncode, 2)


if __name__ == "__main__":
    cluster.main()

"""Store, three workers and an orchestrator as processes of this test, which kills, stops and starts them again, and
says what is left."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
from cluster import BIN, DEMO, Served, expert_and_dense_bytes, moestro, pack  # noqa: E402,F401
from memory_directory import MemoryDirectory  # noqa: E402

READY_SECONDS_MAX = 60
LOG_TAIL_LINES = 12


class Program:
    """One program of the box, over all its lives; its log has them all."""

    def __init__(self, name, command, log):
        self.name, self.command, self.log_path = name, [str(c) for c in command], log
        self.process, self.starts, self.stopped, self.killed = None, 0, False, False

    def start(self, *more):
        assert self.process is None or self.process.poll() is not None, f"{self.name} runs already"
        self.starts += 1
        with open(self.log_path, "a") as log:
            log.write(f"=== start {self.starts} {' '.join(map(str, more))}\n")
            log.flush()
            self.process = subprocess.Popen(self.command + [str(m) for m in more], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)
        self.stopped = self.killed = False

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        """Nothing, if it has ended meanwhile."""
        if not self.alive:
            return
        self.process.send_signal(number)
        self.stopped = {signal.SIGSTOP: True, signal.SIGCONT: False}.get(number, self.stopped)
        self.killed = self.killed or number == signal.SIGKILL

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def state(self):
        """The kernel's letter: R, S, D, T (stopped), Z; '-' if it is gone."""
        try:
            return pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return "-"

    def log(self, of_start=None):
        """What it has said: in all its lives, or since its last start."""
        text = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return text if of_start is None else text.split("=== start ")[of_start]

    def says(self):
        return self.log(-1)


class Box(Served):
    """A context manager; `store_options` and `worker_options` are flags of those programs, `wrap` goes before the
    store's command."""

    def __init__(self, pack_dir, dram, store_options=(), worker_options=(), workers=3, wrap=(), arena=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="moestro-faults-", dir="/tmp"))
        self.pack, self.events, self.ended = pathlib.Path(pack_dir), [], 0
        self.memory = MemoryDirectory(4 * dram) if arena is None else None
        self.arena, run = pathlib.Path(arena or self.memory.path), self.dir / "run"
        self.host, self.port, self.began = "127.0.0.1", None, time.monotonic()
        (self.dir / "logs").mkdir()

        def program(name, binary, *flags):
            return Program(name, [*(wrap if name == "store" else ()), BIN / binary, "--run-dir", run, *flags],
                           self.dir / "logs" / f"{name}.log")

        # What is freed becomes NaN, so a use after eviction would show in the answers.
        self.store = program("store", "moestro-store", "--arena-dir", self.arena, "--dram", dram, "--model",
                             f"demo={self.pack}", "--poison-freed", *store_options)
        self.workers = [
            program(f"w{i}", "moestro-worker", "--model", "demo", "--name", f"w{i}", "--threads", 1, "--deterministic",
                    "--kv-tokens", 2048, *worker_options) for i in range(workers)
        ]
        self.orchestrator = program("orchestrator", "moestro-orchestrator", "--model", f"demo={self.pack}", "--http",
                                    "127.0.0.1:0")
        self.programs = [self.store, *self.workers, self.orchestrator]

    def note(self, text):
        self.events.append(f"{time.monotonic() - self.began:8.3f} s  {text}")

    def __enter__(self):
        try:
            for program in self.programs:
                program.start()
            self.wait_until(lambda: (self.dir / "run" / "http.port").exists(), READY_SECONDS_MAX,
                            "the orchestrator's port")
            self.port = int((self.dir / "run" / "http.port").read_text())
            self.until_serving()
        except BaseException:
            print(self.report(), file=sys.stderr, flush=True)
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for program in self.programs:
            if program.alive:
                program.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
        if self.memory:
            self.memory.remove()

    def until_serving(self):
        """Every program is there and all workers are with store and orchestrator."""
        def serving():
            self.revive()
            names = [w["name"] for w in self.served_status().get("workers", []) if w["last_heard_s"] < 2]
            return len(set(names)) == len(self.workers) == len(self.look().get("slots", []))
        self.wait_until(serving, READY_SECONDS_MAX, "a box with all its workers")

    def served_status(self):
        try:
            return self.request("GET", "/v1/moestro/status")[1]
        except OSError:
            return {}

    def revive(self, but=None):
        """Starts whatever has ended. A crash is nothing that a start may hide."""
        for program in self.programs:
            if program.alive or program is but:
                continue
            code = program.process.returncode
            if not program.killed:
                self.ended += 1
                self.note(f"{program.name} has ended by itself: {code}: {program.says()[-300:].strip()}")
                assert code >= 0 or code == -signal.SIGKILL, f"{program.name} crashed: signal {-code}"
                assert code != 2, f"{program.name} says that another start cannot mend it: {program.says()[-500:]}"
            program.start()

    def look(self):
        """What lies in the arena directory (arena_look.cc); empty while there is no arena."""
        done = subprocess.run([BIN / "moestro_arena_look", self.arena, self.pack], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def figures(self):
        """The store's own, as `moestro store list` prints them."""
        done = moestro("store", "list", "--json", "--run-dir", self.dir / "run", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def metric(self, name):
        """The sum of a Prometheus metric over its labels."""
        text = self.request("GET", "/metrics")[1]
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((name + " ", name + "{")))

    def report(self):
        """Everything that a failing round should say."""
        lines = ["--- events"] + self.events[-25:]
        for program in self.programs:
            state = program.state() if program.process else "not started"
            lines.append(f"--- {program.name}: state {state}, start {program.starts}; the end of its log:")
            lines += program.log().splitlines()[-LOG_TAIL_LINES:]
        try:
            wait = [
                f"{p.name}: {pathlib.Path(f'/proc/{p.process.pid}/wchan').read_text()}" for p in self.programs
                if p.alive
            ]
            lines.append("--- waiting in: " + ", ".join(wait))
        except OSError:
            pass
        lines += ["--- arena: " + json.dumps(self.look()), "--- status: " + json.dumps(self.served_status())]
        return "\n".join(lines)

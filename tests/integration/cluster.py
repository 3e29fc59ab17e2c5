"""A real cluster for tests: packs a model, starts `moestro up`, talks HTTP to it, kills what a test wants killed."""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

from memory_directory import MemoryDirectory

SOURCE = pathlib.Path(os.environ.get("MOESTRO_SOURCE_DIR", pathlib.Path(__file__).resolve().parents[2]))
BIN = pathlib.Path(os.environ.get("MOESTRO_BIN_DIR", SOURCE / "build/dev/bin"))
DEMO = SOURCE / "models" / "demo"
READY_SECONDS_MAX = 60


def moestro(*args, check=True):
    """Runs the CLI; returns the finished process."""
    done = subprocess.run([BIN / "moestro", *map(str, args)], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise AssertionError(f"moestro {' '.join(map(str, args))} exited {done.returncode}:\n{done.stderr}")
    return done


def pack(source, target, *options):
    moestro("pack", source, "-o", target, *options)
    return pathlib.Path(target)


class DemoTest(unittest.TestCase):
    """Tests that share a pack of the demo model: `cls.pack`, in `cls.dir`, which is theirs to fill."""

    PACK_OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.pack = pack(DEMO, cls.dir.name + "/pack", *cls.PACK_OPTIONS)

    def assert_refused(self, words, *options):
        """`up` does not start with them, and says so."""
        with self.assertRaises(AssertionError) as refused:
            with Cluster(self.pack, *options):
                pass
        self.assertIn(words, str(refused.exception), options)

    def run_streams(self, cluster, prompts, tokens, when=None, after=40):
        """Streams all prompts at once; `when()` is called once, after so many events in total. The token ids of
        each."""
        ids, failures, seen, lock = {}, [], [0], threading.Lock()

        def one(prompt):
            try:
                out = []
                for event in cluster.stream("/v1/completions", {
                        "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                        "return_token_ids": True
                }):
                    for choice in event["choices"]:
                        out += choice.get("token_ids") or []
                    with lock:
                        seen[0] += 1
                        fire = when if seen[0] == after else None
                    if fire:
                        fire()
                ids[prompt] = out
            except Exception as e:  # a thread's failure must reach the test
                failures.append(f"{prompt}: {e!r}")

        threads = [threading.Thread(target=one, args=(p,)) for p in prompts]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])
        for prompt in prompts:
            self.assertEqual(len(ids[prompt]), tokens, prompt)
        return ids


def expert_and_dense_bytes(pack_dir):
    """(bytes of one expert blob, bytes of all dense blobs) as `inspect --json` reports them."""
    report = json.loads(moestro("inspect", pack_dir, "--json").stdout)
    experts = report["experts"]
    return experts["blob_bytes"], report["dense"]["bytes"]


class Served:
    """Whatever answers HTTP at self.host and self.port; https, if it is told what to trust."""

    trust = None  # an ssl.SSLContext

    @property
    def url(self):
        return f"http{'s' if self.trust else ''}://{self.host}:{self.port}"

    def connect(self, timeout=120):
        if self.trust:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.trust)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, parsed JSON or text)."""
        connection = self.connect()
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text.decode(errors="replace")

    def complete(self, prompt, **options):
        status, body = self.request("POST", "/v1/completions", {"prompt": prompt, **options})
        if status != 200:
            raise AssertionError(f"{status}: {body}")
        return body

    def stream(self, path, body):
        """Yields the parsed `data:` events of a streamed answer, without [DONE]."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            for raw in response:
                line = raw.decode().strip()
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield json.loads(line[6:])

    def wait_until(self, condition, seconds=30, what="the condition"):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what} did not come true within {seconds} s")
            time.sleep(0.05)


class Cluster(Served):
    """`moestro up` in a temporary run directory; a context manager."""

    def __init__(self, pack_dir, *options, env=None):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="moestro-it-", dir="/tmp"))
        self.log = open(self.dir / "up.log", "w+")
        command = [BIN / "moestro", "up", "--model", pack_dir]
        self.run_dir = self.dir / "run"
        if "--run-dir" in options:
            self.run_dir = pathlib.Path(options[options.index("--run-dir") + 1])
        else:
            command += ["--run-dir", self.run_dir]
        if "--http" not in options:
            command += ["--http", "127.0.0.1:0"]
        self.memory = MemoryDirectory(2 << 30)
        if "--arena-dir" not in options:
            command += ["--arena-dir", self.memory.path / "arena"]
        self.process = subprocess.Popen([str(c) for c in command + list(options)], stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env=env)
        self.host, self.port = None, None

    def __enter__(self):
        timer = threading.Timer(READY_SECONDS_MAX, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()  # ends by itself when the process does
        timer.cancel()
        if not line.startswith(("ready http://", "ready https://")):
            self.__exit__()
            raise AssertionError("the cluster did not become ready:\n" + self.log_text)
        url = urllib.parse.urlparse(line.split()[1])
        self.host, self.port = url.hostname, url.port
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self.log.flush()
        self.log.seek(0)
        self.log_text = self.log.read()
        for file in sorted(self.run_dir.glob("**/*.log")):
            self.log_text += f"\n--- {file.name}\n{file.read_text(errors='replace')[-4000:]}"
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.memory.remove()
        self.exit_code = self.process.returncode

    def children(self, program):
        """Process ids of the cluster's programs of that name."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                stat = (entry / "stat").read_text()
                command = (entry / "cmdline").read_bytes().split(b"\0")[0].decode()
            except (OSError, UnicodeDecodeError):
                continue
            parent = int(stat.rsplit(")", 1)[1].split()[1])
            if parent == self.process.pid and pathlib.Path(command).name == program:
                found.append(int(entry.name))
        return sorted(found)


def main():
    import unittest
    unittest.main(verbosity=2, argv=sys.argv)

"""`moestro up` of a pack on a port of its own, while a block lasts."""

import json
import pathlib
import subprocess
import tempfile
import urllib.request


class ServedBox:
    """url: where it answers. said: what it had written to stderr by then. It has a run directory of its own.

    program: the command line before `up`. enter: called in the child before it starts."""

    def __init__(self, program, pack, *flags, env=None, enter=None):
        self.command = [*program, "up", "--model", pack, "--http", "127.0.0.1:0", *flags]
        self.env, self.enter = env, enter

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="moestro-served-")
        errors = pathlib.Path(self.scratch.name, "err")
        with errors.open("w") as to:
            self.up = subprocess.Popen([*self.command, "--run-dir", self.scratch.name + "/run"], text=True,
                                       stdout=subprocess.PIPE, stderr=to, env=self.env, preexec_fn=self.enter)
        line = self.up.stdout.readline()
        self.said = errors.read_text().strip()
        if not line.startswith("ready "):
            self.__exit__()
            raise SystemExit(f"error: {' '.join(map(str, self.command))}: {self.said}")
        self.url = line.split()[1]
        return self

    def __exit__(self, *_):
        self.up.terminate()
        self.up.wait()
        self.up.stdout.close()
        self.scratch.cleanup()

    def open(self, path, body):
        """The answer to a request, to be read as it comes."""
        return urllib.request.urlopen(
            urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}))

"""One side of a comparison: a program that is asked line by line."""

import os
import subprocess


class Side:
    """A program that answers a line for every line it is sent; `within`: a memory limit that it runs under."""

    def __init__(self, name, command, environment=None, within=None):
        self.name = name
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **(environment or {})},
                                        preexec_fn=within.enter if within else None)
        self.greeting = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            raise SystemExit(f"error: {self.name} ended; its message is above")
        return line.strip()

    def ask(self, request):
        self.process.stdin.write(f"{request}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        """What it printed at the end of its input."""
        rest, _ = self.process.communicate()
        if self.process.returncode:
            raise SystemExit(f"error: {self.name} failed; its message is above")
        return rest

    def stop(self):
        """Without waiting for its answers."""
        self.process.kill()
        self.process.wait()
